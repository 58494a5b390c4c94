import type { Coding } from '../run.ts';
import type { World } from './rule.ts';
import type { Copy, Entry, Head, State, Stated, Swap, Truth, Worker } from './state.ts';

/**
 * The encoding of states as short strings, by which they are compared. What occurs in many states (a copy, a list of
 * records) is written down once, and its number stands for it.
 */

/** Gives equal things one number. */
class Table<T extends object> {
  readonly #numbers = new Map<string, number>();
  readonly #known = new WeakMap<T, number>();
  readonly #things: T[] = [];

  numberOf(thing: T): number {
    const known = this.#known.get(thing);
    if (known !== undefined) return known;
    const text = JSON.stringify(thing);
    let number = this.#numbers.get(text);
    if (number === undefined) {
      number = this.#things.push(thing) - 1;
      this.#numbers.set(text, number);
    }
    this.#known.set(thing, number);
    return number;
  }

  thing(number: number): T {
    const thing = this.#things[number];
    if (thing === undefined) throw new RangeError(`no thing ${number}`);
    return thing;
  }
}

/** Numbers up to 2^30, in two characters each. */
const HALF = 15;

export function codingFor(world: World): Coding<State> {
  const entries = new Table<readonly Entry[]>();
  const statements = new Table<readonly Stated[]>();
  const copies = new Table<Copy>();
  const truths = new Table<Truth>();

  function encode(state: State): string {
    const rank = ranksOf(world, state);
    const pushHead = (to: number[], { revision, pending, stated, through }: Head) => {
      to.push(rank(revision), entries.numberOf(pending), statements.numberOf(stated), through + 1);
    };
    const pushSwap = (to: number[], { expected, head, order }: Swap) => {
      pushHead(to, { ...head, revision: expected });
      to.push(order + 1);
    };
    const workerText = ({ copy, head, swap, append, isUnsure }: Worker) => {
      const own = [copies.numberOf(copy), entries.numberOf(append), Number(isUnsure), swap === undefined ? 0 : 1];
      pushHead(own, head);
      if (swap !== undefined) pushSwap(own, swap);
      return toText(own);
    };
    const lateText = (swap: Swap) => {
      const own: number[] = [];
      pushSwap(own, swap);
      return toText(own);
    };
    const { arrived, foreign, losses, wipes, given, low, refused, strays, lates, workers } = state;
    const numbers = [arrived, foreign, losses, wipes, given, low, refused, strays.length, lates.length];
    numbers.push(entries.numberOf(state.log), truths.numberOf(state.truth));
    pushHead(numbers, state.head);
    if (wipes > 0) pushHead(numbers, state.saved);
    // Workers of one version have no names, and what is under way has no order.
    const texts = workers.map(workerText);
    const known = world.hasOlder ? texts : texts.sort();
    const late = [...strays.map((append) => toText([entries.numberOf(append)])).sort(), ...lates.map(lateText).sort()];
    return toText(numbers) + known.join('') + late.join('');
  }

  function decode(text: string): State {
    let place = 0;
    const next = () => (text.charCodeAt(place++) << HALF) | text.charCodeAt(place++);
    const times = <T>(count: number, read: () => T) => Array.from({ length: count }, read);
    const head = (): Head => {
      const [revision, pending] = [next(), entries.thing(next())];
      return { revision, pending, stated: statements.thing(next()), through: next() - 1 };
    };
    const swap = (): Swap => {
      const before = head();
      return { expected: before.revision, head: { ...before, revision: before.revision + 1 }, order: next() - 1 };
    };
    const worker = (): Worker => {
      const [copy, append] = [copies.thing(next()), entries.thing(next())];
      const isUnsure = next() === 1;
      const isSwapping = next() === 1;
      return { copy, head: head(), append, isUnsure, swap: isSwapping ? swap() : undefined };
    };
    const [arrived, foreign, losses, wipes] = [next(), next(), next(), next()];
    const [given, low, refused, strays, lates] = [next(), next(), next(), next(), next()];
    const [log, truth] = [entries.thing(next()), truths.thing(next())];
    const now = head();
    const saved = wipes > 0 ? head() : now;
    const rest = { head: now, saved, workers: times(world.workers, worker) };
    const late = { strays: times(strays, () => entries.thing(next())), lates: times(lates, swap) };
    return { arrived, foreign, losses, wipes, given, low, refused, log, truth, ...rest, ...late };
  }

  return { encode, decode };
}

/** While etcd loses nothing, revisions are only compared, so their order is enough. */
function ranksOf({ wipes }: World, { head, workers, lates }: State): (revision: number) => number {
  if (wipes > 0) return (revision) => revision;
  const all = [0, head.revision, ...lates.map(({ expected }) => expected)];
  for (const worker of workers) {
    all.push(worker.head.revision);
    if (worker.swap !== undefined) all.push(worker.swap.expected);
  }
  const ranks = [...new Set(all)].sort((one, other) => one - other);
  return (revision) => ranks.indexOf(revision);
}

function toText(numbers: readonly number[]): string {
  const codes: number[] = [];
  for (const number of numbers) codes.push(number >>> HALF, number & ((1 << HALF) - 1));
  return String.fromCharCode(...codes);
}

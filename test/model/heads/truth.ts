import { at, replaced, Violation } from '../search.ts';
import { countsFor, readOn, restored } from './reading.ts';
import { isByTold, type Rule, sinceOf, type World } from './rule.ts';
import { type Entry, type Head, KIND, type State, type Swap, type Truth } from './state.ts';

/** What was ever decided, which no worker knows; and the checks against it. */

/** The state after an append arrives; undefined if the world has no place for it. */
export function landed(rule: Rule, world: World, state: State, append: readonly Entry[]): State | undefined {
  const log = [...state.log, ...append];
  if (log.length > world.entries) return undefined;
  if (isByTold(rule, world)) return { ...state, log };
  let { truth } = state;
  let copy = rule.counting === 'placed' ? at(state.workers, 0).copy : restored(rule, world, state);
  for (let offset = state.log.length; offset < log.length; offset++) {
    const entry = at(log, offset);
    if (countsFor(rule, copy, entry, offset)) truth = truthAfter(world, state, truth, entry);
    if (rule.counting !== 'placed') copy = readOn(rule, copy, log.slice(0, offset + 1));
  }
  return { ...state, log, truth };
}

/** Checks a record that counts. A record may count again, as it was, after the log had lost it. */
function truthAfter(world: World, state: State, truth: Truth, entry: Entry): Truth {
  if (entry.kind === KIND.numbers) return decided(world, state, truth, entry);
  if (entry.kind === KIND.loss && state.losses === world.losses && state.low === 0) {
    throw new Violation(`a loss of sequence ${entry.sequence} is stated, though nothing is lost`);
  }
  return entry.kind === KIND.order ? ordered(truth, entry) : repeated(truth, entry);
}

function decided({ keys }: World, { refused }: State, truth: Truth, entry: Entry): Truth {
  const { key, sequence, first, next, step } = entry;
  const due = at(truth.due, sequence);
  const before = at(truth.numbers, key);
  if (before === first && next <= due.next) return truth;
  if (before !== 0) throw new Violation(`key ${key} has the numbers from ${before}, and gets those from ${first}`);
  if ((refused >> key) & 1) throw new Violation(`key ${key} was refused for good, and gets the number ${first}`);
  if (due.isClosed) throw new Violation(`sequence ${sequence} is closed, and goes on at ${first}`);
  if (first !== due.next) {
    const what = first > due.next ? 'numbers are skipped' : 'a number is given twice';
    throw new Violation(`sequence ${sequence} goes on at ${first}, where ${due.next} is due: ${what}`);
  }
  if (step !== due.step || next !== first + at(keys, key).count * step) {
    throw new Violation(`sequence ${sequence} goes on from ${first} to ${next}, but not in steps of ${due.step}`);
  }
  return {
    numbers: replaced(truth.numbers, key, first),
    due: replaced(truth.due, sequence, { ...due, next }),
  };
}

function ordered(truth: Truth, entry: Entry): Truth {
  const { sequence, first, next, edition, step, isClosed } = entry;
  const due = at(truth.due, sequence);
  if (edition <= due.edition && next <= due.next) return truth;
  if (first !== due.next || edition !== due.edition + 1) {
    const says = `edition ${edition} from ${first}, where edition ${due.edition + 1} from ${due.next} is due`;
    throw new Violation(`an order makes of sequence ${sequence} ${says}`);
  }
  return { ...truth, due: replaced(truth.due, sequence, { ...due, next, edition, step, isClosed }) };
}

/** What workers state is no decision: it says at most what was decided. */
function repeated(truth: Truth, entry: Entry): Truth {
  const { sequence, next, edition, step, isClosed } = entry;
  const due = at(truth.due, sequence);
  if (next > due.next) {
    throw new Violation(
      `a statement sets sequence ${sequence} to ${next}, where ${due.next} is due: numbers are skipped`,
    );
  }
  const isFirst = due.edition === 0 && edition === 1;
  const isKnown = edition < due.edition || isFirst || (edition === due.edition && step === due.step);
  if (!isKnown || (edition === due.edition && isClosed !== due.isClosed)) {
    throw new Violation(`a statement gives sequence ${sequence} a definition that no operator ordered`);
  }
  return isFirst ? { ...truth, due: replaced(truth.due, sequence, { ...due, edition }) } : truth;
}

/** A requester is told numbers: those that were decided. Returns what is known then. */
export function told(rule: Rule, world: World, { truth }: State, key: number, first: number): Truth {
  const decision = at(truth.numbers, key);
  if (decision === first) return truth;
  if (decision !== 0) throw new Violation(`key ${key} is told ${first}, but has the numbers from ${decision}`);
  if (!isByTold(rule, world)) throw new Violation(`key ${key} is told ${first}, but nothing is decided`);
  const { sequence, count } = at(world.keys, key);
  for (const [other, from] of truth.numbers.entries()) {
    const theirs = at(world.keys, other);
    if (from === 0 || theirs.sequence !== sequence || first >= from + theirs.count || from >= first + count) continue;
    throw new Violation(`keys ${other} and ${key} are both told ${Math.max(first, from)}`);
  }
  return { ...truth, numbers: replaced(truth.numbers, key, first) };
}

/** The state after a swap arrives, and whether it succeeded. */
export function swapped(
  { compares }: Rule,
  state: State,
  swap: Swap,
): { readonly state: State; readonly done: boolean } {
  if (swap.expected !== state.head.revision && compares) return { state, done: false };
  const given = swap.order < 0 ? state.given : state.given | (1 << swap.order);
  const head = { ...swap.head, revision: state.head.revision + 1 };
  return { state: { ...state, head, given }, done: true };
}

/** Whether the head excludes that anything is decided once more, whatever the log has lost. */
export function etcdRemembers({ keys }: World, { truth, head }: State): boolean {
  const isKnown = truth.due.every(({ edition }, s) => at(head.stated, s).edition >= edition);
  return isKnown && truth.numbers.every((first, key) => first === 0 || holds(head, at(keys, key).sequence, key, first));
}

function holds({ pending, stated }: Head, s: number, key: number, first: number): boolean {
  const mine = pending.filter(({ sequence }) => sequence === s);
  if (mine.some((entry) => entry.key === key && entry.first === first)) return true;
  return first < (mine[0]?.first ?? at(stated, s).next);
}

/** Whether the log excludes that anything is decided once more, whatever etcd has lost. */
export function logRemembers(rule: Rule, world: World, state: State): boolean {
  const { numbers, rows, horizon } = restored(rule, world, state);
  const isKnown = state.truth.due.every(({ edition }, s) => at(rows, s).edition >= edition);
  return (
    isKnown &&
    state.truth.numbers.every((first, key) => {
      const { gap, next } = at(rows, at(world.keys, key).sequence);
      const isForgotten = gap === 0 && next > first && sinceOf(world, key) <= horizon;
      return first === 0 || at(numbers, key) === first || isForgotten;
    })
  );
}

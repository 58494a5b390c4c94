/** The search of the models: all states within the bounds of a world, the nearest first. */

/** A state that breaks what the model promises. */
export class Violation extends Error {}

/** Receives each possible step from a state, and each case that occurs in it. */
export interface Observer<State, Case extends string> {
  /** A step to another state; `which` identifies it among steps of the same name. */
  step(next: State, name: string, ...which: readonly number[]): void;
  /** A case occurred, for the counts that show that a rule that holds was really tested. */
  saw(name: Case): void;
}

/** What is explored. Equal texts are equal states. */
export interface Model<State, Case extends string> {
  readonly initial: State;
  readonly cases: readonly Case[];
  readonly encode: (state: State) => string;
  readonly decode: (text: string) => State;
  /** Shows all steps from a state to the observer. Throws Violation when the state, or what is done in it, is wrong. */
  readonly moves: (state: State, observer: Observer<State, Case>) => void;
  readonly describe: (state: State) => string;
}

export interface Result<Case extends string> {
  readonly states: number;
  readonly steps: number;
  /** How often each case occurred, counted by state. */
  readonly counts: Readonly<Record<Case, number>>;
  /** The shortest sequence of steps to a violation; absent when there is none. */
  readonly violation?: readonly string[];
}

export interface Limits {
  /** Throws when there are more states than this: the bounds are too wide. */
  readonly states: number;
  readonly progress?: (states: number, done: number) => void;
}

/** Goes through all states within the bounds, the nearest first, and stops at the first violation. */
export function explore<State, Case extends string>(model: Model<State, Case>, limits: Limits): Result<Case> {
  const found = new Found(model.encode(model.initial));
  const counts = Object.fromEntries(model.cases.map((name) => [name, 0])) as Record<Case, number>;
  let steps = 0;
  let from = 0;
  const observer: Observer<State, Case> = {
    step(next) {
      steps += 1;
      found.add(model.encode(next), from);
    },
    saw(name) {
      counts[name] += 1;
    },
  };
  for (; from < found.size; from++) {
    if (found.size > limits.states) throw new RangeError(`more than ${limits.states} states`);
    if (from % 1_000_000 === 0 && from > 0) limits.progress?.(found.size, from);
    try {
      model.moves(model.decode(found.text(from)), observer);
    } catch (error) {
      if (!(error instanceof Violation)) throw error;
      const violation = [...wayTo(model, found, from), error.message];
      return { states: found.size, steps, counts, violation };
    }
  }
  return { states: found.size, steps, counts };
}

/** A line about a result, with the steps to a violation. */
export function summary<Case extends string>({ states, steps, counts, violation }: Result<Case>): string {
  const cases = (Object.keys(counts) as Case[]).map((name) => `${name} ${counts[name]}`);
  const end = violation === undefined ? 'holds' : `fails:\n  ${violation.join('\n  ')}\n`;
  return `${states} states, ${steps} steps (${cases.join(', ')}): ${end}`;
}

/** A Set holds 2^24 keys at most. */
const SHARDS = 64;

function shardOf(text: string): number {
  let sum = 0;
  for (let i = 0; i < text.length; i += 3) sum = (sum * 31 + text.charCodeAt(i)) | 0;
  return (sum >>> 8) % SHARDS;
}

/** The states found so far, in order, each with the state that led to it. */
class Found {
  readonly #texts: string[] = [];
  readonly #origins: number[] = [];
  readonly #known = Array.from({ length: SHARDS }, () => new Set<string>());

  constructor(start: string) {
    this.add(start, 0);
  }

  get size(): number {
    return this.#texts.length;
  }

  add(text: string, from: number): void {
    const known = at(this.#known, shardOf(text));
    const before = known.size;
    known.add(text); // one look-up, not two: most of the time goes here
    if (known.size === before) return;
    this.#texts.push(text);
    this.#origins.push(from);
  }

  text(place: number): string {
    return at(this.#texts, place);
  }

  origin(place: number): number {
    return at(this.#origins, place);
  }
}

/** The names of the steps from the start to a state. */
function wayTo<State, Case extends string>(model: Model<State, Case>, found: Found, place: number): string[] {
  const places: number[] = [];
  for (let p = place; p > 0; p = found.origin(p)) places.unshift(p);
  return places.map((p) => {
    const to = found.text(p);
    let name = '?';
    model.moves(model.decode(found.text(found.origin(p))), {
      step(next, step, ...which) {
        if (name === '?' && model.encode(next) === to) name = [step, ...which].join(' ');
      },
      saw() {},
    });
    return `${name}   ${model.describe(model.decode(to))}`;
  });
}

/** The item at a place that exists. */
export function at<T>(items: readonly T[], place: number): T {
  if (place < 0 || place >= items.length) throw new RangeError(`no item ${place} of ${items.length}`);
  return items[place] as T;
}

export function replaced<T>(items: readonly T[], place: number, item: T): readonly T[] {
  return items.map((old, i) => (i === place ? item : old));
}

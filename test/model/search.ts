import { hasBeginning, type Judgement, moves, type Observer } from './moves.ts';
import type { Rule, World } from './rule.ts';
import { at, decode, encode, initialState, type Log, MARKER, NONE, type State } from './state.ts';

/** How often each case occurred, counted by state, to show that a rule that holds was really tested. */
export interface Counts {
  /** Requests that were never decided and are served. */
  served: number;
  /** Of these, by a worker whose ledger partition has since been trimmed to nothing. */
  servedFromEmptyLog: number;
  /** Of these, with an index that does not know everything. */
  servedAfterLoss: number;
  /** Requests decided by entries that the worker no longer knows, and FORGOTTEN. */
  forgottenRightly: number;
  /** Requests that were never decided, but might have been as far as the worker knows. */
  forgottenInDoubt: number;
  /** Requests that were never decided, and that the check of time alone would have served. */
  forgottenByOffset: number;
  /** Requests that were never decided, refused by a worker that knows everything. */
  forgottenInVain: number;
  /** Second batches of the correlation ID with forged headers. */
  forgedTwice: number;
}

export interface Result {
  readonly states: number;
  readonly steps: number;
  readonly counts: Counts;
  /** The shortest sequence of steps to a second batch; absent when there is none. */
  readonly violation?: readonly string[];
}

export interface Limits {
  /** Throws when there are more states than this: the bounds are too wide. */
  readonly states: number;
  readonly progress?: (states: number, depth: number) => void;
}

class SecondBatch extends Error {}

/** Goes through all states within the bounds, the nearest first, and stops at the first second batch. */
export function explore(rule: Rule, world: World, limits: Limits): Result {
  const ids = world.homes.length;
  const found = new Found(encode(initialState(ids, world.workers)));
  const counts: Counts = {
    served: 0,
    servedFromEmptyLog: 0,
    servedAfterLoss: 0,
    forgottenRightly: 0,
    forgottenInDoubt: 0,
    forgottenByOffset: 0,
    forgottenInVain: 0,
    forgedTwice: 0,
  };
  let steps = 0;
  let from = 0;
  const observer: Observer = {
    step(next) {
      steps += 1;
      found.add(encode(next), from);
    },
    replied(state, id, batch) {
      const first = at(state.batches, id);
      if (first === NONE || first === batch) return;
      if (id === world.forged) counts.forgedTwice += 1;
      else throw new SecondBatch(`ID ${id} has batch ${first}, and gets batch ${batch}`);
    },
    judged: (judgement) => count(counts, rule, judgement),
  };
  for (; from < found.size; from++) {
    if (found.size > limits.states) throw new RangeError(`more than ${limits.states} states`);
    if (from % 1_000_000 === 0 && from > 0) limits.progress?.(found.size, from);
    try {
      moves(rule, world, decode(found.text(from), ids, world.workers), observer);
    } catch (error) {
      if (!(error instanceof SecondBatch)) throw error;
      const violation = [...wayTo(rule, world, found, from), error.message];
      return { states: found.size, steps, counts, violation };
    }
  }
  return { states: found.size, steps, counts };
}

function count(counts: Counts, rule: Rule, { state, index, request, verdict }: Judgement): void {
  const wasDecided = at(state.batches, request.id) !== NONE;
  if (wasDecided) {
    if (verdict !== 'serve') counts.forgottenRightly += 1;
    return;
  }
  const inReach = !hasBeginning(index) || request.time >= index.since + rule.margin;
  if (verdict === 'serve') {
    counts.served += 1;
    const isEmptied = ({ low, entries }: Log) => low > 0 && low === entries.length && low === index.end;
    if (state.logs.some(isEmptied)) counts.servedFromEmptyLog += 1;
    if (hasBeginning(index)) counts.servedAfterLoss += 1;
  } else if (index.origin === 0) counts.forgottenInVain += 1;
  else if (inReach) counts.forgottenByOffset += 1;
  else counts.forgottenInDoubt += 1;
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
function wayTo(rule: Rule, world: World, found: Found, place: number): string[] {
  const places: number[] = [];
  for (let p = place; p > 0; p = found.origin(p)) places.unshift(p);
  const ids = world.homes.length;
  return places.map((p) => {
    const to = found.text(p);
    let name = '?';
    const state = decode(found.text(found.origin(p)), ids, world.workers);
    moves(rule, world, state, {
      step(next, step, ...which) {
        if (name === '?' && encode(next) === to) name = [step, ...which].join(' ');
      },
      replied() {},
      judged() {},
    });
    return `${name}   ${describe(decode(to, ids, world.workers))}`;
  });
}

function describe({ now, logs, workers }: State): string {
  const log = logs.map(({ low, entries }) => {
    const kept = entries
      .slice(low)
      .map(({ key, end, appendedAt }) => `${key === MARKER ? 'm' : key}/${end}@${appendedAt}`);
    return `${low}:[${kept.join(' ')}]`;
  });
  const known = workers.map(({ indexes }) => {
    const { origin, end, since, horizon } = at(indexes, 0);
    return `[${origin},${end}) since ${since} horizon ${horizon}`;
  });
  return `(now ${now}, logs ${log.join(' ')}, indexes ${known.join(' | ')})`;
}

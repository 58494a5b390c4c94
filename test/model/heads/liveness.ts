import { Liveness } from '../run.ts';
import { at, Violation } from '../search.ts';
import { codingFor } from './coding.ts';
import { draftOf, isForgotten, placedAll, type View } from './decide.ts';
import { repairedByOrder } from './moves.ts';
import { dueNow, isStopped, swapIn } from './product.ts';
import { readOn, restored } from './reading.ts';
import type { Rule, World } from './rule.ts';
import { type Entry, NONE, type State, type Swap, withWorker } from './state.ts';
import { landed, swapped, told } from './truth.ts';
import { unrefused, viewOf } from './worker.ts';

/** More steps than one owner alone ever needs within the bounds. */
const STEPS = 60;

/**
 * Once faults end, one owner answers everything. From a state on, one worker goes on alone, with the copy and the head
 * that it has. What is under way arrives before any of its steps, in any order, or never. All such continuations are
 * gone through: each ends where no request is left that may be decided, and nothing is due for the log or the head.
 */
export class OneOwner extends Liveness<Rule, World, State> {
  constructor(rule: Rule, world: World) {
    const alone = { ...world, workers: 1, entries: Number.POSITIVE_INFINITY };
    super(rule, alone, codingFor(alone));
  }

  check(state: State): void {
    const strays = [...state.strays, ...state.workers.flatMap(({ append }) => (append.length > 0 ? [append] : []))];
    const lates = [...state.lates, ...state.workers.flatMap(({ swap }) => (swap === undefined ? [] : [swap]))];
    const owners = this.world.hasOlder ? state.workers.slice(0, -1) : state.workers;
    for (const worker of owners) {
      const owner = { ...worker, swap: undefined, append: [], isUnsure: false };
      // With a swap under way it reads the head before it does anything else.
      const { head } = worker.swap === undefined ? worker : state;
      this.#go({ ...state, strays, lates, workers: [{ ...owner, head }] }, 0);
    }
  }

  #go(state: State, depth: number): void {
    if (depth > STEPS) throw new Violation('one owner alone does not come to an end');
    if (!this.isNew(state)) return;
    for (const [s, append] of state.strays.entries()) {
      this.#go(this.#landed({ ...state, strays: state.strays.filter((_, i) => i !== s) }, append), depth + 1);
    }
    for (const [s, swap] of state.lates.entries()) {
      const left = { ...state, lates: state.lates.filter((_, i) => i !== s) };
      this.#go(swapped(this.rule, left, swap).state, depth + 1);
    }
    const next = this.#step(state);
    if (next !== undefined) this.#go(next, depth + 1);
  }

  /** The owner's next step, or undefined when everything is answered. */
  #step(state: State): State | undefined {
    const { copy, head } = at(state.workers, 0);
    const [rule, world] = [this.rule, this.world];
    if (copy.end > state.log.length || copy.end < state.low) {
      return withWorker(state, 0, { copy: restored(rule, world, state) });
    }
    if (copy.end < state.log.length) return withWorker(state, 0, { copy: readOn(rule, copy, state.log) });
    const view = viewOf(rule, world, state, at(state.workers, 0));
    const due = dueNow(view);
    if (due.kind === 'repair') return this.#swapped(state, due.swap);
    if (due.kind !== 'draft') return this.#landed(state, due.entries);
    const requests = unrefused(view, state);
    if (requests.length > 0) {
      const draft = draftOf(view, requests.slice(0, world.draft));
      if (rule.swaps !== 'before') return this.#landed(state, placedAll(view, draft));
      return this.#swapped(state, swapIn(view, draft, NONE));
    }
    const isStale = head.revision !== state.head.revision && rule.refusesAfterLook;
    const stops = head.stated.some((_, s) => isStopped(view, s));
    const refuses = state.refused === 0 && copy.numbers.some((first) => first === 0);
    if ((stops || refuses) && isStale) return this.#afterLook(state);
    if (stops) return this.#repaired(state);
    this.#requireAnswers(state, view);
    return undefined;
  }

  /** Before it refuses anything, or stops a sequence, the owner reads head and log again. */
  #afterLook(state: State): State {
    return withWorker(state, 0, { copy: restored(this.rule, this.world, state), head: state.head });
  }

  /** Only a loss of etcd leaves a sequence stopped. */
  #repaired(state: State): State {
    if (this.world.wipes === 0) throw new Violation('a sequence stops, though etcd lost nothing');
    return repairedByOrder(this.rule, this.world, state) ?? this.#afterLook(state);
  }

  /** Each request has its numbers, or a refusal for which there is a reason. */
  #requireAnswers(state: State, view: View): void {
    for (const [request, { key }] of this.world.requests.slice(0, state.arrived).entries()) {
      const first = at(view.copy.numbers, key);
      const { next, isClosed } = at(state.truth.due, at(this.world.keys, key).sequence);
      if (first > 0) told(this.rule, this.world, state, key, first);
      const isRefused = isForgotten(view, request) || ((state.refused >> key) & 1) === 1 || isClosed || next === 0;
      if (first === 0 && !isRefused) throw new Violation(`request ${request} is never answered`);
    }
  }

  #landed(state: State, append: readonly Entry[]): State {
    return landed(this.rule, this.world, state, append) ?? state;
  }

  #swapped(state: State, swap: Swap): State {
    const { state: after } = swapped(this.rule, state, swap);
    return withWorker(after, 0, { head: after.head });
  }
}

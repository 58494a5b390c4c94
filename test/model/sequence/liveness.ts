import { Liveness } from '../run.ts';
import { at, Violation } from '../search.ts';
import { codingFor } from './coding.ts';
import { canShare, draftsOf, isReady, judge, markerOf } from './decide.ts';
import { read, wiped } from './knowledge.ts';
import type { Rule, World } from './rule.ts';
import { BLANK, type Entry, KIND, NONE, type State, withWorker } from './state.ts';
import { landed } from './truth.ts';
import { type Observer, reply } from './worker.ts';

/**
 * Once faults end, one owner answers every request. From a state on, one worker serves alone: it takes the partition
 * over with a marker, and processes all requests, which are read again, until each has its answer. Nothing is lost any
 * more, and the log keeps what it has; but each append that is still under way may arrive at any moment, or never. All
 * such continuations are gone through. Since every append under way can make at most one of the owner's void, the owner
 * needs at most so many appends: a marker, one for the requests, and one for each append under way.
 */
export class OneOwner extends Liveness<Rule, World, State> {
  constructor(rule: Rule, world: World) {
    const alone = { ...world, workers: 1, entries: Number.POSITIVE_INFINITY, hasOlder: false };
    super(rule, alone, codingFor(rule, alone));
  }

  check(state: State): void {
    const late = state.workers.flatMap(({ append }) => (append.length > 0 ? [append] : []));
    const strays = [...state.strays, ...late];
    for (const { index } of state.workers) {
      const owner = { index, saved: undefined, isMarkerDue: true, append: [] };
      this.#go({ ...state, strays, workers: [owner] }, (1 << state.arrived) - 1, 2 + strays.length, 0);
    }
  }

  /**
   * `open`: one bit for each request without an answer; `left`: how many appends the owner may still need; `abandoned`:
   * what it will not try again, where the rule is broken.
   */
  #go(before: State, open: number, left: number, abandoned: number): void {
    if (open === 0) return;
    const state = this.#readOn(before);
    if (!this.isNew(state, open, left, abandoned)) return;
    this.#serve(state, open, left, abandoned);
  }

  /**
   * The owner reads to the end. What it then needs no more is left out, so that states with equal continuations are
   * equal.
   */
  #readOn(state: State): State {
    const { index: known } = at(state.workers, 0);
    const [rule, world] = [this.rule, this.world];
    const isHole = known.end < state.low;
    const index = isHole ? wiped(rule, world, known, state) : read(rule, world, known, state.entries);
    const entries = state.entries.map((entry, offset) => ((index.indexed >> offset) & 1 ? entry : BLANK));
    const isVoid = ({ at: place }: Entry) => place !== NONE && place < entries.length;
    const strays = state.strays.map((append) => append.map((entry) => (isVoid(entry) ? BLANK : entry)));
    return { ...withWorker(state, 0, { index }), entries, strays };
  }

  /** The owner answers what it can, and appends. */
  #serve(state: State, open: number, left: number, abandoned: number): void {
    const rule = this.rule;
    const world = this.world;
    const { index, isMarkerDue } = at(state.workers, 0);
    if (isMarkerDue || !isReady(index)) {
      this.#send(state, markerOf(world, state, index), open, left, abandoned);
      return;
    }
    let unanswered = open;
    let append: readonly Entry[] = [];
    for (let request = 0; request < state.arrived; request++) {
      if (((unanswered >> request) & 1) === 0 || ((abandoned >> request) & 1) === 1) continue;
      const verdict = judge(rule, world, state, index, request);
      if (verdict === 'draft') {
        const longer = draftsOf(rule, world, state, index, [...append.map((entry) => entry.request), request]);
        if (canShare(rule, world, index, longer)) append = longer;
      } else if (verdict !== 'wait') {
        if (typeof verdict === 'number') reply(rule, world, state, index, request, verdict, UNSEEN);
        else this.#requireReason(state, request, verdict);
        unanswered &= ~(1 << request);
      }
    }
    if (unanswered === 0) return;
    if (append.length === 0) throw new Violation(`request ${31 - Math.clz32(unanswered)} is never answered`);
    this.#send(state, append, unanswered, left, abandoned);
  }

  /** The append arrives, and before it any that are still under way. */
  #send(state: State, append: readonly Entry[], open: number, left: number, abandoned: number): void {
    if (left === 0) throw new Violation('requests have no answer yet after as many appends as may be needed');
    for (const crossed of this.#crossed(state)) {
      for (const arrived of landed(this.rule, this.world, crossed, append)) {
        this.#settle(arrived, append, open, left - 1, abandoned);
      }
    }
  }

  /** The state, and those after some appends under way have arrived, in each order. */
  #crossed(state: State): readonly State[] {
    const after = state.strays.flatMap((append, s) => {
      const others = { ...state, strays: state.strays.filter((_, i) => i !== s) };
      return landed(this.rule, this.world, others, append).flatMap((arrived) => this.#crossed(arrived));
    });
    return [state, ...after];
  }

  #settle(state: State, append: readonly Entry[], open: number, left: number, abandoned: number): void {
    const rule = this.rule;
    const { index: before } = at(state.workers, 0);
    const index = read(rule, this.world, before, state.entries, state.entries.length - append.length);
    const next = withWorker(state, 0, { index, isMarkerDue: false });
    const lost = append.filter(({ kind, request }) => {
      return kind === KIND.numbers && judge(rule, this.world, next, index, request) === 'draft';
    });
    if (lost.length > 0 && rule.afterVoid === 'sends again') {
      this.#send(next, append, open, left, abandoned);
      return;
    }
    const isLeft = rule.afterVoid === 'leaves';
    const more = isLeft ? lost.reduce((bits, { request }) => bits | (1 << request), abandoned) : abandoned;
    this.#go(next, open, left, more);
  }

  /** Nothing is refused in a world where nothing gives a reason for it. */
  #requireReason({ truth }: State, request: number, refusal: string): void {
    const { isTrimmed, orders } = this.world;
    if (isTrimmed || orders.length > 0) return;
    const wasDecided = at(truth.decisions, at(this.world.keys, request)).request !== NONE;
    throw new Violation(
      `request ${request}, ${wasDecided ? 'which is decided,' : 'which is new,'} is refused: ${refusal}`,
    );
  }
}

const UNSEEN: Observer = { step() {}, saw() {} };

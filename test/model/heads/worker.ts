import { at, Violation, type Observer as Watching } from '../search.ts';
import {
  definitionNow,
  draftable,
  draftOf,
  isForgotten,
  lacking,
  orderOf,
  placedAll,
  statementOf,
  type View,
} from './decide.ts';
import { dueNow, fenceOf, isStopped, swapIn } from './product.ts';
import { readOn, restored } from './reading.ts';
import type { Rule, World } from './rule.ts';
import { type Entry, KIND, NONE, type State, type Swap, type Worker, withWorker } from './state.ts';
import { landed, swapped, told } from './truth.ts';

/** The steps of a worker, or of an operator's command, which follows the same rule. */

export const CASES = ['replied', 'loss', 'pending', 'again', 'repair', 'ordered', 'forgotten', 'stopped'] as const;
export type Case = (typeof CASES)[number];
export type Observer = Watching<State, Case>;

export function viewOf(rule: Rule, world: World, { arrived }: State, { copy, head }: Worker): View {
  return { rule, world, copy, head, arrived };
}

/** A worker with no call under way. */
export function idle(rule: Rule, world: World, state: State, w: number, observer: Observer): void {
  const { copy } = at(state.workers, w);
  const isUnsure = world.hasRefusals;
  const know = (change: Partial<Worker>, name: string) => observer.step(withWorker(state, w, change), name, w);
  const isHole = copy.end > state.log.length || copy.end < state.low;
  if (isHole) know({ copy: restored(rule, world, state) }, 'meets a hole and restores');
  else if (copy.end < state.log.length) know({ copy: readOn(rule, copy, state.log) }, 'reads on');
  know({ copy: restored(rule, world, state), head: state.head, isUnsure }, 'starts anew');
  know({ head: state.head }, 'reads the head');
  reply(rule, world, state, w, observer);
  const isOlder = world.hasOlder && w === world.workers - 1;
  (isOlder ? actAsBefore : act)(rule, world, state, w, observer);
}

function reply(rule: Rule, world: World, state: State, w: number, observer: Observer): void {
  const view = viewOf(rule, world, state, at(state.workers, w));
  for (const [request, { key }] of world.requests.slice(0, state.arrived).entries()) {
    const first = at(view.copy.numbers, key);
    const isSwapped = rule.swaps !== 'after' || first < at(view.head.stated, at(world.keys, key).sequence).next;
    if (first > 0 && isSwapped) {
      observer.saw('replied');
      const truth = told(rule, world, state, key, first);
      if (truth !== state.truth) observer.step({ ...state, truth }, 'replies', w, key, first);
    } else if (isForgotten(view, request)) {
      observer.saw('forgotten');
      const isWhole = state.losses === world.losses && state.low === 0;
      if (isWhole) throw new Violation(`request ${request} is FORGOTTEN, though nothing is lost`);
    }
  }
}

function act(rule: Rule, world: World, state: State, w: number, observer: Observer): void {
  const view = viewOf(rule, world, state, at(state.workers, w));
  const due = dueNow(view);
  if (view.head.stated.some((_, s) => isStopped(view, s))) observer.saw('stopped');
  // The mistake of a command that goes by the log alone.
  if (!rule.swapsOrders || !rule.createAsksHead) orders(view, state, w, observer);
  if (due.kind === 'draft' || (due.kind === 'pending' && !rule.waitsForPending)) draft(view, state, w, observer);
  if (due.kind === 'draft') return;
  if (due.kind === 'pending') ordersBehind(view, state, w, observer);
  observer.saw(due.kind);
  if (due.kind === 'repair') observer.step(withWorker(state, w, { swap: due.swap }), 'swaps the head up', w);
  else send(world, state, w, due.entries, observer, `sends ${due.kind}`);
}

function draft(view: View, state: State, w: number, observer: Observer): void {
  const { rule, world } = view;
  const requests = unrefused(view, state);
  for (const some of shares(requests, world.draft)) decide(view, state, w, draftOf(view, some), NONE, observer);
  if (rule.swapsOrders && rule.createAsksHead) orders(view, state, w, observer);
  if (world.isRestated) repeat(view, state, w, observer);
  if (world.hasRefusals) refuse(view, state, w, requests, observer);
}

/** A command that leaves it to the worker to append what is pending: its order comes behind that, in the same head. */
function ordersBehind(view: View, state: State, w: number, observer: Observer): void {
  const pending = view.head.pending.filter((entry) => lacking(view, entry.sequence).includes(entry));
  if (pending.every(({ kind }) => kind === KIND.numbers)) orders(view, state, w, observer, pending);
}

/** An operator's command. */
function orders(view: View, state: State, w: number, observer: Observer, before: readonly Entry[] = []): void {
  const { world } = view;
  for (const [i, order] of world.orders.entries()) {
    for (let s = 0; s < world.sequences; s++) {
      const bit = i * world.sequences + s;
      const entry = (state.given >> bit) & 1 ? undefined : orderOf(view, order, s, before);
      if (entry === undefined) continue;
      observer.saw('ordered');
      decide(view, state, w, [...before, entry], bit, observer);
    }
  }
}

export function unrefused(view: View, { refused }: State): readonly number[] {
  return draftable(view).filter((request) => ((refused >> keyOf(view.world, request)) & 1) === 0);
}

/** The drafts that may be made: one request, or several, up to the limit of a transaction. */
function shares(requests: readonly number[], limit: number): readonly (readonly number[])[] {
  return requests.flatMap((request, i) => {
    if (limit === 1) return [[request]];
    return [[request], ...shares(requests.slice(i + 1), limit - 1).map((rest) => [request, ...rest])];
  });
}

function keyOf({ requests }: World, request: number): number {
  return at(requests, request).key;
}

/** A draft is swapped in; or, before there were heads, appended. `order`: NONE for requests. */
function decide(view: View, state: State, w: number, draft: readonly Entry[], order: number, observer: Observer): void {
  const { rule, world } = view;
  if (rule.repliesFrom === 'draft') tell(view, state, draft);
  if (rule.swaps === 'before' && (order === NONE || rule.swapsOrders)) {
    observer.step(withWorker(state, w, { swap: swapIn(view, draft, order) }), 'swaps in', w, ...draft.map(nameOf));
    return;
  }
  const given = order === NONE ? state.given : state.given | (1 << order);
  send(world, { ...state, given }, w, placedAll(view, draft), observer, 'appends unswapped');
}

const nameOf = ({ key, first }: Entry) => (key + 1) * 10 + first;

/** Before retention takes what shows a sequence, its statement is repeated. */
function repeat(view: View, state: State, w: number, observer: Observer): void {
  for (let s = 0; s < view.world.sequences; s++) {
    const { next } = at(view.copy.rows, s);
    if (next === 0 || isStopped(view, s)) continue;
    const entries = placedAll(view, [statementOf(view, s, definitionNow(view, s))]);
    send(view.world, state, w, entries, observer, 'states again');
  }
}

/** A refusal that lasts. Before it, a swap of its own that had no answer must have become impossible. */
function refuse(view: View, state: State, w: number, requests: readonly number[], observer: Observer): void {
  if (at(state.workers, w).isUnsure && view.rule.refusesAfterSwap) {
    observer.step(withWorker(state, w, { swap: fenceOf(view) }), 'swaps nothing in', w);
    return;
  }
  for (const request of requests) {
    const key = keyOf(view.world, request);
    observer.step({ ...state, refused: state.refused | (1 << key) }, 'refuses for good', w, key);
  }
}

/** A worker of the version before appends what its copy says, and knows no heads. */
function actAsBefore(rule: Rule, world: World, state: State, w: number, observer: Observer): void {
  const before = { ...rule, swaps: 'never' as const };
  const view = viewOf(before, world, state, at(state.workers, w));
  for (const some of shares(draftable(view), world.draft)) {
    send(world, state, w, placedAll(view, draftOf(view, some)), observer, 'appends unswapped');
  }
}

function send(world: World, state: State, w: number, append: readonly Entry[], observer: Observer, name: string): void {
  if (state.log.length + append.length > world.entries) return;
  observer.step(withWorker(state, w, { append }), name, w, ...append.map(nameOf));
}

/** The mistake of replying with what was drafted. */
function tell({ rule, world }: Pick<View, 'rule' | 'world'>, state: State, draft: readonly Entry[]): void {
  for (const { key, first } of draft) if (key !== NONE) told(rule, world, state, key, first);
}

/** The outcomes of a swap: lost, late, refused or done; answered or not. Without an answer the head is read again. */
export function swapping(rule: Rule, world: World, state: State, w: number, swap: Swap, observer: Observer): void {
  const given = withWorker(state, w, { swap: undefined });
  const believed = { ...swap.head, revision: swap.expected + 1 };
  const unanswered = (after: State, name: string) => {
    const head = rule.silence === 'success' ? believed : after.head;
    observer.step(withWorker(after, w, { head, isUnsure: world.hasRefusals }), name, w);
  };
  unanswered(given, 'gets no answer to a swap that is lost');
  if (state.lates.length < world.lates) {
    unanswered({ ...given, lates: [...state.lates, swap] }, 'gets no answer yet to a swap');
  }
  const { state: after, done } = swapped(rule, given, swap);
  if (done) {
    if (rule.repliesFrom === 'swap') tell({ rule, world }, after, swap.head.pending);
    observer.step(withWorker(after, w, { head: after.head, isUnsure: false }), 'has swapped', w);
    unanswered(after, 'gets no answer to a swap that arrived');
  } else if (rule.readsAfterRefusal) {
    observer.step(withWorker(given, w, { head: state.head }), 'learns that its swap is refused', w);
  } else {
    const again = { ...swap, expected: state.head.revision };
    observer.step(withWorker(state, w, { swap: again }), 'swaps once more, without a look', w);
  }
}

/** The outcomes of an append: lost or not, answered or not; and a copy of it may arrive at any time. */
export function appending(rule: Rule, world: World, state: State, w: number, observer: Observer): void {
  const { copy, append } = at(state.workers, w);
  const given = withWorker(state, w, { append: [] });
  const strays = [...state.strays, append];
  const mayStray = state.strays.length < world.strays;
  observer.step(given, 'gets no answer to an append that is lost', w);
  if (mayStray) observer.step({ ...given, strays }, 'gets no answer yet to an append', w);
  const after = landed(rule, world, given, append);
  if (after === undefined) return;
  observer.step(after, 'gets no answer to an append that arrived', w);
  if (mayStray) observer.step({ ...after, strays }, 'gets no answer to an append that will arrive again', w);
  if (copy.end !== state.log.length) return;
  observer.step(withWorker(after, w, { copy: readOn(rule, copy, after.log) }), 'has appended', w);
}

import { capped, expired, isReady, judge, lookUp, read, restored, type Verdict } from './knowledge.ts';
import type { Rule, World } from './rule.ts';
import { at, replaced } from './search.ts';
import {
  AGELESS,
  type Draft,
  FOR_EVER,
  type Index,
  type Log,
  MARKER,
  NONE,
  PARTITIONS,
  type Request,
  type State,
  type Stray,
  UNKNOWN,
  type Worker,
} from './state.ts';

/** A worker's verdict on a request that its index does not know. */
export interface Judgement {
  readonly state: State;
  readonly index: Index;
  readonly request: Request;
  readonly verdict: Verdict;
}

/** Receives each possible step, and each reply and verdict of a worker. */
export interface Observer {
  /** A step to another state; `which` identifies it among steps of the same name. */
  step(next: State, name: string, ...which: readonly number[]): void;
  /** A worker replies with the batch of an ID: `partition * 64 + offset` of its entry. */
  replied(state: State, id: number, batch: number): void;
  /** A verdict, for the counts that show that the checks had work. */
  judged(judgement: Judgement): void;
}

/** All steps from a state. */
export function moves(rule: Rule, world: World, state: State, observer: Observer): void {
  if (state.now < world.until) observer.step({ ...state, now: state.now + 1 }, 'tick');
  sendings(rule, world, state, observer);
  for (const partition of PARTITIONS) {
    trimming(world, state, partition, observer);
    for (const w of state.workers.keys()) {
      if (at(at(state.workers, w).drafts, partition) === undefined) idle(rule, world, state, w, partition, observer);
      else waiting(rule, world, state, w, partition, observer);
    }
  }
  for (const [s, stray] of state.strays.entries()) straying(world, state, s, stray, observer);
}

/** Records that arrive on the request topic. A forwarded record is a resend to the home partition. */
function sendings(rule: Rule, world: World, state: State, { step }: Observer): void {
  if (state.requests.flat().length === world.records) return;
  for (const id of world.homes.keys()) {
    const first = at(state.firsts, id);
    for (const partition of PARTITIONS) {
      for (const appendedAt of clocks(world, state)) {
        if (first === NONE) {
          const firsts = replaced(state.firsts, id, appendedAt);
          const sent = withRequest(rule, stamped(world, state, appendedAt), partition, {
            id,
            time: appendedAt,
            hasOrigin: false,
          });
          step({ ...sent, firsts }, 'first record of', id, partition, appendedAt);
          continue;
        }
        if (!isUsed(rule, world, partition)) continue;
        const isForward =
          partition === at(world.homes, id) && at(state.requests, 1 - partition).some((r) => r.id === id);
        for (const request of copies(rule, world, id, first, appendedAt, isForward)) {
          step(
            withRequest(rule, stamped(world, state, appendedAt), partition, request),
            'another record of',
            id,
            partition,
            request.time,
          );
        }
      }
    }
  }
}

/**
 * Whether records are sent to a partition: nothing is decided outside the home partition, so other ones add no cases.
 */
function isUsed(rule: Rule, { homes }: World, partition: number): boolean {
  return rule.elsewhere === 'decide' || homes.includes(partition);
}

/** The possible later records of a request. */
function copies(
  rule: Rule,
  world: World,
  id: number,
  first: number,
  appendedAt: number,
  isForward: boolean,
): Request[] {
  if (rule.timeOf === 'record') return [{ id, time: appendedAt, hasOrigin: true }];
  const claims = world.forged === id ? [first, appendedAt] : [first, first + world.excess];
  const timeOf = (claim: number) => {
    const isFuture = rule.futureForgotten && claim > appendedAt + rule.margin;
    return isFuture ? AGELESS : Math.min(claim, appendedAt);
  };
  const honest = claims.map((claim) => ({ id, time: timeOf(claim), hasOrigin: true }));
  if (rule.resend === 'origin') return honest;
  const nameless = { id, time: appendedAt, hasOrigin: false };
  return isForward ? [...honest, nameless] : [nameless];
}

/** If offsets are not checked, the order and number of equal records make no difference. */
function withRequest({ byOffset }: Rule, state: State, partition: number, request: Request): State {
  const before = at(state.requests, partition);
  if (byOffset) return { ...state, requests: replaced(state.requests, partition, [...before, request]) };
  const plain = { ...request, hasOrigin: true };
  if (before.some(({ id, time }) => id === plain.id && time === plain.time)) return state;
  const sorted = [...before, plain].sort((a, b) => a.id - b.id || a.time - b.time);
  return { ...state, requests: replaced(state.requests, partition, sorted) };
}

function trimming(world: World, state: State, partition: number, { step }: Observer): void {
  const log = at(state.logs, partition);
  if (log.low === log.entries.length) return;
  const { appendedAt } = at(log.entries, log.low);
  if (world.retention !== undefined && appendedAt + world.retention > state.now + world.skew) return;
  step({ ...state, logs: replaced(state.logs, partition, { ...log, low: log.low + 1 }) }, 'trim', partition);
}

/** What a worker can do with a partition on which it awaits nothing. */
function idle(rule: Rule, world: World, state: State, w: number, partition: number, observer: Observer): void {
  const worker = at(state.workers, w);
  const index = at(worker.indexes, partition);
  const log = at(state.logs, partition);
  const know = (known: Index, name: string) =>
    observer.step(withWorker(state, w, knowing(worker, partition, known)), name, w, partition);
  if (index.end < log.low) know(restored(rule, log), 'meets a hole and restores');
  else if (index.end < log.entries.length) know(read(rule, index, log.entries), 'reads on');
  know(restored(rule, log), 'loses its index and restores');
  if (index.origin < log.low && log.low <= index.end && isReady(index)) know(expired(rule, index, log), 'lets go');
  if (log.entries.length < world.entries && isUsed(rule, world, partition))
    mark(rule, world, state, w, partition, observer);
  if (world.wrongBy !== undefined && index.since > state.now) know(capped(index, state.now), 'trusts its clock');
  if (!isReady(index)) return;
  at(state.requests, partition).forEach((request, offset) => {
    if (rule.elsewhere === 'forward' && at(world.homes, request.id) !== partition) return;
    decide(rule, world, state, w, partition, request, offset, observer);
  });
}

function decide(
  rule: Rule,
  world: World,
  state: State,
  w: number,
  partition: number,
  request: Request,
  requestOffset: number,
  observer: Observer,
): void {
  const index = at(at(state.workers, w).indexes, partition);
  const log = at(state.logs, partition);
  const found = lookUp(rule, index, log.entries, request.id);
  if (found === UNKNOWN) return;
  if (found !== NONE) {
    observer.replied(state, request.id, partition * 64 + found);
    return;
  }
  const verdict = judge(rule, index, request, requestOffset, state.now);
  observer.judged({ state, index, request, verdict });
  if (verdict !== 'serve' || log.entries.length === world.entries) return;
  const offset = rule.byOffset ? requestOffset : NONE;
  const sentAt = world.wrongBy === undefined ? 0 : state.now;
  const draft = { key: request.id, end: index.end, through: index.through, requestOffset: offset, sentAt };
  observer.step(sending(state, w, partition, draft), 'sends an entry', w, partition, request.id, requestOffset);
}

function mark(rule: Rule, world: World, state: State, w: number, partition: number, observer: Observer): void {
  const { end, horizon, through } = at(at(state.workers, w).indexes, partition);
  if (saysNothing(rule)) {
    const draft = { key: MARKER, end: 0, through: NONE, requestOffset: NONE, sentAt: 0 };
    arrive(rule, world, state, w, partition, draft, observer);
    return;
  }
  const asked = horizon === UNKNOWN ? at(state.requests, partition).length - 1 : NONE;
  const draft = {
    key: MARKER,
    end,
    through: rule.byOffset ? Math.max(through, asked) : NONE,
    requestOffset: NONE,
    sentAt: 0,
  };
  observer.step(sending(state, w, partition, draft), 'sends a marker', w, partition);
}

/** Whether the content of a marker does not matter, so that a late marker equals one sent at its arrival. */
function saysNothing({ since, byOffset }: Rule): boolean {
  return since === 'oldest' && !byOffset;
}

/** The outcomes of an append: answered or not, and a second copy of it may arrive at any time. */
function waiting(rule: Rule, world: World, state: State, w: number, partition: number, observer: Observer): void {
  const worker = at(state.workers, w);
  const draft = at(worker.drafts, partition) as Draft;
  const given = withWorker(state, w, { ...worker, drafts: replaced(worker.drafts, partition, undefined) });
  const hasRoom = state.strays.length < world.strays;
  const strays = [...state.strays, { partition, draft }];
  observer.step(given, 'gets no answer to what is lost', w, partition);
  if (hasRoom) observer.step({ ...given, strays }, 'gets no answer yet', w, partition);
  arrive(rule, world, given, w, partition, draft, observer);
  if (hasRoom) arrive(rule, world, { ...given, strays }, w, partition, draft, observer);
}

/** An append of a worker reaches the log, and its answer reaches the worker or is lost. */
function arrive(
  rule: Rule,
  world: World,
  state: State,
  w: number,
  partition: number,
  draft: Draft,
  observer: Observer,
): void {
  if (at(state.logs, partition).entries.length === world.entries) return;
  for (const appendedAt of clocks(world, state)) {
    const appended = append(stamped(world, state, appendedAt), partition, draft, appendedAt);
    observer.step(appended, 'gets no answer to what arrived', w, partition, draft.key, appendedAt);
    const settled = settle(rule, appended, w, partition, draft, observer);
    observer.step(settled, 'settles', w, partition, draft.key, appendedAt);
  }
}

function settle(rule: Rule, state: State, w: number, partition: number, draft: Draft, { replied }: Observer): State {
  const worker = at(state.workers, w);
  const log = at(state.logs, partition);
  const before = at(worker.indexes, partition);
  if (before.end < log.low) return withWorker(state, w, knowing(worker, partition, restored(rule, log)));
  const index = read(rule, before, log.entries);
  const found = lookUp(rule, index, log.entries, draft.key);
  if (found >= 0) replied(state, draft.key, partition * 64 + found);
  return withWorker(state, w, knowing(worker, partition, index));
}

function straying(world: World, state: State, s: number, { partition, draft }: Stray, { step }: Observer): void {
  const left = { ...state, strays: state.strays.filter((_, i) => i !== s) };
  step(left, 'loses what was on its way to', partition);
  if (at(state.logs, partition).entries.length === world.entries) return;
  for (const appendedAt of clocks(world, state)) {
    step(
      append(stamped(world, left, appendedAt), partition, draft, appendedAt),
      'late arrival at',
      partition,
      appendedAt,
    );
  }
}

function append(state: State, partition: number, draft: Draft, appendedAt: number): State {
  const log = at(state.logs, partition);
  const entries = [...log.entries, { ...draft, appendedAt }];
  const logs = replaced(state.logs, partition, { ...log, entries } satisfies Log);
  if (draft.key === MARKER || at(state.batches, draft.key) !== NONE) return { ...state, logs };
  return { ...state, logs, batches: replaced(state.batches, draft.key, partition * 64 + log.entries.length) };
}

/**
 * The times that the leader's clock may show: leadership moves between a correct and a fast clock, and one that is far
 * off once.
 */
function clocks({ skew, wrongBy }: World, { now, wasWrong }: State): readonly number[] {
  const times = skew === 0 ? [now] : [now, now + skew];
  return wrongBy === undefined || wasWrong ? times : [...times, now + wrongBy];
}

/** The state after an append at this time. */
function stamped(world: World, state: State, appendedAt: number): State {
  const { wrongBy } = world;
  return wrongBy !== undefined && appendedAt === state.now + wrongBy ? { ...state, wasWrong: true } : state;
}

function withWorker(state: State, w: number, worker: Worker): State {
  return { ...state, workers: replaced(state.workers, w, worker) };
}

function knowing(worker: Worker, partition: number, index: Index): Worker {
  return { ...worker, indexes: replaced(worker.indexes, partition, index) };
}

function sending(state: State, w: number, partition: number, draft: Draft): State {
  const worker = at(state.workers, w);
  return withWorker(state, w, { ...worker, drafts: replaced(worker.drafts, partition, draft) });
}

/** Whether knowledge has a beginning. */
export function hasBeginning({ since }: Index): boolean {
  return since !== FOR_EVER;
}

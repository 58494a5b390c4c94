import { at, type Observer as ObserverOf } from '../search.ts';
import {
  canShare,
  draftsOf,
  isReady,
  judge,
  markerOf,
  REFUSALS,
  type Refusal,
  renewalOf,
  statementsOf,
} from './decide.ts';
import { after, expired, lookUp, numberAt, read, restored, wiped } from './knowledge.ts';
import type { Rule, World } from './rule.ts';
import { type Entry, type Index, KIND, keyOf, NONE, type State, withRow, withWorker } from './state.ts';
import { landed, tell, tellConflict } from './truth.ts';

/** The steps of one worker. */

export const CASES = [
  'replied',
  /** Of these, by an index that does not reach back to the beginning. */
  'repliedAfterLoss',
  /** Of these, from a renewal. */
  'repliedFromRenewal',
  'conflict',
  /** An own record of numbers lay elsewhere than it was written for. */
  'void',
  /** Numbers are drafted by an index that does not reach back to the beginning. */
  'draftedAfterLoss',
  /** FORGOTTEN, though it was never decided, by an index that reaches back to the beginning. */
  'forgottenInVain',
  ...REFUSALS,
] as const;
export type Case = (typeof CASES)[number];
export type Observer = ObserverOf<State, Case>;

/** What a worker can do while it awaits nothing. */
export function idle(rule: Rule, world: World, state: State, w: number, observer: Observer): void {
  const { index, saved } = at(state.workers, w);
  const { low, entries } = state;
  const know = (known: Index, name: string) => observer.step(withWorker(state, w, { index: known }), name, w);
  if (index.end < low) know(wiped(rule, world, index, state), 'meets a hole and restores');
  else if (index.end < entries.length) know(read(rule, world, index, entries), 'reads on');
  if (world.losesIndexes) {
    const lost = { index: restored(rule, world, state), isMarkerDue: world.hasRefusals };
    observer.step(withWorker(state, w, lost), 'loses its index and restores', w);
  }
  if (world.hasOlder) {
    observer.step(withWorker(state, w, { saved: index }), 'saves its index', w);
    const older = saved !== undefined && !rule.savesRowWithEnd ? { ...index, rows: saved.rows } : saved;
    if (older !== undefined && older.end >= low) know(older, 'starts with an older index');
  }
  if (index.end < low) return;
  if (world.isTrimmed && index.origin < low && isReady(index)) know(expired(index, state), 'lets go');
  mark(rule, world, state, w, observer);
  if (isReady(index)) decide(rule, world, state, w, observer);
}

function mark(rule: Rule, world: World, state: State, w: number, observer: Observer): void {
  const { index, isMarkerDue } = at(state.workers, w);
  if (!world.isStated && !world.hasRefusals) return;
  if (!isReady(index) || isMarkerDue) {
    send(rule, world, state, w, markerOf(world, state, index), observer, 'sends a marker');
  } else if (world.isStated) {
    for (const statement of statementsOf(index)) {
      send(rule, world, state, w, [statement], observer, 'sends a statement', statement.sequence);
    }
  }
}

function decide(rule: Rule, world: World, state: State, w: number, observer: Observer): void {
  const { index, isMarkerDue } = at(state.workers, w);
  const drafts: number[] = [];
  for (let request = 0; request < state.arrived; request++) {
    const verdict = judge(rule, world, state, index, request);
    if (typeof verdict === 'number') {
      answer(rule, world, state, w, request, verdict, observer);
      if (isEqual(world, state, request, verdict) || !rule.conflictTakes) continue;
    } else if (verdict !== 'draft') {
      if (verdict !== 'wait') sawRefusal(world, state, index, request, verdict, observer);
      continue;
    }
    if (isMarkerDue) continue;
    const key = keyOf(world, request);
    if (world.hasRefusals && state.refused[key] === 1) continue;
    if (world.hasRefusals) {
      const refused = state.refused.map((flag, other) => (other === key ? 1 : flag));
      observer.step({ ...state, refused }, 'refuses', w, request);
    }
    drafts.push(request);
  }
  for (const request of drafts) draft(rule, world, state, w, request, drafts, observer);
}

/** Sends an entry for a request, alone or with one for a later request. */
function draft(
  rule: Rule,
  world: World,
  state: State,
  w: number,
  request: number,
  others: readonly number[],
  observer: Observer,
): void {
  const { index } = at(state.workers, w);
  if (index.origin > 0) observer.saw('draftedAfterLoss');
  const alone = draftsOf(rule, world, state, index, [request]);
  send(rule, world, state, w, alone, observer, 'sends an entry', request);
  if (rule.refusalTakes) {
    const burnt = alone.map((entry) => ({ ...entry, first: entry.first + entry.step }));
    send(rule, world, state, w, burnt, observer, 'refuses one and sends an entry', request);
  }
  if (!world.hasPairs) return;
  for (const second of others) {
    if (second <= request) continue;
    const both = draftsOf(rule, world, state, index, [request, second]);
    if (!canShare(rule, world, index, both)) continue;
    send(rule, world, state, w, both, observer, 'sends entries', request, second);
  }
}

function isEqual({ requests }: World, { entries }: State, request: number, offset: number): boolean {
  return at(requests, request).count === at(requests, at(entries, offset).request).count;
}

function sawRefusal(
  world: World,
  { truth }: State,
  { origin }: Index,
  request: number,
  refusal: Refusal,
  { saw }: Observer,
): void {
  saw(refusal);
  const wasDecided = at(truth.decisions, keyOf(world, request)).request !== NONE;
  if (refusal === 'FORGOTTEN' && origin === 0 && !wasDecided) saw('forgottenInVain');
}

/** A known request gets its numbers, or CONFLICT; its decision may be renewed. */
function answer(
  rule: Rule,
  world: World,
  state: State,
  w: number,
  request: number,
  offset: number,
  observer: Observer,
): void {
  const { index } = at(state.workers, w);
  reply(rule, world, state, index, request, offset, observer);
  const { kind } = at(state.entries, offset);
  if (!world.isRenewed || kind === KIND.ids || !isEqual(world, state, request, offset)) return;
  const renewal = renewalOf(rule, state, index, request, offset);
  send(rule, world, state, w, [renewal], observer, 'sends a renewal', request);
}

/** Checks a reply to a known request. */
export function reply(
  rule: Rule,
  world: World,
  state: State,
  index: Index,
  request: number,
  offset: number,
  { saw }: Observer,
): void {
  const { kind } = at(state.entries, offset);
  if (kind !== KIND.ids && !isEqual(world, state, request, offset)) {
    saw('conflict');
    tellConflict(world, state, request);
    return;
  }
  saw('replied');
  if (index.origin > 0) saw('repliedAfterLoss');
  if (kind === KIND.renewal) saw('repliedFromRenewal');
  tell(world, state, request, numberAt(rule, index, state.entries, offset));
}

function send(
  rule: Rule,
  world: World,
  state: State,
  w: number,
  append: readonly Entry[],
  { step }: Observer,
  name: string,
  ...which: readonly number[]
): void {
  if (state.entries.length + append.length > world.entries) return;
  const sent = withWorker(state, w, { append });
  const last = append.findLast(({ kind }) => kind === KIND.numbers);
  if (rule.waitsToCount || last === undefined) {
    step(sent, name, w, ...which);
    return;
  }
  const { index } = at(state.workers, w);
  const row = { ...at(index.rows, last.sequence), next: after(world, last) };
  step(withWorker(sent, w, { index: withRow(index, last.sequence, row) }), name, w, ...which);
}

/** The outcomes of an append: lost or not, answered or not; and a copy of it may arrive at any time. */
export function waiting(rule: Rule, world: World, state: State, w: number, observer: Observer): void {
  const { append } = at(state.workers, w);
  const silent = { append: [], isMarkerDue: world.hasRefusals && rule.marksAfterSilence };
  const given = withWorker(state, w, silent);
  const hasRoom = (length: number) => state.strays.length < world.strays && length + append.length <= world.entries;
  const strays = [...state.strays, append];
  if (rule.repliesFrom === 'append') tellOwn(world, state, append);
  observer.step(given, 'gets no answer to what is lost', w);
  if (hasRoom(state.entries.length)) observer.step({ ...given, strays }, 'gets no answer yet', w);
  if (state.entries.length + append.length > world.entries) return;
  for (const arrived of landed(rule, world, given, append)) {
    const variants = hasRoom(arrived.entries.length) ? [arrived, { ...arrived, strays }] : [arrived];
    for (const variant of variants) {
      observer.step(variant, 'gets no answer to what arrived', w);
      settle(rule, world, variant, w, append, observer);
    }
  }
}

function settle(rule: Rule, world: World, state: State, w: number, append: readonly Entry[], observer: Observer): void {
  const before = at(state.workers, w).index;
  const base = state.entries.length - append.length;
  if (before.end < state.low) {
    observer.step(withWorker(state, w, { index: wiped(rule, world, before, state) }), 'settles and restores', w);
    return;
  }
  const index = read(rule, world, before, state.entries, base);
  if (rule.repliesFrom !== 'log') tellOwn(world, state, append);
  const settled = withWorker(state, w, { index, isMarkerDue: false });
  for (const { kind, request } of append) {
    if (kind !== KIND.numbers && kind !== KIND.ids) continue;
    const verdict = judge(rule, world, settled, index, request);
    if (typeof verdict === 'number') reply(rule, world, settled, index, request, verdict, observer);
    if (kind === KIND.numbers && lookUp(rule, world, index, settled, request) === NONE) observer.saw('void');
  }
  observer.step(settled, 'settles', w);
}

/** The mistake of replying with what was sent. */
function tellOwn(world: World, state: State, append: readonly Entry[]): void {
  for (const { kind, request, first } of append) if (kind === KIND.numbers) tell(world, state, request, first);
}

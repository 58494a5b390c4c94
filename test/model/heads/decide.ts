import { at } from '../search.ts';
import type { Order, Rule, World } from './rule.ts';
import {
  BLANK,
  type Copy,
  type Definition,
  definitionOf,
  type Entry,
  type Head,
  KIND,
  NONE,
  newerOf,
  type Row,
  type Stated,
  type Swap,
} from './state.ts';

/** What a worker does next with its copy of the log and the head that it knows, in one synchronous step. */

/** Everything that the decision depends on. */
export interface View {
  readonly rule: Rule;
  readonly world: World;
  readonly copy: Copy;
  readonly head: Head;
  /** How many records the request topic has. */
  readonly arrived: number;
}

export type Due =
  /** Records for the log: a loss (a), what is pending (b), or a definition that the log does not show. */
  | { readonly kind: 'loss' | 'pending' | 'again'; readonly entries: readonly Entry[] }
  /** The log is ahead of the head, which is swapped up. */
  | { readonly kind: 'repair'; readonly swap: Swap }
  /** (c): whatever is unknown may be drafted. */
  | { readonly kind: 'draft' };

export function dueNow(view: View): Due {
  const { rule, world } = view;
  const pending: Entry[] = [];
  for (let s = 0; s < world.sequences; s++) {
    if (hasLost(view, s)) return { kind: 'loss', entries: placedAll(view, [lossOf(view, s)]) };
    pending.push(...lacking(view, s).filter(() => isNext(view, s)));
  }
  if (pending.length > 0) return { kind: 'pending', entries: numbered(view, pending) };
  if (rule.swaps === 'never') return { kind: 'draft' };
  for (let s = 0; s < world.sequences; s++) {
    const missing = unshown(view, s);
    if (missing) return { kind: 'again', entries: placedAll(view, [statementOf(view, s, missing)]) };
  }
  const behind = rule.repairs && view.head.stated.some((_, s) => isBehind(view, s) && !isStopped(view, s));
  return behind ? { kind: 'repair', swap: repairOf(view, false) } : { kind: 'draft' };
}

const rowOf = ({ copy }: View, s: number): Row => at(copy.rows, s);
const statedOf = ({ head }: View, s: number): Stated => at(head.stated, s);
const pendingOf = ({ head }: View, s: number) => head.pending.filter(({ sequence }) => sequence === s);

/** The number up to which the log must show everything: what is behind it may still have to be appended. */
function firstPending(view: View, s: number): number {
  return pendingOf(view, s)[0]?.first ?? statedOf(view, s).next;
}

/** (a): the log lost something of the sequence. */
function hasLost(view: View, s: number): boolean {
  const { next, gap } = rowOf(view, s);
  const { swaps, statesLoss, compareWith } = view.rule;
  if (swaps === 'never' || statesLoss === 'never' || compareWith === 'nothing') return false;
  if (!isDefined(view, s)) return false;
  if (gap > 0) return true;
  if (compareWith === 'first pending') return next < firstPending(view, s);
  return lacking(view, s).length === 0 && next < statedOf(view, s).next;
}

/** Up to where a loss forgets what it does not know. */
export function horizonOf({ rule, arrived, head }: View): number {
  const { through } = head;
  const end = arrived - 1 - rule.endLag;
  return { end, head: through, nothing: NONE, 'end and head': Math.max(end, through) }[rule.horizonFrom];
}

function lossOf(view: View, s: number): Entry {
  const { rule } = view;
  const row = rowOf(view, s);
  const { next } = statedOf(view, s);
  const from = Math.max(row.next, rule.statesLoss === 'next' ? next : firstPending(view, s));
  const order = pendingOf(view, s).find(({ kind }) => kind === KIND.order);
  const definition = order === undefined ? newerOf(row, statedOf(view, s)) : definitionBefore(row, order);
  return {
    ...BLANK,
    kind: KIND.loss,
    sequence: s,
    first: from,
    next: from,
    ...definition,
    through: horizonOf(view),
  };
}

/** Where the log shows none, that of the order stands in, until the order itself follows. */
function definitionBefore(row: Row, order: Entry): Definition {
  return row.edition === NONE ? { ...definitionOf(order), edition: 0 } : definitionOf(row);
}

/** The pending records that the copy does not show. Of what was trimmed since, the key is FORGOTTEN. */
export function lacking(view: View, s: number): readonly Entry[] {
  const { copy } = view;
  const row = rowOf(view, s);
  return pendingOf(view, s).filter(({ kind, key, first, next, edition }) => {
    if (kind === KIND.order) return row.edition < edition;
    if (at(copy.numbers, key) === first) return false;
    return next > row.next || !isKeyForgotten(view, key);
  });
}

/** (b): whether they are exactly what comes next. */
function isNext(view: View, s: number): boolean {
  const missing = lacking(view, s);
  const row = rowOf(view, s);
  const isUnknown = missing.every(({ kind, key, edition }) => {
    if (kind === KIND.order) return true;
    return at(view.copy.numbers, key) === 0 && (row.edition <= edition || !view.rule.checksEdition);
  });
  return isUnknown && (!view.rule.checksPending || missing[0]?.first === row.next);
}

/** Whether the log contradicts what is pending. Only etcd's memory can be wrong then. */
export function isStopped(view: View, s: number): boolean {
  const isWrong = lacking(view, s).length > 0 && !isNext(view, s) && !hasLost(view, s);
  return isWrong && view.rule.contradiction === 'stops';
}

/** The definition that the log does not show, though no decision is missing. */
function unshown(view: View, s: number): Definition | undefined {
  const row = rowOf(view, s);
  const stated = statedOf(view, s);
  const isOrdered = pendingOf(view, s).some(({ kind }) => kind === KIND.order);
  const isOlder = row.next > 0 && stated.next > 0 && row.edition < stated.edition;
  const isUnshown = isOlder && !isOrdered && view.rule.statesDefinition;
  return isUnshown ? definitionOf(stated) : undefined;
}

/** States a sequence once more as it is known, before retention takes what shows it. */
export function statementOf(view: View, s: number, definition: Definition): Entry {
  const { next } = rowOf(view, s);
  return { ...BLANK, kind: KIND.again, sequence: s, first: next, next, ...definition, through: view.copy.through };
}

/** Whether log or head show what the sequence is. */
function isDefined(view: View, s: number): boolean {
  return rowOf(view, s).edition !== NONE || statedOf(view, s).next > 0;
}

function isBehind(view: View, s: number): boolean {
  if (!isDefined(view, s)) return false;
  const row = rowOf(view, s);
  const stated = statedOf(view, s);
  return row.next > stated.next || (row.next > 0 && row.edition > stated.edition);
}

/**
 * The head that says what the log says. A worker leaves what the log contradicts as it is, with its sequence; an
 * operator lets the log be right about exactly that.
 */
export function repairOf(view: View, isOrdered: boolean): Swap {
  const { head } = view;
  const stated = head.stated.map((known, s): Stated => {
    const row = rowOf(view, s);
    if (row.next === 0 || !isDefined(view, s) || (!isOrdered && isStopped(view, s))) return known;
    if (isStopped(view, s)) return { next: row.next, ...definitionOf(row) };
    return { next: Math.max(row.next, known.next), ...definitionNow(view, s) };
  });
  const kept = head.pending.filter(({ sequence }) => isStopped(view, sequence) !== isOrdered);
  return swapOf(view, stated, kept, NONE);
}

function stoppedOf(view: View): readonly Entry[] {
  return view.head.pending.filter(({ sequence }) => isStopped(view, sequence));
}

/** The newest definition that log or head know. One of the version before becomes the first edition. */
export function definitionNow(view: View, s: number): Definition {
  const row = rowOf(view, s);
  const newest = view.rule.statesDefinition ? newerOf(row, statedOf(view, s)) : definitionOf(row);
  return newest.edition === 0 ? { ...newest, edition: 1 } : newest;
}

function swapOf(view: View, stated: readonly Stated[], pending: readonly Entry[], order: number): Swap {
  const { head, copy } = view;
  const through = Math.max(head.through, copy.through, ...pending.map(({ sent }) => sent));
  return { expected: head.revision, head: { revision: head.revision + 1, pending, stated, through }, order };
}

/** A swap that changes nothing but the revision: a swap of before that is still under way then fails. */
export function fenceOf(view: View): Swap {
  return swapOf(view, view.head.stated, view.head.pending, NONE);
}

/** Whether the first sending of a key is FORGOTTEN. */
export function isKeyForgotten(view: View, key: number): boolean {
  return isForgotten(
    view,
    view.world.requests.findIndex((request) => request.key === key),
  );
}

export function isForgotten(view: View, request: number): boolean {
  const { key, since } = at(view.world.requests, request);
  return at(view.copy.numbers, key) === 0 && since <= view.copy.horizon && view.rule.horizonFrom !== 'nothing';
}

/** The requests that may be drafted: for each key the first one that is not FORGOTTEN. */
export function draftable(view: View): readonly number[] {
  const requests: number[] = [];
  const seen = new Set<number>();
  for (let request = 0; request < view.arrived; request++) {
    const { key } = at(view.world.requests, request);
    const { sequence } = at(view.world.keys, key);
    const isKnown = at(view.copy.numbers, key) !== 0 || isForgotten(view, request);
    if (isKnown || seen.has(key) || !isServed(view, sequence)) continue;
    seen.add(key);
    requests.push(request);
  }
  return requests;
}

/** Whether a sequence exists, is open, and is not stopped. */
function isServed(view: View, s: number): boolean {
  return rowOf(view, s).next > 0 && isDefined(view, s) && !isStopped(view, s) && !definitionNow(view, s).isClosed;
}

/** (c): these requests get the next numbers. */
export function draftOf(view: View, requests: readonly number[]): readonly Entry[] {
  const { rule, world } = view;
  const stated = view.head.stated.map((known, s) => {
    const next = rule.draftsFrom === 'head' ? Math.max(1, known.next) : rowOf(view, s).next;
    return { ...known, next };
  });
  const drafts = requests.map((request): Entry => {
    const { key, since: sent } = at(world.requests, request);
    const { sequence, count } = at(world.keys, key);
    const { next: first } = at(stated, sequence);
    const definition = definitionNow(view, sequence);
    const next = first + count * (rule.countsBySteps ? definition.step : 1);
    stated[sequence] = { ...at(stated, sequence), next };
    return { ...BLANK, kind: KIND.numbers, sequence, key, first, next, ...definition, sent };
  });
  return drafts;
}

/** The statement that carries out an order behind pending numbers, or undefined where it has nothing to do. */
export function orderOf(view: View, order: Order, s: number, before: readonly Entry[]): Entry | undefined {
  const row = rowOf(view, s);
  const next = before.findLast(({ sequence }) => sequence === s)?.next ?? row.next;
  const isMissing = row.edition === NONE && (statedOf(view, s).next === 0 || !view.rule.createAsksHead);
  if (isMissing !== (order === 'create') || isStopped(view, s)) return undefined;
  const now = definitionNow(view, s);
  if (now.isClosed && !isMissing) return undefined;
  const said = { ...BLANK, kind: KIND.order, sequence: s, first: next, next, ...now };
  const change = { ...said, edition: isMissing ? 1 : now.edition + 1 };
  if (order === 'create') return { ...change, next: Math.max(1, next), step: 1, isClosed: false };
  if (order === 'restart') return { ...change, next: next + 2 };
  return order === 'close' ? { ...change, isClosed: true } : { ...change, step: 2 };
}

/** The swap of a draft: what it decides is pending until the log shows it. */
export function swapIn(view: View, draft: readonly Entry[], order: number): Swap {
  const stated = [...view.head.stated];
  for (const entry of draft) {
    stated[entry.sequence] = { next: entry.next, ...definitionOf(entry) };
  }
  return swapOf(view, stated, view.rule.keepsPending ? [...stoppedOf(view), ...draft] : [], order);
}

/** Records as they are appended at the end of the copy. */
export function placedAll(view: View, entries: readonly Entry[]): readonly Entry[] {
  return entries.map((entry, i) => ({ ...entry, at: view.copy.end + i, through: throughOf(view, entry) }));
}

function throughOf({ copy, head }: View, { kind, first, through }: Entry): number {
  if (kind === KIND.numbers) return copy.through;
  // The order that creates a sequence hides nothing.
  if (kind === KIND.order) return first === 0 ? NONE : head.through;
  return through;
}

/** What is pending, with its own numbers, whoever appends it. */
function numbered(view: View, pending: readonly Entry[]): readonly Entry[] {
  if (view.rule.pendingNumbers === 'kept') return placedAll(view, pending);
  const next = view.copy.rows.map((row) => row.next);
  const fresh = pending.map((entry): Entry => {
    const first = at(next, entry.sequence);
    next[entry.sequence] = first + entry.next - entry.first;
    return { ...entry, first, next: at(next, entry.sequence) };
  });
  return placedAll(view, fresh);
}

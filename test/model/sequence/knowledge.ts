import { at } from '../search.ts';
import { chainedCounts, isSure, readTotal, withLast } from './rejected.ts';
import type { Rule, World } from './rule.ts';
import {
  type Entry,
  type Index,
  isKnownKey,
  KIND,
  NO_ROW,
  NONE,
  type Row,
  type State,
  UNKNOWN,
  withRow,
} from './state.ts';

/** A worker's index of the ledger partition, and how what it reads changes it. */

export type Log = Pick<State, 'low' | 'entries'>;

/** The index after a restore from the log. */
export function restored(rule: Rule, world: World, log: Log): Index {
  const isWhole = log.low === 0;
  const row = rule.withoutRow === 'starts at 1' ? { ...NO_ROW, next: 1 } : NO_ROW;
  const index: Index = {
    origin: log.low,
    end: log.low,
    horizon: isWhole || !rule.marksBeforeDeciding ? NONE : UNKNOWN,
    through: NONE,
    indexed: 0,
    rows: Array<Row>(world.sequences).fill(row),
    totals: [],
  };
  return read(rule, world, index, log.entries);
}

/**
 * The index after a restore by a worker that knew something: the log starts above its end. It keeps the highest request
 * offset.
 */
export function wiped(rule: Rule, world: World, { through }: Index, log: Log): Index {
  const empty = restored(rule, world, { low: log.low, entries: [] });
  const horizon = log.low === 0 ? through : empty.horizon;
  return read(rule, world, { ...empty, horizon, through }, log.entries);
}

/** The index after reading to the end of the log. `own`: the records from here on are the reader's own append. */
export function read(rule: Rule, world: World, before: Index, entries: readonly Entry[], own = NONE): Index {
  let index = before;
  for (let offset = before.end; offset < entries.length; offset++) {
    const entry = at(entries, offset);
    const isAnchor = index.horizon === UNKNOWN && entry.end === offset;
    index = {
      ...index,
      end: offset + 1,
      horizon: isAnchor ? entry.through : index.horizon,
      through: Math.max(index.through, entry.through),
    };
    if (entry.kind === KIND.marker) continue;
    if (rule.counting === 'total') index = readTotal(rule, world, index, entries, offset);
    else index = readOne(rule, world, index, entries, offset, !rule.ownMayBeVoid && own !== NONE && offset >= own);
  }
  return index;
}

function readOne(
  rule: Rule,
  world: World,
  index: Index,
  entries: readonly Entry[],
  offset: number,
  isTaken: boolean,
): Index {
  const entry = at(entries, offset);
  if (entry.kind === KIND.ids) return found(index, entry, offset);
  const row = at(index.rows, entry.sequence);
  if (entry.kind === KIND.renewal) {
    const raised = { ...row, next: row.next + at(world.requests, entry.request).count * row.step };
    const known = found(index, entry, offset);
    return rule.renewals === 'raise' && row.next !== UNKNOWN ? withRow(known, entry.sequence, raised) : known;
  }
  const counts = isTaken || countsFor(rule, world, index, entries, offset);
  if (entry.kind !== KIND.numbers)
    return counts ? withRow(index, entry.sequence, stated(rule, row, entry, offset)) : index;
  const isDoubtful = rule.counting === 'chained' && row.last === UNKNOWN;
  const known = counts || isDoubtful || !rule.leavesOutVoid ? found(index, entry, offset) : index;
  if (counts) return withRow(known, entry.sequence, taken(rule, world, row, entry, offset));
  if (rule.rowFrom !== 'void' || row.next !== UNKNOWN) return known;
  return withRow(known, entry.sequence, { ...row, next: after(world, entry) });
}

/** Whether numbers or a statement count, as far as this reader knows. */
function countsFor(rule: Rule, world: World, index: Index, entries: readonly Entry[], offset: number): boolean {
  const entry = at(entries, offset);
  const row = at(index.rows, entry.sequence);
  const isPlaced = entry.at === offset && entry.isTimely;
  if (isAnywhere(rule, entry)) return true;
  if (rule.counting === 'chained') return chainedCounts(row, entry, offset);
  if (entry.kind !== KIND.numbers) return isPlaced;
  if (rule.counting === 'first of its key') return !isKnownKey(world, index, entries, offset);
  if (rule.counting === 'slot' && entry.at !== offset) return entry.first === row.next;
  return isPlaced;
}

/** Whether it is a statement that counts wherever it lies. */
export function isAnywhere({ statements }: Rule, { kind }: Entry): boolean {
  if (kind === KIND.statement) return statements === 'renewed anywhere';
  return kind === KIND.order && statements === 'operators anywhere';
}

/** The row behind a statement that counts. */
function stated(rule: Rule, row: Row, entry: Entry, offset: number): Row {
  const { first, step, max, isClosed } = entry;
  return { ...withLast(rule, row, entry, offset), next: Math.max(row.next, first), step, max, isClosed };
}

/** The row behind numbers that count. */
function taken(rule: Rule, world: World, row: Row, entry: Entry, offset: number): Row {
  const known = withLast(rule, row, entry, offset);
  const next = after(world, entry);
  if (row.next === UNKNOWN) return rule.rowFrom === 'statements' ? known : { ...known, next, step: entry.step };
  return { ...known, next: Math.max(row.next, next) };
}

/** The number after those of a record. */
export function after({ requests }: World, { request, first, step }: Entry): number {
  return first + at(requests, request).count * step;
}

function found(index: Index, { request }: Entry, offset: number): Index {
  return { ...index, indexed: index.indexed | (1 << offset), through: Math.max(index.through, request) };
}

/** The index after expiry of the trimmed records. */
export function expired(index: Index, { low, entries }: Log): Index {
  let { horizon } = index;
  for (let o = index.origin; o < low; o++) {
    if ((index.indexed >> o) & 1) horizon = Math.max(horizon, at(entries, o).request);
  }
  const totals = index.totals.map((total, o) => (o < low ? NONE : total));
  return { ...index, origin: low, horizon, indexed: index.indexed & ~((1 << low) - 1), totals };
}

/** The offset of the decision for a request; UNKNOWN when it can't be told any more, NONE when there is none. */
export function lookUp(rule: Rule, world: World, index: Index, { low, entries }: Log, request: number): number {
  let before = NONE;
  for (let offset = index.origin; offset < index.end; offset++) {
    if (((index.indexed >> offset) & 1) === 0) continue;
    const entry = at(entries, offset);
    if (!hasSameKey(rule, world, entry.request, request)) continue;
    const isOfIds = entry.kind === KIND.ids || rule.decides === 'as for IDs';
    const isFirst = !isOfIds || (entry.end >= index.origin && entry.end > before);
    if (offset >= low && isFirst && isSure(rule, index, entry, offset)) return offset;
    before = offset;
    if (rule.counting === 'total') break; // the first entry decides, or nothing does
  }
  return before === NONE ? NONE : UNKNOWN;
}

function hasSameKey({ hasNameInKey }: Rule, { requests }: World, one: number, other: number): boolean {
  const [a, b] = [at(requests, one), at(requests, other)];
  if (a.correlationId !== b.correlationId) return false;
  return a.sequence === b.sequence || (!hasNameInKey && a.sequence !== NONE && b.sequence !== NONE);
}

/** The first number of a decision, or the offset of IDs. */
export function numberAt({ counting }: Rule, { totals }: Index, entries: readonly Entry[], offset: number): number {
  const { kind, first } = at(entries, offset);
  if (kind === KIND.ids) return offset;
  return counting === 'total' ? at(totals, offset) : first;
}

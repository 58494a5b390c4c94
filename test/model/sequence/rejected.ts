import { at } from '../search.ts';
import type { Rule, World } from './rule.ts';
import { type Entry, type Index, isKnownKey, KIND, NONE, type Row, UNKNOWN, withRow } from './state.ts';

/** The parts of two rejected designs that the rule does not have. */

/** Which place a record has in its append. */
function placeOf({ at: place, end }: Entry): number {
  return place - end;
}

/** 'chained': a record counts unless one that counts lies between its writer's look-up and its append. */
export function chainedCounts({ last }: Row, entry: Entry, offset: number): boolean {
  const start = offset - placeOf(entry);
  return last === UNKNOWN ? entry.end === start : last === entry.after || last >= start;
}

/** 'chained': the last record that counts, and from where on a reader knows that. */
export function withLast({ counting }: Rule, row: Row, entry: Entry, offset: number): Row {
  if (counting !== 'chained') return row;
  if (row.last !== UNKNOWN) return { ...row, last: offset };
  if (entry.kind === KIND.numbers && entry.end !== offset - placeOf(entry)) return row;
  return { ...row, last: offset, from: offset };
}

/** Whether a reader knows that an entry it has found counts. */
export function isSure(rule: Rule, index: Index, entry: Entry, offset: number): boolean {
  if (rule.counting === 'total' && entry.kind !== KIND.ids) return index.totals[offset] !== NONE;
  if (rule.counting !== 'chained' || !rule.honoursDoubt || entry.kind !== KIND.numbers) return true;
  const { from } = at(index.rows, entry.sequence);
  return entry.end === offset - placeOf(entry) || (from !== UNKNOWN && offset >= from);
}

/** 'total': the first entry of a key wins, and its first number is the total of the winners before it. */
export function readTotal(rule: Rule, world: World, index: Index, entries: readonly Entry[], offset: number): Index {
  const entry = at(entries, offset);
  const row = at(index.rows, entry.sequence);
  const isAnchored = entry.end === offset - placeOf(entry);
  const next = row.next === UNKNOWN && isAnchored ? entry.first : row.next;
  const totals = [...index.totals];
  while (totals.length <= offset) totals.push(NONE);
  const told = withRow({ ...index, totals }, entry.sequence, { ...row, next });
  if (entry.kind !== KIND.numbers) return told;
  const isLoser = isKnownKey(world, told, entries, offset);
  const known = { ...told, indexed: told.indexed | (1 << offset) };
  if (isLoser) return known;
  const counted = { ...known, through: Math.max(known.through, entry.request) };
  // Its winner may be gone: then it counts nothing, and the total is in doubt.
  if (rule.honoursDoubt && entry.end < index.origin) return withRow(counted, entry.sequence, { ...row, next: UNKNOWN });
  if (next === UNKNOWN) return counted;
  totals[offset] = next;
  return withRow(counted, entry.sequence, { ...row, next: next + at(world.requests, entry.request).count });
}

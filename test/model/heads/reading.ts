import { at, replaced } from '../search.ts';
import type { Rule, World } from './rule.ts';
import { type Copy, definitionOf, type Entry, KIND, NO_ROW, NONE, type Row, type State } from './state.ts';

/** A worker's copy of the log, and how what it reads changes it. */

export type Log = Pick<State, 'low' | 'log'>;

/**
 * The copy after a restore. What retention took is FORGOTTEN by the horizon of the partition, which
 * `test/model/sequence` explores: here it is taken as known.
 */
export function restored(rule: Rule, world: World, { low, log }: Log): Copy {
  const trimmed = log.slice(0, low).filter(({ kind, at: place }, offset) => kind === KIND.numbers && place === offset);
  const numbers = Array<number>(world.keys.length).fill(0);
  const rows = Array<Row>(world.sequences).fill(NO_ROW);
  const horizon = Math.max(NONE, ...trimmed.map(({ sent }) => sent));
  return readOn(rule, { end: low, numbers, rows, horizon, through: NONE }, log);
}

/** The copy after reading to the end of the log. */
export function readOn(rule: Rule, before: Copy, log: readonly Entry[]): Copy {
  let copy = before;
  for (let offset = before.end; offset < log.length; offset++) {
    const entry = at(log, offset);
    if (countsFor(rule, copy, entry, offset)) copy = read(rule, copy, entry);
  }
  return { ...copy, end: log.length };
}

/** A record counts if and only if it lies at the offset for which it was written. */
export function countsFor({ counting }: Rule, { numbers, rows }: Copy, entry: Entry, offset: number): boolean {
  if (entry.kind === KIND.others) return false;
  if (counting !== 'placed' && entry.kind === KIND.loss) return true;
  if (counting === 'anywhere' && entry.kind === KIND.numbers) {
    return at(numbers, entry.key) === 0 && at(rows, entry.sequence).next === entry.first;
  }
  return entry.at === offset;
}

function read(rule: Rule, { end, numbers, rows, horizon, through }: Copy, entry: Entry): Copy {
  const { kind, sequence, key, first } = entry;
  const isNew = kind === KIND.numbers && at(numbers, key) === 0;
  return {
    end,
    numbers: isNew ? replaced(numbers, key, first) : numbers,
    rows: replaced(rows, sequence, rowAfter(rule, at(rows, sequence), entry)),
    horizon: hidesDecisions(rule, at(rows, sequence), kind) ? Math.max(horizon, entry.through) : horizon,
    through: Math.max(through, entry.through, entry.sent),
  };
}

/** The row behind a record that counts. */
function rowAfter(rule: Rule, row: Row, entry: Entry): Row {
  const { kind, first, next, edition } = entry;
  const definition = kind !== KIND.numbers && edition >= row.edition ? entry : row;
  const isLoss = kind === KIND.loss;
  return {
    next: rule.onlyGrows ? Math.max(row.next, next) : next,
    ...definitionOf(definition),
    gap: isLoss ? leftOf(rule, row, next) : gapBefore(rule, row, first),
  };
}

/** Whether decisions may be gone that were made up to the `through` of a record, or earlier. */
function hidesDecisions({ horizonFrom, beginsWithHorizon }: Rule, row: Row, kind: Entry['kind']): boolean {
  if (kind === KIND.loss && horizonFrom !== 'nothing') return true;
  const begins = beginsWithHorizon === 'always' || (beginsWithHorizon === 'not in orders' && kind !== KIND.order);
  return row.next === 0 && begins;
}

/** A record behind a number that is not there. Where a row begins, nothing is known of those before. */
function gapBefore({ seesJumps }: Rule, { next, gap }: Row, first: number): number {
  return seesJumps && next > 0 && first > next ? Math.max(gap, first) : gap;
}

function leftOf({ coversGap }: Rule, { gap }: Row, next: number): number {
  return next >= gap || !coversGap ? 0 : gap;
}

import type { History, Loss, NumbersEntry, StatementEntry } from './history.ts';

/** A record that counts: numbers, or a statement. */
export type SequenceRecord = NumbersEntry | StatementEntry;

/** What the records of a sequence make of it. */
export interface Row extends Pick<StatementEntry, 'next' | 'step' | 'max' | 'closed' | 'edition'> {
  /** The ledger lost numbers below this one, and no statement of a loss says so yet; 0 for none. */
  readonly gap: number;
}

export const isNumbers = (record: SequenceRecord): record is NumbersEntry => 'count' in record;

/**
 * The records of sequences that count: those at the offset for which they were written. Renewals are not among them.
 */
export function countingIn({
  numbers,
  statements,
}: Pick<History, 'numbers' | 'statements'>): readonly SequenceRecord[] {
  return [...numbers, ...statements]
    .filter(({ at, offset }) => at === offset)
    .toSorted((one, other) => one.order - other.order);
}

/** The number behind those of a record. */
export const behind = ({ first, count, step }: Pick<NumbersEntry, 'first' | 'count' | 'step'>) => first + count * step;

/** The row behind a record; undefined while no statement is known. */
export function rowAfter(row: Row | undefined, record: SequenceRecord): Row | undefined {
  if (isNumbers(record)) {
    if (row === undefined) return undefined;
    const gap = record.first > row.next ? Math.max(row.gap, record.first) : row.gap;
    return { ...row, next: Math.max(row.next, behind(record)), gap };
  }
  const { next, step, max, closed, edition, isLoss, first } = record;
  const stated = { step, max, closed, edition };
  if (row === undefined) return { next, ...stated, gap: 0 };
  const opened = first !== undefined && first > row.next ? Math.max(row.gap, first) : row.gap;
  const gap = isLoss && next >= row.gap ? 0 : isLoss ? row.gap : opened;
  return { ...row, ...(edition >= row.edition && stated), next: Math.max(row.next, next), gap };
}

/** The first loss by then that took the record; undefined if the ledger has not lost it. */
export function lossOf(
  { losses }: Pick<History, 'losses'>,
  { partition, offset, order }: { readonly partition: number; readonly offset: number; readonly order: number },
  by = Number.POSITIVE_INFINITY,
): Loss | undefined {
  return losses.find((one) => {
    return one.partition === partition && one.from <= offset && order < one.order && one.order < by;
  });
}

/** Whether the ledger has lost the record by then. */
export const isLostBy = (...of: Parameters<typeof lossOf>): boolean => lossOf(...of) !== undefined;

/** Whether retention has deleted the record by then. */
export function isTrimmedBy(
  { trims }: Pick<History, 'trims'>,
  { partition, offset, order }: { readonly partition: number; readonly offset: number; readonly order: number },
  by = Number.POSITIVE_INFINITY,
): boolean {
  return trims.some((one) => {
    return one.partition === partition && one.low > offset && order < one.order && one.order < by;
  });
}

/**
 * What retention may take of a ledger partition where etcd loses its heads: workers state a sequence again before, so
 * the last statement of each stays.
 */
export function lastStated(history: History, partition: number): number {
  const stated = new Map<string, number>();
  for (const record of countingIn(history)) {
    if (record.partition !== partition || isNumbers(record) || isLostBy(history, record)) continue;
    stated.set(record.sequence, record.offset);
  }
  return Math.min(...stated.values());
}

/** What the records that count make of each sequence, as far as the ledger has not lost them by then. */
export function rowsOf(history: History, by = Number.POSITIVE_INFINITY): ReadonlyMap<string, Row> {
  const rows = new Map<string, Row>();
  for (const record of countingIn(history)) {
    if (record.order >= by || isLostBy(history, record, by)) continue;
    const row = rowAfter(rows.get(record.sequence), record);
    if (row !== undefined) rows.set(record.sequence, row);
  }
  return rows;
}

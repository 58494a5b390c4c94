/**
 * What a reader of the ledger knows of a named sequence, and how each record that counts changes that: pure functions, applied in log
 * order. `docs/internals/sequences.md` has the whole rule, `test/model/sequence` explores it.
 */

/** The state of a sequence behind a record that counts. */
export interface Statement {
  /** The number that the next request gets first: 0..max + step. */
  readonly next: number;
  /** The distance between neighbouring numbers, at least 1. */
  readonly step: number;
  /** The largest number that may be given out; max + step is at most 2^53 - 1. */
  readonly max: number;
  /** How readers write a number; empty for plain digits. */
  readonly format: string;
  /** A closed sequence gives out no more numbers. */
  readonly closed: boolean;
}

/** The numbers of one request. */
export interface NumberRun {
  readonly first: number;
  readonly count: number;
  readonly step: number;
}

/** The place of a record in the log. */
interface Place {
  readonly offset: number;
  readonly appendedAtMs: number;
}

/** A reader's knowledge of one sequence. */
export interface SequenceRow {
  /** Undefined until a statement was read: numbers alone don't show the largest one, nor whether the sequence is closed. */
  readonly known: Statement | undefined;
  /** The last statement that counts; undefined until one was read. */
  readonly stated: Place | undefined;
  /**
   * Set while numbers may have been given out that the log does not show: it lost its tail, or contradicts itself. Nothing of the
   * sequence is answered until a statement gives this number or a higher one as the next.
   */
  readonly floor: number | undefined;
}

/** The row behind a statement that counts. One below what is known already comes from an operator who knew less, and is doubted. */
export function afterStatement(row: SequenceRow | undefined, statement: Statement, stated: Place): SequenceRow {
  const { next, step, max, format, closed } = statement;
  const least = Math.max(row?.floor ?? 0, row?.known?.next ?? 0);
  return { known: { next, step, max, format, closed }, stated, floor: next < least ? least : undefined };
}

/**
 * The row behind numbers that count. Without a statement nothing follows from them. They continue the row, unless the log lost what
 * was between.
 */
export function afterNumbers(row: SequenceRow, { first, count, step }: NumberRun): SequenceRow {
  const { known } = row;
  if (known === undefined) return row;
  const after = Math.min(first + count * step, Number.MAX_SAFE_INTEGER);
  const isNext = first === known.next && after <= known.max + known.step;
  const floor = isNext ? row.floor : Math.max(row.floor ?? 0, known.next, after);
  return { ...row, known: { ...known, next: after }, floor };
}

/** A record that counts, and is no renewal. */
type SequenceRecord = ({ readonly kind: 'statement' } & Statement) | ({ readonly kind: 'numbers' } & NumberRun);

/** The row behind a record; undefined while no statement was read, nor a loss noticed. */
export function afterRecord(
  row: SequenceRow | undefined,
  record: SequenceRecord,
  place: Place,
): SequenceRow | undefined {
  if (record.kind === 'statement') return afterStatement(row, record, place);
  return row && afterNumbers(row, record);
}

/** The row when the log must be read again, since it lost entries or is another one: all that stays is the highest number. */
export function afterLoss({ known, floor }: SequenceRow): SequenceRow | undefined {
  const least = Math.max(floor ?? -1, known?.next ?? -1);
  return least === -1 ? undefined : { known: undefined, stated: undefined, floor: least };
}

/** Share of the ledger's retention after which a sequence is stated again: three more tries fit before the statement is deleted. */
const RESTATED_SHARE = 1 / 4;
/** In a ledger that keeps everything, so that readers find what a sequence is without reading all of that. */
const RESTATED_OF_ENDLESS_MS = 7 * 24 * 3_600_000;

/** Statements in one append of a worker: each has about 130 bytes. What is left follows with the next one. */
export const MAX_STATEMENTS = 2_000;

/** The age at which workers write again what a sequence is, by the ledger's retention in milliseconds; -1: no limit. */
export function restatedAfterMs(retentionMs: number): number {
  return retentionMs === -1 ? RESTATED_OF_ENDLESS_MS : retentionMs * RESTATED_SHARE;
}

/** Why a sequence gives out no numbers for a new request; undefined if it does. */
export type SequenceRefusal = 'UNKNOWN_SEQUENCE' | 'SEQUENCE_CLOSED' | 'SEQUENCE_EXHAUSTED';

export function refusalOf(known: Statement | undefined, count: number): SequenceRefusal | undefined {
  if (known === undefined) return 'UNKNOWN_SEQUENCE';
  if (known.closed) return 'SEQUENCE_CLOSED';
  return known.next + (count - 1) * known.step > known.max ? 'SEQUENCE_EXHAUSTED' : undefined;
}

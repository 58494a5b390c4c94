/**
 * What a reader of the ledger knows of a named sequence, and how each record that counts changes that: pure functions,
 * applied in log order. `docs/internals/sequences.md` has the whole rule, `test/model/sequence` explores it.
 */

/** What operators decide about a sequence. */
export interface Definition {
  /** The distance between neighbouring numbers, at least 1. */
  readonly step: number;
  /** The largest number that may be given out; max + step is at most 2^53 - 1. */
  readonly max: number;
  /** How readers write a number; empty for plain digits. */
  readonly format: string;
  /** A closed sequence gives out no more numbers. */
  readonly closed: boolean;
  /**
   * Each order of an operator makes the next edition; 0 was written before there were editions. A newer one replaces an
   * older one.
   */
  readonly edition: number;
}

/** The state of a sequence behind a record that counts. */
export interface Statement extends Definition {
  /** The number that the next request gets first: 0..max + step. */
  readonly next: number;
}

/** The numbers of one request. */
export interface NumberRun {
  readonly first: number;
  readonly count: number;
  readonly step: number;
}

/** The place of a record in the log. */
export interface Place {
  readonly offset: number;
  readonly appendedAtMs: number;
}

/**
 * The edition of a row of which no statement was read: numbers alone show neither the largest one nor whether the
 * sequence is closed.
 */
export const UNSTATED = -1;

/** A reader's knowledge of one sequence. Next number, edition and gap only grow while it reads on. */
export interface SequenceRow {
  readonly known: Statement;
  /** The last statement that counts and has the newest edition; of an unstated row, the first record. */
  readonly stated: Place;
  /**
   * Set when a record lies behind a number that is not there: the log lost numbers below this one. Only a loss that
   * states this number or a higher one ends it; then it is 0 again.
   */
  readonly gap: number;
}

/** A record that counts, and is no renewal. */
export type SequenceRecord =
  | ({ readonly kind: 'numbers' } & NumberRun)
  | ({
      readonly kind: 'statement';
      /** The next number in the writer's copy; undefined before there were editions. */
      readonly first: number | undefined;
      /** Whether decisions are gone, so that the sequence goes on at the statement's next number. */
      readonly isLoss: boolean;
    } & Statement);

/** What was stated of a sequence; undefined if nothing was. */
export function statedOf(row: SequenceRow | undefined): Statement | undefined {
  return row === undefined || row.known.edition === UNSTATED ? undefined : row.known;
}

/** The row behind a record. */
export function afterRecord(row: SequenceRow | undefined, record: SequenceRecord, place: Place): SequenceRow {
  if (record.kind === 'statement') return afterStatement(row, record, place);
  const { first, count, step } = record;
  const next = first + count * step;
  if (row === undefined) {
    const unknown = { step, max: Number.MAX_SAFE_INTEGER - step, format: '', closed: true, edition: UNSTATED };
    return { known: statementAt(next, unknown), stated: place, gap: 0 };
  }
  return { ...row, known: statementAt(Math.max(row.known.next, next), row.known), gap: gapBefore(row, first) };
}

/**
 * Whether unknown requests up to the record's `through`, and those first sent before it, may have been decided by
 * records that the log does not have. A loss says so. So does a record that begins a row, since its writer knew more;
 * an operator's has no `through`, as it is behind no request.
 */
export function hidesDecisions(row: SequenceRow | undefined, record: SequenceRecord, through: number): boolean {
  return (record.kind === 'statement' && record.isLoss) || (row === undefined && through >= 0);
}

function afterStatement(
  row: SequenceRow | undefined,
  statement: Extract<SequenceRecord, { readonly kind: 'statement' }>,
  place: Place,
): SequenceRow {
  const { next, first, isLoss } = statement;
  if (row === undefined) return { known: statementAt(next, statement), stated: place, gap: 0 };
  const isNewest = statement.edition >= row.known.edition;
  const known = statementAt(Math.max(row.known.next, next), isNewest ? statement : row.known);
  const left = next >= row.gap ? 0 : row.gap;
  // The gap is never above the next number, or no loss could end it.
  const gap = isLoss ? left : gapBefore(row, Math.min(first ?? 0, next));
  return { known, stated: isNewest ? place : row.stated, gap };
}

function gapBefore({ known, gap }: SequenceRow, first: number): number {
  return first > known.next ? Math.max(gap, first) : gap;
}

/**
 * A sequence with this next number. Should that be above what its largest number allows, as after numbers that another
 * program wrote, the largest number is raised so far that a statement can say it: the sequence is exhausted either way.
 */
export function statementAt(next: number, { step, max, format, closed, edition }: Definition): Statement {
  const exact = Math.min(next, Number.MAX_SAFE_INTEGER);
  return { next: exact, step, max: Math.max(max, exact - step), format, closed, edition };
}

/**
 * Share of the ledger's retention after which a sequence is stated again: three more tries fit before the statement is
 * deleted.
 */
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

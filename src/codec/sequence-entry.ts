import type { NumberRun, Statement } from '../core/sequence-row.ts';
import { describeError } from '../errors.ts';
import type { Framing } from './framing.ts';
import { type Long, toSafeNumber } from './long.ts';
import { MAX_REQUEST_COUNT } from './request-checks.ts';
import type { RecordHeaders } from './request-headers.ts';
import { parseExactObject, requireFlag, requireInteger } from './strict-json.ts';

/** In `at`: a renewal, which counts wherever it lies. */
export const RENEWAL = -1;

/** What all records of a sequence have. Offsets are those of the ledger partition. */
interface SequencePosition {
  /** Where the writer's index ended; 0 from an operator. */
  readonly end: number;
  /** The highest request offset in it; -1 for none, and from an operator. */
  readonly through: number;
  /** The offset for which the record was written: it counts only there. */
  readonly at: number;
}

/** Numbers of a sequence: first, first + step, … The last one is at most 2^53 - 1. */
export interface Numbers extends NumberRun {
  /** How readers write a number; empty for plain digits. */
  readonly format: string;
}

/** The numbers of one request, if the record counts. */
export interface LedgerNumbers extends SequencePosition, Numbers {
  readonly kind: 'numbers';
  /** 16 bytes, from requestHash. */
  readonly requestHash: Buffer;
  readonly replyTopic: string;
  readonly requestOffset: number;
  /** The reply's framing. */
  readonly framing: Framing;
  /** The fingerprint of the reply's schema, 8 bytes, little endian. */
  readonly schemaFingerprint: Buffer;
}

/**
 * What a sequence is from here on, if the record counts. Edition, `first` and `isLoss` are in a header of the record,
 * since workers of 0.3 read its value.
 */
export interface LedgerStatement extends SequencePosition, Statement {
  readonly kind: 'statement';
  /**
   * The next number in its writer's copy; undefined in statements of edition 0, and from a writer that knew nothing of
   * the sequence.
   */
  readonly first: number | undefined;
  /** It states that decisions up to `through` are gone. */
  readonly isLoss: boolean;
}

export type SequenceEntry = LedgerNumbers | LedgerStatement;

export const MAX_FORMAT_CHARS = 64;

/**
 * The header of a statement: JSON with its edition, and `first` and `loss` where it has them, as in
 * `{"edition":3,"first":17,"loss":true}`. A statement without it is one of edition 0.
 */
export const STATEMENT_HEADER = 'idalloc-statement';
const UNNUMBERED = { edition: 0, first: undefined, isLoss: false } as const;

/** What a statement says beside its value. */
type StatementFacts = Pick<LedgerStatement, 'edition' | 'first' | 'isLoss'>;

/** The headers of a record with this statement. */
export function statementHeaders({ edition, first, isLoss }: StatementFacts): { readonly [STATEMENT_HEADER]: Buffer } {
  const fields = { edition, ...(first !== undefined && { first }), ...(isLoss && { loss: true }) };
  const text = Buffer.from(JSON.stringify(fields));
  readFacts(text);
  return { [STATEMENT_HEADER]: text };
}

/** What the headers of a record say of its statement. Throws Error for a malformed header. */
export function statementFacts(headers: RecordHeaders): StatementFacts {
  if (!Object.hasOwn(headers, STATEMENT_HEADER)) return UNNUMBERED;
  const value = headers[STATEMENT_HEADER];
  try {
    if (Buffer.isBuffer(value) || typeof value === 'string') return readFacts(Buffer.from(value));
    throw new TypeError('it is repeated or has no value');
  } catch (error) {
    throw new Error(`its header ${STATEMENT_HEADER} is malformed: ${describeError(error)}`);
  }
}

function readFacts(bytes: Buffer): StatementFacts {
  const fields = parseExactObject(bytes, ['edition'], ['first', 'loss']);
  return {
    edition: requireInteger(fields, 'edition', 0),
    first: Object.hasOwn(fields, 'first') ? requireInteger(fields, 'first', 0) : undefined,
    isLoss: Object.hasOwn(fields, 'loss') && requireFlag(fields, 'loss'),
  };
}

/** Throws RangeError for a statement that no record can have. */
export function checkStatement({ next, step, max, format }: Pick<Statement, 'next' | 'step' | 'max' | 'format'>): void {
  requireWhole(step, 'step', 1);
  requireWhole(max, 'max', 0, Number.MAX_SAFE_INTEGER - step);
  requireWhole(next, 'next', 0, max + step);
  requireFormat(format);
}

/** The numbers, or RangeError if they are not a sequence's. */
export function checkNumbers(first: Long, count: number, step: Long, format: string): Numbers {
  const numbers = {
    first: requireWhole(first, 'first', 0),
    count: requireWhole(count, 'count', 1, MAX_REQUEST_COUNT),
    step: requireWhole(step, 'step', 1),
    format: requireFormat(format),
  };
  requireWhole(numbers.first + (count - 1) * numbers.step, 'the last number', 0);
  return numbers;
}

function requireWhole(value: Long, field: string, min: number, max?: number): number {
  const number = toSafeNumber(value, field, min, max);
  if (Number.isInteger(number)) return number;
  throw new RangeError(`${field} ${value} is not a whole number`);
}

function requireFormat(format: string): string {
  if (format.length <= MAX_FORMAT_CHARS) return format;
  throw new RangeError(`a format of ${format.length} characters; at most ${MAX_FORMAT_CHARS} are allowed`);
}

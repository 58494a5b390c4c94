import type { NumberRun, Statement } from '../core/sequence.ts';
import { describeError } from '../errors.ts';
import { decodeFramed, encodeFramed, loadSchema } from './avro.ts';
import type { Framing } from './framing.ts';
import { toSafeNumber } from './long.ts';
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
 * since workers of
 * 0.3 read its value.
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

/** With the longest reply topic and format an entry has less. */
const MAX_ENTRY_BYTES = 16 * 1024;
export const MAX_FORMAT_CHARS = 64;

const schema = loadSchema('ledger-sequence', MAX_ENTRY_BYTES);

/** The bytes before the body of each record of a sequence. */
export const SEQUENCE_ENTRY_HEADER: Buffer = schema.header;

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

function factsIn(headers: RecordHeaders): StatementFacts {
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

interface WireNumbers {
  readonly request_hash: Buffer;
  readonly count: number;
  readonly reply_topic: string;
  readonly request_offset: bigint;
  readonly framing: Framing;
  readonly schema_fingerprint: Buffer;
  readonly first: bigint;
  readonly step: bigint;
  readonly format: string;
}

interface WireStatement {
  readonly next: bigint;
  readonly step: bigint;
  readonly max: bigint;
  readonly format: string;
  readonly closed: boolean;
}

interface Wire {
  readonly end: bigint;
  readonly through: bigint;
  readonly at: bigint;
  readonly content:
    | { readonly 'idalloc.ledger.SequenceNumbers': WireNumbers }
    | { readonly 'idalloc.ledger.SequenceStatement': WireStatement };
}

/** The framed value of a record of a sequence. Throws RangeError if decodeSequenceEntry would reject it. */
export function encodeSequenceEntry(entry: SequenceEntry): Buffer {
  const wire: Wire = {
    end: BigInt(entry.end),
    through: BigInt(entry.through),
    at: BigInt(entry.at),
    content:
      entry.kind === 'numbers'
        ? { 'idalloc.ledger.SequenceNumbers': toWireNumbers(entry) }
        : { 'idalloc.ledger.SequenceStatement': toWireStatement(entry) },
  };
  fromWire(wire, {});
  return encodeFramed(schema, wire);
}

/** Decodes a record of a sequence; undefined if its value has another schema. Throws Error for a malformed one. */
export function decodeSequenceEntry(value: Buffer, headers: RecordHeaders): SequenceEntry | undefined {
  const wire = decodeFramed(schema, value);
  return wire === undefined ? undefined : fromWire(wire as Wire, headers);
}

/** Throws RangeError for a statement that no record can have. */
export function checkStatement(statement: Omit<Statement, 'edition'>): void {
  statementOf(toWireStatement(statement));
}

/** The numbers, or RangeError if they are not a sequence's. */
export function checkNumbers(first: bigint, count: number, step: bigint, format: string): Numbers {
  if (count < 1 || count > MAX_REQUEST_COUNT) throw new RangeError(`count ${count} is out of range`);
  toSafeNumber(first + BigInt(count - 1) * step, 'the last number', 0);
  return {
    first: toSafeNumber(first, 'first', 0),
    count,
    step: toSafeNumber(step, 'step', 1),
    format: checkFormat(format),
  };
}

function checkFormat(format: string): string {
  if (format.length <= MAX_FORMAT_CHARS) return format;
  throw new RangeError(`a format of ${format.length} characters; at most ${MAX_FORMAT_CHARS} are allowed`);
}

function toWireNumbers(entry: LedgerNumbers): WireNumbers {
  return {
    request_hash: entry.requestHash,
    count: entry.count,
    reply_topic: entry.replyTopic,
    request_offset: BigInt(entry.requestOffset),
    framing: entry.framing,
    schema_fingerprint: entry.schemaFingerprint,
    first: BigInt(entry.first),
    step: BigInt(entry.step),
    format: entry.format,
  };
}

function toWireStatement({ next, step, max, format, closed }: Omit<Statement, 'edition'>): WireStatement {
  return { next: BigInt(next), step: BigInt(step), max: BigInt(max), format, closed };
}

function fromWire(wire: Wire, headers: RecordHeaders): SequenceEntry {
  const position = {
    end: toSafeNumber(wire.end, 'end', 0),
    through: toSafeNumber(wire.through, 'through', -1),
  };
  if ('idalloc.ledger.SequenceStatement' in wire.content) {
    const fields = wire.content['idalloc.ledger.SequenceStatement'];
    const at = toSafeNumber(wire.at, 'at', 0); // a statement is never renewed: it is written anew
    return { kind: 'statement', ...position, at, ...statementOf(fields), ...factsIn(headers) };
  }
  const fields = wire.content['idalloc.ledger.SequenceNumbers'];
  return {
    kind: 'numbers',
    ...position,
    at: toSafeNumber(wire.at, 'at', RENEWAL),
    requestHash: fields.request_hash,
    replyTopic: fields.reply_topic,
    requestOffset: toSafeNumber(fields.request_offset, 'request_offset', 0),
    framing: fields.framing,
    schemaFingerprint: fields.schema_fingerprint,
    ...checkNumbers(fields.first, fields.count, fields.step, fields.format),
  };
}

function statementOf(fields: WireStatement): Omit<Statement, 'edition'> {
  const step = toSafeNumber(fields.step, 'step', 1);
  const max = toSafeNumber(fields.max, 'max', 0, Number.MAX_SAFE_INTEGER - step);
  const next = toSafeNumber(fields.next, 'next', 0, max + step);
  return { next, step, max, format: checkFormat(fields.format), closed: fields.closed };
}

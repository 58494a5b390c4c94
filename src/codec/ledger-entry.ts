import { hash } from 'node:crypto';
import type { IdRange } from '../core/generator.ts';
import { memoize } from '../core/memoize.ts';
import type { NumberRun } from '../core/sequence-row.ts';
import { describeError, IdallocError } from '../errors.ts';
import { schemaHeader } from './avro.ts';
import { FINGERPRINT_BYTES, type Framing, HEADER_BYTES, isFramed } from './framing.ts';
import {
  countIds,
  type IdBatch,
  MAX_BATCH_COUNT,
  maxBatchBytes,
  requireBelowEnd,
  writeEvidence,
  writeRanges,
} from './id-batch.ts';
import { MessageReader } from './message-reader.ts';
import { MAX_BYTES, MessageWriter } from './message-writer.ts';
import { MAX_REQUEST_COUNT } from './request-checks.ts';
import type { RecordHeaders } from './request-headers.ts';
import { LEDGER_SCHEMAS } from './schemas.ts';
import {
  checkNumbers,
  checkStatement,
  type LedgerNumbers,
  type LedgerStatement,
  RENEWAL,
  type SequenceEntry,
  statementFacts,
} from './sequence-entry.ts';

const HASH_BYTES = 16;

/** The state of the writer's index when it looked up its requests. */
interface Position {
  /** Ledger offset at which the index ended. */
  readonly end: number;
  /** Highest request offset in the index; -1 for none. */
  readonly through: number;
}

/** The decision about one request. */
export interface LedgerBatchEntry extends Position {
  readonly kind: 'batch';
  /** 16 bytes, from requestHash. */
  readonly requestHash: Buffer;
  readonly count: number;
  readonly replyTopic: string;
  readonly requestOffset: number;
  readonly batch: IdBatch;
  /** The reply's framing. */
  readonly framing: Framing;
  /** The fingerprint of the reply's schema, 8 bytes, little endian. */
  readonly schemaFingerprint: Buffer;
}

/** Keeps a quiet partition from running empty; decides nothing. Its record has no key. */
interface LedgerMarker extends Position {
  readonly kind: 'marker';
}

/** An entry that may decide a request. */
export type DecidingEntry = LedgerBatchEntry | LedgerNumbers;

export type LedgerEntry = LedgerBatchEntry | LedgerMarker | SequenceEntry;

/** What is known of the time of an entry besides the broker's. */
interface WriterTime {
  /** A batch of IDs says when its writer allocated them, by a guarded clock. */
  readonly batch?: { readonly generatedAtMs: number } | undefined;
}

/**
 * The part of an entry that the index needs: the state of its writer's index, the offset of its request, when its IDs
 * were allocated, and what a sequence becomes.
 */
export type LedgerPosition = Position &
  WriterTime &
  (
    | { readonly kind?: 'batch' | 'marker'; readonly requestOffset?: number | undefined; readonly at?: undefined }
    | ({ readonly kind: 'numbers'; readonly requestOffset: number; readonly at: number } & NumberRun)
    | ({ readonly requestOffset?: undefined } & Omit<LedgerStatement, keyof Position>)
  );

/**
 * Whether a record at this offset counts: one of a sequence only where it was written for, every other one anywhere.
 */
export function countsAt({ at }: { readonly end: number; readonly at?: number | undefined }, offset: number): boolean {
  return at === undefined || at === RENEWAL || at === offset;
}

/**
 * Whether a record of a sequence at this offset changes it: it counts there, and is no renewal, which repeats numbers.
 */
export function changesSequence({ at }: { readonly at: number }, offset: number): boolean {
  return at === offset;
}

/**
 * 16 bytes that are equal for equal requests under one correlation ID: the first half of the SHA-256 of the count (4
 * bytes, big endian), the length of the reply topic's UTF-8 (4 bytes) and the topic.
 */
export function requestHash(count: number, replyTopic: string): Buffer {
  if (lastHash?.count !== count || lastHash.replyTopic !== replyTopic)
    lastHash = { count, replyTopic, hash: hashes(`${count} ${replyTopic}`) };
  return lastHash.hash;
}

/** Requests that follow each other mostly want as many IDs on the same topic. */
let lastHash: { readonly count: number; readonly replyTopic: string; readonly hash: Buffer } | undefined;

/** The hashes are cached, since requests have few different counts and topics. */
const hashes = memoize((request) => {
  const space = request.indexOf(' ');
  const replyTopic = Buffer.from(request.slice(space + 1));
  const head = Buffer.alloc(8);
  head.writeUInt32BE(Number(request.slice(0, space)), 0);
  head.writeUInt32BE(replyTopic.length, 4);
  return hash('sha256', Buffer.concat([head, replyTopic]), 'buffer').subarray(0, HASH_BYTES);
}, 1_000);

/** The bytes before the body of each entry that is no sequence's, and of each one that is. */
export const LEDGER_ENTRY_HEADER: Buffer = schemaHeader(LEDGER_SCHEMAS['ledger-entry']);
export const SEQUENCE_ENTRY_HEADER: Buffer = schemaHeader(LEDGER_SCHEMAS['ledger-sequence']);

/** The largest batch of any layout needs a fifth of it. */
const MAX_ENTRY_BYTES = 64 * 1024;
/** With the longest reply topic and format an entry has less. */
const MAX_SEQUENCE_BYTES = 16 * 1024;
const MAX_FIXED_BYTES = HEADER_BYTES + 8 * MAX_BYTES.long + HASH_BYTES + FINGERPRINT_BYTES;
/** 2^63 - 1 as a double, which is 2^63. */
const MAX_LONG = 2 ** 63;
const MAX_INT = 0x7fff_ffff;
const MIN_INT = -MAX_INT - 1;
const FRAMINGS: readonly Framing[] = ['SINGLE_OBJECT', 'CONFLUENT'];

/** Entries are written and read field by field, since every request has one: avsc takes five times as long. */
const to = new MessageWriter();
const from = new MessageReader();

/** The framed value of an entry. Throws RangeError if decodeLedgerEntry would reject the entry. */
export function encodeLedgerEntry(entry: LedgerEntry): Buffer {
  if (entry.kind === 'numbers' || entry.kind === 'statement') return encodeSequenceEntry(entry);
  const { end, through } = entry;
  if (entry.kind === 'marker') {
    to.begin(MAX_FIXED_BYTES);
    to.raw(LEDGER_ENTRY_HEADER);
    to.long(end);
    to.long(through);
    to.long(0); // the branch of the union
    return to.end();
  }
  const { batch, replyTopic } = entry;
  checkTotal(entry.count, countIds(batch.ranges));
  to.begin(MAX_FIXED_BYTES + MAX_BYTES.text(replyTopic) + maxBatchBytes(batch));
  to.raw(LEDGER_ENTRY_HEADER);
  to.long(end);
  to.long(through);
  to.long(1); // the branch of the union
  writeRequest(entry);
  writeRanges(to, batch.ranges);
  writeEvidence(to, batch);
  return to.end();
}

/** A sequence's entries are few enough to be read back: so what is written can be read. */
function encodeSequenceEntry(entry: SequenceEntry): Buffer {
  to.begin(
    MAX_FIXED_BYTES + MAX_BYTES.text(entry.format) + (entry.kind === 'numbers' ? MAX_BYTES.text(entry.replyTopic) : 0),
  );
  to.raw(SEQUENCE_ENTRY_HEADER);
  to.long(entry.end);
  to.long(entry.through);
  to.long(entry.at);
  if (entry.kind === 'numbers') {
    to.long(0); // the branch of the union
    writeRequest(entry);
    to.long(entry.first);
    to.long(entry.step);
    to.text(entry.format);
  } else {
    to.long(1);
    to.long(entry.next);
    to.long(entry.step);
    to.long(entry.max);
    to.text(entry.format);
    to.raw(Buffer.of(entry.closed ? 1 : 0));
  }
  const value = to.end();
  readEntry(value, NO_HEADERS, true);
  return value;
}

/** The fields that both schemas have of a decided request. */
function writeRequest(entry: DecidingEntry): void {
  to.fixed(entry.requestHash, HASH_BYTES);
  to.int(entry.count);
  to.text(entry.replyTopic);
  to.long(entry.requestOffset);
  to.long(FRAMINGS.indexOf(entry.framing));
  to.fixed(entry.schemaFingerprint, FINGERPRINT_BYTES);
}

/** A marker whose writer had read nothing (`end` 0, `through` -1, no batch), so that it says nothing about the log. */
export const EMPTY_MARKER: Buffer = Buffer.concat([LEDGER_ENTRY_HEADER, Buffer.of(0, 1, 0)]);

const NO_HEADERS: RecordHeaders = {};

/**
 * Decodes an entry from its value, and a statement from its record's headers, too. Throws LEDGER_UNREADABLE for any
 * other schema, for values out of range, and for a statement with a malformed header.
 */
export function decodeLedgerEntry(value: Buffer, headers = NO_HEADERS): LedgerEntry {
  try {
    return readEntry(value, headers, true);
  } catch (error) {
    throw unreadable(value, error);
  }
}

/**
 * Reads the position from an entry's value, and from the headers of a statement. Throws LEDGER_UNREADABLE for exactly
 * the entries for which decodeLedgerEntry does: both are one reader. A restore reads millions of entries and needs only
 * this, which takes a third of the time.
 */
export function readLedgerPosition(value: Buffer, headers = NO_HEADERS): LedgerPosition {
  try {
    return readEntry(value, headers, false);
  } catch (error) {
    throw unreadable(value, error);
  }
}

function unreadable(value: Buffer, error: unknown): IdallocError {
  return new IdallocError(
    'LEDGER_UNREADABLE',
    `a ledger entry of ${value.length} bytes can't be read (${describeError(error)}): ` +
      'a newer release or another program wrote to the ledger topic',
    { cause: error },
  );
}

/** Reads the entry, or its position alone: what is checked is the same. Throws what statementFacts throws, too. */
function readEntry(value: Buffer, headers: RecordHeaders, isWhole: true): LedgerEntry;
function readEntry(value: Buffer, headers: RecordHeaders, isWhole: false): LedgerPosition;
function readEntry(value: Buffer, headers: RecordHeaders, isWhole: boolean): LedgerEntry | LedgerPosition {
  const isOfSequence = isFramed(SEQUENCE_ENTRY_HEADER, value);
  if (!isOfSequence && !isFramed(LEDGER_ENTRY_HEADER, value)) throw new RangeError('its schema is unknown');
  from.begin(value, HEADER_BYTES, isOfSequence ? MAX_SEQUENCE_BYTES : MAX_ENTRY_BYTES);
  const end = from.integer('end', 0);
  const through = from.integer('through', -1);
  if (isOfSequence) {
    const at = from.integer('at', RENEWAL);
    const isStatement = from.integer('content', 0, 1) === 1;
    return isStatement ? readStatement(end, through, at, headers) : readNumbers(end, through, at, isWhole);
  }
  if (from.integer('batch', 0, 1) === 1) return readBatch(end, through, isWhole);
  from.end();
  return { kind: 'marker', end, through };
}

function readBatch(end: number, through: number, isWhole: boolean): LedgerBatchEntry | LedgerPosition {
  const hashAt = from.skipFixed(HASH_BYTES);
  const count = from.integer('count', 1, MAX_BATCH_COUNT);
  const topicAt = from.skipText();
  const requestOffset = from.integer('request_offset', 0);
  const framing = from.integer('framing', 0, 1);
  const schemaAt = from.skipFixed(FINGERPRINT_BYTES);
  const rangesAt = from.pos;
  let total = 0;
  let highest = 0;
  for (let left = from.integer('the number of ranges', 1); left > 0; left -= 1) {
    highest = Math.max(highest, from.integer('first', 0, MAX_LONG));
    total += from.integer('count', 1, MAX_BATCH_COUNT);
  }
  from.integer('what follows the ranges', 0, 0);
  checkTotal(count, total);
  const stepAt = from.pos;
  const step = from.integer('step', 1, MAX_LONG);
  const datacenterId = from.integer('datacenter_id', MIN_INT, MAX_INT);
  const workerId = from.integer('worker_id', MIN_INT, MAX_INT);
  const fenceAt = from.skipLong();
  const epochMs = from.integer('epoch', Number.MIN_SAFE_INTEGER);
  const layoutAt = from.skipFixed(FINGERPRINT_BYTES);
  const generatedAtMs = from.integer('generated_at', 0);
  from.end();
  // Numbers of this size are rounded, so only ranges that are far from the end of all IDs need no exact check.
  const isFar = highest + count * step < MAX_LONG / 2;
  if (isFar && !isWhole) return { end, through, requestOffset, batch: { generatedAtMs } };
  const exactStep = from.bigintAt(stepAt);
  const ranges = rangesFrom(rangesAt);
  if (!isFar) requireBelowEnd(ranges, exactStep);
  const batch: IdBatch = {
    ranges,
    step: exactStep,
    datacenterId,
    workerId,
    fence: from.bigintAt(fenceAt),
    epochMs,
    layoutFingerprint: from.buf.toString('hex', layoutAt, layoutAt + FINGERPRINT_BYTES),
    generatedAtMs,
  };
  return {
    kind: 'batch',
    requestHash: copyOf(hashAt, HASH_BYTES),
    count,
    replyTopic: from.textAt(topicAt),
    requestOffset,
    batch,
    framing: FRAMINGS[framing] as Framing,
    schemaFingerprint: copyOf(schemaAt, FINGERPRINT_BYTES),
    end,
    through,
  };
}

function readNumbers(end: number, through: number, at: number, isWhole: boolean): LedgerNumbers | LedgerPosition {
  const hashAt = from.skipFixed(HASH_BYTES);
  const count = from.integer('count', 1, MAX_REQUEST_COUNT);
  const topicAt = from.skipText();
  const requestOffset = from.integer('request_offset', 0);
  const framing = from.integer('framing', 0, 1);
  const schemaAt = from.skipFixed(FINGERPRINT_BYTES);
  const first = from.integer('first', 0);
  const step = from.integer('step', 1);
  const formatAt = from.skipText();
  from.end();
  const numbers = checkNumbers(first, count, step, from.textAt(formatAt));
  if (!isWhole) return { kind: 'numbers', end, through, at, requestOffset, first, count, step };
  return {
    kind: 'numbers',
    end,
    through,
    at,
    requestHash: copyOf(hashAt, HASH_BYTES),
    replyTopic: from.textAt(topicAt),
    requestOffset,
    framing: FRAMINGS[framing] as Framing,
    schemaFingerprint: copyOf(schemaAt, FINGERPRINT_BYTES),
    ...numbers,
  };
}

function readStatement(end: number, through: number, at: number, headers: RecordHeaders): LedgerStatement {
  if (at === RENEWAL) throw new RangeError('a statement is never renewed: it is written anew');
  const next = from.integer('next', 0);
  const step = from.integer('step', 1);
  const max = from.integer('max', 0);
  const formatAt = from.skipText();
  const closed = from.flag();
  from.end();
  const said = { next, step, max, format: from.textAt(formatAt), closed };
  checkStatement(said);
  return { kind: 'statement', end, through, at, ...said, ...statementFacts(headers) };
}

function rangesFrom(at: number): IdRange[] {
  from.pos = at;
  const ranges: IdRange[] = [];
  for (let left = from.long(); left > 0; left -= 1) ranges.push({ first: from.bigintAt(from.pos), count: from.long() });
  return ranges;
}

/** A copy, since an entry may outlive the fetched bytes around it. */
function copyOf(at: number, length: number): Buffer {
  return Buffer.from(from.buf.subarray(at, at + length));
}

function checkTotal(count: number, total: number): void {
  if (count < 1 || count !== total) throw new RangeError(`the ranges have ${total} IDs, but the count is ${count}`);
}

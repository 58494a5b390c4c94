import { hash } from 'node:crypto';
import { memoize } from '../core/memoize.ts';
import { describeError, IdallocError } from '../errors.ts';
import { decodeFramed, encodeFramed, loadSchema } from './avro.ts';
import { FINGERPRINT_BYTES, type Framing, HEADER_BYTES } from './framing.ts';
import {
  countIds,
  type IdBatch,
  maxBatchBytes,
  plainRanges,
  type WireBatch,
  wireToBatch,
  writeEvidence,
  writeRanges,
} from './id-batch.ts';
import { toSafeNumber } from './long.ts';
import { MAX_BYTES, MessageWriter } from './message-writer.ts';
import type { RecordHeaders } from './request-headers.ts';
import { decodeSequenceEntry, encodeSequenceEntry, type LedgerNumbers, type SequenceEntry } from './sequence-entry.ts';

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

/** Five times what the largest batch of any layout can need. */
const MAX_ENTRY_BYTES = 64 * 1024;

const schema = loadSchema('ledger-entry', MAX_ENTRY_BYTES);

/** The bytes before the body of each entry. */
export const LEDGER_ENTRY_HEADER = schema.header;

interface WireLedgerBatch extends Omit<WireBatch, 'ids'> {
  readonly request_hash: Buffer;
  readonly count: number;
  readonly reply_topic: string;
  readonly request_offset: bigint;
  readonly framing: Framing;
  readonly schema_fingerprint: Buffer;
}

interface Wire {
  readonly end: bigint;
  readonly through: bigint;
  readonly batch: WireLedgerBatch | null;
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

/** Cached: requests have few different counts and topics. */
const hashes = memoize((request) => {
  const space = request.indexOf(' ');
  const replyTopic = Buffer.from(request.slice(space + 1));
  const head = Buffer.alloc(8);
  head.writeUInt32BE(Number(request.slice(0, space)), 0);
  head.writeUInt32BE(replyTopic.length, 4);
  return hash('sha256', Buffer.concat([head, replyTopic]), 'buffer').subarray(0, HASH_BYTES);
}, 1_000);

/** The framed value of an entry. Throws if decodeLedgerEntry would reject the entry. */
export function encodeLedgerEntry(entry: LedgerEntry): Buffer {
  switch (entry.kind) {
    case 'batch':
      return encodeBatchEntry(entry);
    case 'marker':
      return encodeFramed(schema, { end: entry.end, through: entry.through, batch: null });
    default:
      return encodeSequenceEntry(entry);
  }
}

/** A marker whose writer had read nothing, so that it says nothing about the log. */
export const EMPTY_MARKER = encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 });

const writer = new MessageWriter();

/**
 * Every new request gets one, so it is written field by field: avsc takes an object of the schema's shape, and five
 * times as long.
 */
function encodeBatchEntry(entry: LedgerBatchEntry): Buffer {
  const { batch, replyTopic } = entry;
  checkTotal(entry.count, countIds(batch.ranges));
  writer.begin(MAX_FIXED_BYTES + MAX_BYTES.text(replyTopic) + maxBatchBytes(batch));
  writer.raw(schema.header);
  writer.long(entry.end);
  writer.long(entry.through);
  writer.long(1); // the branch of the union
  writer.fixed(entry.requestHash, HASH_BYTES);
  writer.int(entry.count);
  writer.text(replyTopic);
  writer.long(entry.requestOffset);
  writer.long(entry.framing === 'CONFLUENT' ? 1 : 0);
  writer.fixed(entry.schemaFingerprint, FINGERPRINT_BYTES);
  writeRanges(writer, batch.ranges);
  writeEvidence(writer, batch);
  return writer.end();
}

const MAX_FIXED_BYTES = HEADER_BYTES + 3 * MAX_BYTES.long + 3 * MAX_BYTES.int + HASH_BYTES + FINGERPRINT_BYTES;

const NO_HEADERS: RecordHeaders = {};

/**
 * Decodes an entry from its value, and a statement from its record's headers, too. Throws LEDGER_UNREADABLE for any
 * other schema, for values out of range, and for a statement with a malformed header.
 */
export function decodeLedgerEntry(value: Buffer, headers = NO_HEADERS): LedgerEntry {
  try {
    const wire = decodeFramed(schema, value);
    if (wire !== undefined) return fromWire(wire as Wire);
    const ofSequence = decodeSequenceEntry(value, headers);
    if (ofSequence !== undefined) return ofSequence;
    throw new Error('its schema is unknown');
  } catch (error) {
    throw new IdallocError(
      'LEDGER_UNREADABLE',
      `a ledger entry of ${value.length} bytes can't be read (${describeError(error)}): ` +
        'a newer release or another program wrote to the ledger topic',
      { cause: error },
    );
  }
}

function fromWire(wire: Wire): LedgerEntry {
  const end = toSafeNumber(wire.end, 'end', 0);
  const through = toSafeNumber(wire.through, 'through', -1);
  if (wire.batch === null) return { kind: 'marker', end, through };
  const fields = wire.batch;
  checkTotal(fields.count, countIds(fields.ranges));
  return {
    kind: 'batch',
    requestHash: fields.request_hash,
    count: fields.count,
    replyTopic: fields.reply_topic,
    requestOffset: toSafeNumber(fields.request_offset, 'request_offset', 0),
    batch: wireToBatch(fields, plainRanges(fields.ranges, fields.step)),
    framing: fields.framing,
    schemaFingerprint: fields.schema_fingerprint,
    end,
    through,
  };
}

function checkTotal(count: number, total: number): void {
  if (count < 1 || count !== total) throw new RangeError(`the ranges have ${total} IDs, but the count is ${count}`);
}

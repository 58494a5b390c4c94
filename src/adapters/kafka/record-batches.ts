import { setImmediate as nextTurn } from 'node:timers/promises';
import { inflate, UnreadableBatch } from './codecs.ts';

/** A record as kafkajs' consumer hands it on; the fields are what its own decoder gives. */
export interface FetchedRecord {
  readonly magicByte: number;
  readonly attributes: number;
  readonly timestamp: string;
  readonly offset: string;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: FetchedHeaders;
  readonly isControlRecord: boolean;
  readonly batchContext: { readonly producerId: string; readonly inTransaction: boolean };
}

type HeaderValue = Buffer | null;
type FetchedHeaders = Record<string, HeaderValue | HeaderValue[]>;

/** A record with more headers has only the first few of them read, and a header of ours that tells of the others. */
export const MAX_HEADERS = 1_000;
/** Leaves room for what a dead letter adds, so that it is not cut again when it is read. */
const KEPT_HEADERS = 900;
export const HEADERS_CUT = 'idalloc-headers-cut';
/** On the records that stand for a batch that can't be read: why. */
export const UNREADABLE = 'idalloc-unreadable';

/** Records and headers read before others get their turn, about 2 ms of work. */
const ITEMS_PER_TURN = 4_000;

/** The one that brokers have stored since 2017. */
export const RECORD_FORMAT = 2;
/** Positions in a record batch of format 2, from its first byte. */
const AT = { length: 8, magic: 16, attributes: 21, lastOffset: 23, time: 27, maxTime: 35, producer: 43, count: 57 };
const HEAD_BYTES = 61;
/** `length` counts what comes after itself. */
const LENGTH_END = 12;
const FLAGS = { logAppendTime: 0x08, transactional: 0x10, control: 0x20 };

/**
 * The records of a fetched partition, whose bytes anybody may have made up.
 *
 * kafkajs' own decoder takes a `constructor` header for one that comes twice, needs the square of the number of headers,
 * fails for a batch of more than about 100,000 records, stops the consumer for a codec that it does not know, inflates
 * without a bound and lets nobody else run meanwhile. Here nothing of it depends on the input: a batch that can't be
 * read becomes records without a value at its first and last offset, so that reading goes on behind it.
 *
 * The last batch may be cut off, by the limits of a fetch, and is left out then.
 */
export async function decodeRecordBatches(bytes: Buffer): Promise<FetchedRecord[]> {
  const records: FetchedRecord[] = [];
  const turns = new Turns();
  for (let at = 0; at + HEAD_BYTES <= bytes.length; ) {
    const end = at + LENGTH_END + bytes.readInt32BE(at + AT.length);
    if (end > bytes.length || end < at + HEAD_BYTES) break;
    await decodeBatch(bytes.subarray(at, end), records, turns);
    at = end;
  }
  return records;
}

/** Counts what was read, and tells when others are due. */
class Turns {
  #items = 0;

  isOver(items: number): boolean {
    this.#items += items;
    if (this.#items < ITEMS_PER_TURN) return false;
    this.#items = 0;
    return true;
  }
}

/** What all records of a batch share. */
interface BatchHead {
  readonly baseOffset: number;
  readonly lastOffset: number;
  /** Of the first record; any 64-bit number where senders choose it. */
  readonly baseTime: bigint;
  /** The broker's time, for all records alike; undefined where each has its own. */
  readonly appendTime: string | undefined;
  readonly count: number;
  readonly isControl: boolean;
  readonly context: FetchedRecord['batchContext'];
}

function readHead(batch: Buffer): BatchHead {
  const attributes = batch.readInt16BE(AT.attributes);
  const baseOffset = Number(batch.readBigInt64BE(0));
  const stamped = (attributes & FLAGS.logAppendTime) !== 0;
  return {
    baseOffset,
    lastOffset: baseOffset + batch.readInt32BE(AT.lastOffset),
    baseTime: batch.readBigInt64BE(AT.time),
    appendTime: stamped ? String(batch.readBigInt64BE(AT.maxTime)) : undefined,
    count: batch.readInt32BE(AT.count),
    isControl: (attributes & FLAGS.control) !== 0,
    context: {
      producerId: String(batch.readBigInt64BE(AT.producer)),
      inTransaction: (attributes & FLAGS.transactional) !== 0,
    },
  };
}

async function decodeBatch(batch: Buffer, records: FetchedRecord[], turns: Turns): Promise<void> {
  const head = readHead(batch);
  const before = records.length;
  try {
    if (batch[AT.magic] !== RECORD_FORMAT) throw new UnreadableBatch(`record format ${batch[AT.magic]} is not read`);
    const body = await inflate(batch.readInt16BE(AT.attributes), batch.subarray(HEAD_BYTES));
    const cursor = new Cursor(body);
    for (let i = 0; i < head.count; i += 1) {
      const record = readRecord(cursor, head);
      records.push(record);
      if (turns.isOver(1 + cursor.headersRead)) await nextTurn();
    }
  } catch (error) {
    if (!(error instanceof UnreadableBatch)) throw error;
    records.length = before;
    records.push(...standIns(head, error.message));
  }
}

/** One record at each end of a batch that can't be read: whoever follows offsets must find both. */
function standIns(head: BatchHead, reason: string): FetchedRecord[] {
  const offsets = head.lastOffset > head.baseOffset ? [head.baseOffset, head.lastOffset] : [head.baseOffset];
  const of = `${reason} (a batch of ${head.count} records, offsets ${head.baseOffset} to ${head.lastOffset})`;
  return offsets.map((offset) => ({
    magicByte: RECORD_FORMAT,
    attributes: 0,
    timestamp: head.appendTime ?? String(head.baseTime),
    offset: String(offset),
    key: null,
    value: null,
    headers: Object.assign(Object.create(null), { [UNREADABLE]: Buffer.from(of) }),
    isControlRecord: false,
    batchContext: head.context,
  }));
}

/**
 * Record: length varint, attributes int8, timestamp delta varlong, offset delta varint, key bytes, value bytes, headers;
 * bytes: length varint, -1 for null; headers: count varint, then name and value as bytes.
 */
function readRecord(cursor: Cursor, head: BatchHead): FetchedRecord {
  const end = cursor.startRecord();
  const attributes = cursor.byte();
  const timestamp = timestampOf(head, cursor.varlong());
  const offset = head.baseOffset + cursor.varint();
  const record = {
    magicByte: RECORD_FORMAT,
    attributes,
    timestamp,
    offset: String(offset),
    key: cursor.bytes(),
    value: cursor.bytes(),
    headers: readHeaders(cursor),
    isControlRecord: head.isControl,
    batchContext: head.context,
  };
  cursor.at = end;
  return record;
}

function timestampOf({ appendTime, baseTime }: BatchHead, delta: bigint): string {
  if (appendTime !== undefined) return appendTime;
  return String(BigInt.asIntN(64, baseTime + delta));
}

/** Without a prototype, so that no name is there before it was sent; a name that comes again makes a list. */
function readHeaders(cursor: Cursor): FetchedHeaders {
  const headers: FetchedHeaders = Object.create(null);
  const count = cursor.varint();
  const read = count > MAX_HEADERS ? KEPT_HEADERS : count;
  for (let i = 0; i < read; i += 1) {
    const name = cursor.bytes()?.toString('utf8') ?? '';
    const value = cursor.bytes();
    const known = headers[name];
    if (known === undefined) headers[name] = value;
    else if (Array.isArray(known)) known.push(value);
    else headers[name] = [known, value];
  }
  cursor.headersRead = read;
  if (count > read) headers[HEADERS_CUT] = Buffer.from(`${count - read} of ${count} left out`);
  return headers;
}

/** Reads on from a place that never passes the end; anything that would is an UnreadableBatch. */
class Cursor {
  readonly #buffer: Buffer;
  at = 0;
  /** Of the record read last. */
  headersRead = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  /** Where the record that starts here ends. */
  startRecord(): number {
    const length = this.varint();
    const end = this.at + length;
    if (length < 0 || end > this.#buffer.length) throw damaged();
    return end;
  }

  byte(): number {
    const byte = this.#buffer[this.at];
    if (byte === undefined) throw damaged();
    this.at += 1;
    return byte;
  }

  /** Zigzag, of at most 32 bits. */
  varint(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return (value >>> 1) ^ -(value & 1);
    }
    throw damaged();
  }

  /** Zigzag, of at most 64 bits; those that are small, nearly all, never become a big number on the way. */
  varlong(): bigint {
    let low = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.byte();
      low |= (byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt((low >>> 1) ^ -(low & 1));
    }
    let value = BigInt(low);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asIntN(64, (value >> 1n) ^ -(value & 1n));
    }
    throw damaged();
  }

  /** A view, not a copy; null for the length -1. */
  bytes(): Buffer | null {
    const length = this.varint();
    if (length === -1) return null;
    const start = this.at;
    if (length < 0 || start + length > this.#buffer.length) throw damaged();
    this.at = start + length;
    return this.#buffer.subarray(start, this.at);
  }
}

function damaged(): UnreadableBatch {
  return new UnreadableBatch('the batch is damaged');
}

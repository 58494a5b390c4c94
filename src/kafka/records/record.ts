import { type Bytes, Slice } from '../../core/slice.ts';

/** Headers by name, without a prototype; a repeated name has a list. */
export type HeaderValue = Buffer | null;
export type Headers = Readonly<Record<string, HeaderValue | readonly HeaderValue[]>>;

/** A record as it was read; nothing in it is validated yet. */
export interface FetchedRecord {
  readonly offset: number;
  /**
   * By the broker's clock where the topic has LogAppendTime, else by the sender's; NaN where that is not a safe
   * integer.
   */
  readonly timestampMs: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: Headers;
  /** Its batch has very many records for its bytes. The same at every reading. */
  readonly isDense?: boolean | undefined;
  /** Set in a record that stands for a dense batch which was not read: for all of its records, from this offset on. */
  readonly since?: number | undefined;
  /** Of a record that was read from a batch, these need neither views nor objects. */
  readonly fields?: RecordFields | undefined;
  /** Of a record that is a view of fetched bytes: a copy that does not keep these alive. */
  detached?(): FetchedRecord;
}

/** The value and the headers of a record, as they are in its batch. */
export interface RecordFields {
  /** The length of the whole record, decompressed. */
  readonly bytes: number;
  /** Whether value and headers are those of another record, but for the values of this header. */
  isLike(other: RecordFields, except: string): boolean;
  /** Whether both were read from one batch. */
  isOfBatch(other: RecordFields): boolean;
  /** The value of the first header of this name; undefined if there is none, or null. */
  headerAt(name: string): Slice | undefined;
}

/**
 * A batch is dense if it has more records than `records`, and fewer bytes than `bytesEach` for each, as it was sent.
 * Brokers limit the bytes of a sender, and compression can make a hundred thousand records of a few KB. A record with a
 * random UUID is never that small.
 */
export const DENSE = { records: 500, bytesEach: 16 } as const;

/** Whether a batch of so many records in so many bytes costs its readers far more than its sender. */
export function isDense(records: number, bytes: number): boolean {
  return records > DENSE.records && bytes < records * DENSE.bytesEach;
}

/** A record to write. */
export interface NewRecord {
  readonly key: Bytes | null;
  readonly value: Bytes | null;
  /** Strings are written as UTF-8, undefined as an empty value. */
  readonly headers?: Readonly<Record<string, Bytes | string | null | undefined | readonly (Bytes | string | null)[]>>;
  /** Milliseconds since 1970; by default the batch's timestamp. */
  readonly timestampMs?: number;
}

/**
 * A record's lengths, counts, time and offset are varints of at most this many bytes in all; each header has two
 * lengths.
 */
const MAX_FRAME_BYTES = 42;
const MAX_HEADER_FRAME_BYTES = 10;

/**
 * An upper bound of the bytes of a record in a batch, close for values of some tens of bytes. Cheaper than to encode
 * it.
 */
export function maxBytesOf({ key, value, headers }: NewRecord): number {
  let bytes = MAX_FRAME_BYTES + (key?.length ?? 0) + (value?.length ?? 0);
  for (const name in headers) {
    const found = headers[name];
    const values = Array.isArray(found) ? found : [found];
    for (const one of values) bytes += MAX_HEADER_FRAME_BYTES + 3 * name.length + utf8Bytes(one);
  }
  return bytes;
}

/** Three for each UTF-16 unit is the most that UTF-8 takes. */
function utf8Bytes(value: Bytes | string | null | undefined): number {
  return typeof value === 'string' ? 3 * value.length : (value?.length ?? 0);
}

/**
 * The partition of a record: by the hash of its key, as Kafka's Java client and kafkajs choose it, so that the records
 * of a key share a partition whichever client writes them. Records without a key go to `next()`, any integer from 0 on,
 * modulo the number of partitions.
 */
export function partitionFor(key: Buffer | Slice | null, partitions: number, next: () => number): number {
  if (key === null) return next() % partitions;
  const { bytes, at, length } = key instanceof Slice ? key : Slice.of(key);
  return (murmur2(bytes, at, length) & 0x7fff_ffff) % partitions;
}

const SEED = 0x9747b28c;
const MULTIPLIER = 0x5bd1e995;

/**
 * MurmurHash2, 32 bits, little endian (Austin Appleby, public domain), with the seed that Kafka's clients use. kafkajs'
 * own computes in a class of 64-bit numbers, which took a tenth of a worker's time.
 */
function murmur2(bytes: Buffer, from: number, length: number): number {
  let hash = SEED ^ length;
  const end = from + (length & ~3);
  for (let at = from; at < end; at += 4) {
    const read =
      byteAt(bytes, at) | (byteAt(bytes, at + 1) << 8) | (byteAt(bytes, at + 2) << 16) | (byteAt(bytes, at + 3) << 24);
    let word = Math.imul(read, MULTIPLIER);
    word = Math.imul(word ^ (word >>> 24), MULTIPLIER);
    hash = Math.imul(hash, MULTIPLIER) ^ word;
  }
  if (end < from + length) {
    for (let at = from + length - 1; at >= end; at -= 1) hash ^= byteAt(bytes, at) << (8 * (at - end));
    hash = Math.imul(hash, MULTIPLIER);
  }
  hash = Math.imul(hash ^ (hash >>> 13), MULTIPLIER);
  return hash ^ (hash >>> 15);
}

function byteAt(bytes: Buffer, at: number): number {
  return bytes[at] as number;
}

import type { Bytes } from '../../core/slice.ts';
import { AT, CHECKED_FROM, crc32c, LENGTH_END, RECORD_FORMAT, writeInt64 } from './format.ts';
import type { NewRecord } from './record.ts';

/**
 * Encodes one uncompressed record batch of a producer that is neither idempotent nor transactional, ready for a produce
 * request. The broker sets its offsets. A record without a timestamp, or with one that can't be encoded, gets the
 * batch's. The first record gets `firstHeaders` behind its own. Throws RangeError for no records, since a broker
 * rejects an empty batch.
 */
export function encodeBatch(
  records: readonly NewRecord[],
  baseTimestampMs: number,
  firstHeaders: NewRecord['headers'] = {},
): Buffer {
  if (records.length === 0) throw new RangeError('a record batch needs at least one record');
  const baseMs = Math.floor(baseTimestampMs);
  const names = new EncodedNames();
  // What is measured of a record is kept until it is written: its size, and how many headers it has.
  const sizes = new Int32Array(records.length);
  const counts = new Int32Array(records.length);
  let bytes = 0;
  let maxDelta = Number.NEGATIVE_INFINITY;
  records.forEach((record, i) => {
    const delta = timeDeltaOf(record, baseMs);
    const own = measure(record.headers, names);
    const more = i === 0 ? measure(firstHeaders, names) : NO_HEADERS;
    const count = own.count + more.count;
    const size =
      1 + // attributes
      varlongBytes(delta) +
      varintBytes(i) +
      sizedBytes(record.key) +
      sizedBytes(record.value) +
      varintBytes(count) +
      own.bytes +
      more.bytes;
    counts[i] = count;
    sizes[i] = size;
    bytes += varintBytes(size) + size;
    if (delta > maxDelta) maxDelta = delta;
  });
  const batch = Buffer.allocUnsafe(AT.records + bytes);
  const writer = new Writer(batch, AT.records);
  records.forEach((record, i) => {
    writer.varint(sizes[i] as number);
    writer.byte(0);
    writer.varlong(timeDeltaOf(record, baseMs));
    writer.varint(i);
    writer.sized(record.key);
    writer.sized(record.value);
    writer.varint(counts[i] as number);
    writeHeaders(writer, record.headers, names);
    if (i === 0) writeHeaders(writer, firstHeaders, names);
  });
  writeHead(batch, records.length, baseMs, maxDelta);
  return batch;
}

const EMPTY = Buffer.alloc(0);

type Value = Bytes | string | null;
type NewHeaders = NonNullable<NewRecord['headers']>;

/** The records of a batch have the same few names: each is encoded once. */
class EncodedNames {
  readonly #names = new Map<string, Buffer>();
  #last = '';
  #lastEncoded: Buffer = EMPTY;

  of(name: string): Buffer {
    if (name === this.#last) return this.#lastEncoded;
    this.#last = name;
    this.#lastEncoded = this.#names.get(name) ?? this.#encode(name);
    return this.#lastEncoded;
  }

  #encode(name: string): Buffer {
    const encoded = Buffer.from(name);
    this.#names.set(name, encoded);
    return encoded;
  }
}

/** How many headers there are, and the bytes that they take. */
interface Measure {
  readonly count: number;
  readonly bytes: number;
}

const NO_HEADERS: Measure = { count: 0, bytes: 0 };

function measure(headers: NewHeaders | undefined, names: EncodedNames): Measure {
  if (headers === undefined) return NO_HEADERS;
  let count = 0;
  let bytes = 0;
  for (const name in headers) {
    const nameBytes = sizedBytes(names.of(name));
    const value = headers[name];
    if (isList(value)) {
      count += value.length;
      for (const one of value) bytes += nameBytes + valueBytes(one);
    } else {
      count += 1;
      bytes += nameBytes + valueBytes(value);
    }
  }
  return { count, bytes };
}

function writeHeaders(writer: Writer, headers: NewHeaders | undefined, names: EncodedNames): void {
  for (const name in headers) {
    const encoded = names.of(name);
    const value = headers[name];
    if (isList(value)) for (const one of value) writer.header(encoded, one);
    else writer.header(encoded, value);
  }
}

function valueBytes(value: Value | undefined): number {
  if (value === undefined) return 1;
  if (typeof value !== 'string') return sizedBytes(value);
  const bytes = Buffer.byteLength(value);
  return varintBytes(bytes) + bytes;
}

/** Doubled by the zigzag encoding, a larger delta would not be a safe integer. */
const MAX_TIME_DELTA = 2 ** 52 - 1;

function timeDeltaOf({ timestampMs }: NewRecord, baseMs: number): number {
  if (timestampMs === undefined) return 0;
  const delta = Math.floor(timestampMs) - baseMs;
  return Math.abs(delta) <= MAX_TIME_DELTA ? delta : 0; // NaN is not
}

/** Array.isArray does not narrow a readonly array away. */
function isList(value: Value | undefined | readonly Value[]): value is readonly Value[] {
  return Array.isArray(value);
}

function writeHead(batch: Buffer, count: number, baseMs: number, maxDelta: number): void {
  batch.fill(0, AT.baseOffset, AT.length);
  batch.writeInt32BE(batch.length - LENGTH_END, AT.length);
  batch.fill(0xff, AT.leaderEpoch, AT.magic); // -1, none known
  batch.writeInt8(RECORD_FORMAT, AT.magic);
  batch.fill(0, AT.attributes, AT.lastOffset);
  batch.writeInt32BE(count - 1, AT.lastOffset);
  writeInt64(batch, baseMs, AT.baseTime);
  writeInt64(batch, baseMs + maxDelta, AT.maxTime);
  batch.fill(0xff, AT.producerId, AT.count); // -1 for producer, epoch and sequence: none
  batch.writeInt32BE(count, AT.count);
  batch.writeUInt32BE(crc32c(batch.subarray(CHECKED_FROM)), AT.crc);
}

/** Writes fields one after another into a buffer that the plan has sized. */
class Writer {
  readonly #bytes: Buffer;
  #at: number;

  constructor(bytes: Buffer, at: number) {
    this.#bytes = bytes;
    this.#at = at;
  }

  byte(value: number): void {
    this.#bytes[this.#at] = value;
    this.#at += 1;
  }

  /** Zigzag, of 32 bits. */
  varint(value: number): void {
    let left = ((value << 1) ^ (value >> 31)) >>> 0;
    while (left >= 0x80) {
      this.byte((left & 0x7f) | 0x80);
      left >>>= 7;
    }
    this.byte(left);
  }

  /** Zigzag, of up to 53 bits. */
  varlong(value: number): void {
    let left = zigzag(value);
    while (left >= 0x80) {
      this.byte((left % 0x80) | 0x80);
      left = Math.floor(left / 0x80);
    }
    this.byte(left);
  }

  /** The bytes after their length; null as the length -1. */
  sized(bytes: Bytes | null): void {
    this.varint(bytes?.length ?? -1);
    if (bytes === null) return;
    // A view is copied by the platform: its own `copy` checks more than is needed here.
    if (bytes instanceof Uint8Array) this.#bytes.set(bytes, this.#at);
    else bytes.copy(this.#bytes, this.#at);
    this.#at += bytes.length;
  }

  /** A name and a value, strings as UTF-8. */
  header(name: Buffer, value: Value | undefined): void {
    this.sized(name);
    if (typeof value === 'string') this.text(value);
    else this.sized(value === undefined ? EMPTY : value);
  }

  /** As UTF-8, after its length. */
  text(text: string): void {
    const bytes = Buffer.byteLength(text);
    this.varint(bytes);
    this.#bytes.write(text, this.#at, bytes, 'utf8');
    this.#at += bytes;
  }
}

function zigzag(value: number): number {
  return value < 0 ? -2 * value - 1 : 2 * value;
}

function sizedBytes(bytes: Bytes | null): number {
  return bytes === null ? 1 : varintBytes(bytes.length) + bytes.length;
}

/** `value` is at least -1. */
function varintBytes(value: number): number {
  if (value < 0x40) return 1;
  if (value < 0x2000) return 2;
  if (value < 0x10_0000) return 3;
  return value < 0x800_0000 ? 4 : 5;
}

function varlongBytes(value: number): number {
  let bytes = 1;
  for (let left = zigzag(value); left >= 0x80; left = Math.floor(left / 0x80)) bytes += 1;
  return bytes;
}

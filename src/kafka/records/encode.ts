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
  const plan = new Plan(records, baseMs, firstHeaders);
  const batch = Buffer.allocUnsafe(AT.records + plan.bytes);
  const writer = new Writer(batch, AT.records);
  records.forEach((record, i) => {
    writeRecord(writer, record, i, plan);
  });
  writeHead(batch, records.length, baseMs, plan.maxDelta);
  return batch;
}

type Value = Buffer | string | null;
type Headers = NonNullable<NewRecord['headers']>;

/**
 * The measurements of a batch before it is allocated, so that writing measures nothing again: the size of each record,
 * and the names and values of all headers in one list.
 */
class Plan {
  /** The size of all records, including their length fields. */
  bytes = 0;
  maxDelta = Number.NEGATIVE_INFINITY;
  /** By record: its size without its length, its time after the batch's, and where its headers end. */
  readonly sizes: number[] = [];
  readonly timeDeltas: number[] = [];
  readonly headerEnds: number[] = [];
  /** The headers of all records, in order. */
  readonly names: Buffer[] = [];
  readonly values: Value[] = [];
  readonly valueBytes: number[] = [];
  /** The records of a batch have the same few names. */
  readonly #encodedNames = new Map<string, Buffer>();

  constructor(records: readonly NewRecord[], baseMs: number, firstHeaders: Headers) {
    records.forEach((record, i) => {
      const timeDelta = timeDeltaOf(record, baseMs);
      const first = this.names.length;
      let headerBytes = record.headers === undefined ? 0 : this.#takeHeaders(record.headers);
      if (i === 0) headerBytes += this.#takeHeaders(firstHeaders);
      const size =
        1 + // attributes
        varlongBytes(timeDelta) +
        varintBytes(i) +
        sizedBytes(record.key) +
        sizedBytes(record.value) +
        varintBytes(this.names.length - first) +
        headerBytes;
      this.sizes.push(size);
      this.timeDeltas.push(timeDelta);
      this.headerEnds.push(this.names.length);
      this.bytes += varintBytes(size) + size;
      if (timeDelta > this.maxDelta) this.maxDelta = timeDelta;
    });
  }

  #takeHeaders(headers: Headers): number {
    let bytes = 0;
    for (const name of Object.keys(headers)) {
      const value = headers[name];
      const encoded = this.#encodedName(name);
      if (isList(value)) for (const one of value) bytes += this.#takeHeader(encoded, one);
      else bytes += this.#takeHeader(encoded, value ?? (value === null ? null : ''));
    }
    return bytes;
  }

  #takeHeader(name: Buffer, value: Value): number {
    const valueBytes = value === null ? -1 : typeof value === 'string' ? Buffer.byteLength(value) : value.length;
    this.names.push(name);
    this.values.push(value);
    this.valueBytes.push(valueBytes);
    return varintBytes(name.length) + name.length + varintBytes(valueBytes) + Math.max(valueBytes, 0);
  }

  #encodedName(name: string): Buffer {
    const known = this.#encodedNames.get(name);
    if (known !== undefined) return known;
    const encoded = Buffer.from(name);
    this.#encodedNames.set(name, encoded);
    return encoded;
  }
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

function writeRecord(writer: Writer, record: NewRecord, i: number, plan: Plan): void {
  const first = i === 0 ? 0 : (plan.headerEnds[i - 1] as number);
  const end = plan.headerEnds[i] as number;
  writer.varint(plan.sizes[i] as number);
  writer.byte(0);
  writer.varlong(plan.timeDeltas[i] as number);
  writer.varint(i);
  writer.sized(record.key);
  writer.sized(record.value);
  writer.varint(end - first);
  for (let at = first; at < end; at += 1) {
    writer.sized(plan.names[at] as Buffer);
    const value = plan.values[at] as Value;
    if (typeof value === 'string') writer.text(value, plan.valueBytes[at] as number);
    else writer.sized(value);
  }
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
  sized(bytes: Buffer | null): void {
    this.varint(bytes?.length ?? -1);
    if (bytes === null) return;
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  /** As UTF-8, which takes `bytes` bytes. */
  text(text: string, bytes: number): void {
    this.varint(bytes);
    this.#bytes.write(text, this.#at, bytes, 'utf8');
    this.#at += bytes;
  }
}

function zigzag(value: number): number {
  return value < 0 ? -2 * value - 1 : 2 * value;
}

function sizedBytes(bytes: Buffer | null): number {
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

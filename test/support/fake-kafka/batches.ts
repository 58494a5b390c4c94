import { crc32c } from '../../../src/kafka/records/format.ts';

/** Byte positions in a record batch of format 2. */
const AT = {
  baseOffset: 0,
  length: 8,
  leaderEpoch: 12,
  magic: 16,
  crc: 17,
  attributes: 21,
  lastOffsetDelta: 23,
  baseTime: 27,
  maxTime: 35,
  producerId: 43,
  producerEpoch: 51,
  baseSequence: 53,
  count: 57,
  records: 61,
} as const;
/** The length field counts the bytes after itself. */
const LENGTH_END = 12;
const MAGIC = 2;
const FLAG = { logAppendTime: 0x08, transactional: 0x10, control: 0x20 } as const;
const NO_PRODUCER = -1n;

/** The fields of a batch that a broker reads. */
export interface BatchHead {
  readonly baseOffset: number;
  readonly lastOffset: number;
  readonly maxTimestampMs: number;
  readonly producerId: bigint;
  readonly isTransactional: boolean;
  readonly isControl: boolean;
}

export function headOf(batch: Buffer): BatchHead {
  const attributes = batch.readInt16BE(AT.attributes);
  const baseOffset = Number(batch.readBigInt64BE(AT.baseOffset));
  return {
    baseOffset,
    lastOffset: baseOffset + batch.readInt32BE(AT.lastOffsetDelta),
    maxTimestampMs: Number(batch.readBigInt64BE(AT.maxTime)),
    producerId: batch.readBigInt64BE(AT.producerId),
    isTransactional: (attributes & FLAG.transactional) !== 0,
    isControl: (attributes & FLAG.control) !== 0,
  };
}

/** Whether a broker would accept these bytes: one whole, non-empty batch of format 2 with a valid checksum. */
export function isSound(batch: Buffer): boolean {
  if (batch.length < AT.records || batch.readInt32BE(AT.length) !== batch.length - LENGTH_END) return false;
  const count = batch.readInt32BE(AT.count);
  return (
    batch[AT.magic] === MAGIC &&
    count > 0 &&
    batch.readInt32BE(AT.lastOffsetDelta) === count - 1 &&
    batch.readUInt32BE(AT.crc) === crc32c(batch.subarray(AT.attributes))
  );
}

/** A copy as a broker stores it: at its offset and, with LogAppendTime, with the broker's timestamp. */
export function stamped(batch: Buffer, baseOffset: number, leaderEpoch: number, appendedAtMs?: number): Buffer {
  const stored = Buffer.from(batch);
  stored.writeBigInt64BE(BigInt(baseOffset), AT.baseOffset);
  stored.writeInt32BE(leaderEpoch, AT.leaderEpoch);
  if (appendedAtMs !== undefined) {
    stored.writeInt16BE(stored.readInt16BE(AT.attributes) | FLAG.logAppendTime, AT.attributes);
    stored.writeBigInt64BE(BigInt(appendedAtMs), AT.maxTime);
    seal(stored);
  }
  return stored;
}

/** The first record of a stored, uncompressed batch that is not older; undefined if there is none. */
export function offsetAtTime(batch: Buffer, timestampMs: number): number | undefined {
  return recordsOf(batch).find((record) => record.timestampMs >= timestampMs)?.offset;
}

/** Whether a record of an uncompressed batch has no key, which a compacted topic rejects. */
export function hasKeylessRecord(batch: Buffer): boolean {
  return recordsOf(batch).some(({ key }) => key === null);
}

/** Whether a record of an uncompressed batch is from before a time. */
export function hasOlderRecord(batch: Buffer, timeMs: number): boolean {
  return timeMs > 0 && recordsOf(batch).some(({ timestampMs }) => timestampMs < timeMs);
}

export interface PlainRecord {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers?: Readonly<Record<string, string | Buffer>>;
}

/** The records of an uncompressed batch, for tests. */
export function recordsOf(batch: Buffer): (PlainRecord & { readonly offset: number; readonly timestampMs: number })[] {
  const head = headOf(batch);
  const isStamped = (batch.readInt16BE(AT.attributes) & FLAG.logAppendTime) !== 0;
  const baseTimeMs = Number(batch.readBigInt64BE(AT.baseTime));
  const reader = new Reader(batch, AT.records);
  return Array.from({ length: batch.readInt32BE(AT.count) }, () => {
    reader.varint();
    reader.at += 1;
    const timestampMs = baseTimeMs + reader.varint();
    const offset = head.baseOffset + reader.varint();
    const [key, value] = [reader.bytes(), reader.bytes()];
    const headers: Record<string, Buffer> = {};
    for (let left = reader.varint(); left > 0; left -= 1) {
      const name = String(reader.bytes());
      headers[name] = reader.bytes() ?? Buffer.alloc(0);
    }
    return { offset, timestampMs: isStamped ? head.maxTimestampMs : timestampMs, key, value, headers };
  });
}

class Reader {
  readonly #bytes: Buffer;
  at: number;

  constructor(bytes: Buffer, at: number) {
    this.#bytes = bytes;
    this.at = at;
  }

  varint(): number {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.#bytes[this.at++] ?? 0;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
  }

  bytes(): Buffer | null {
    const length = this.varint();
    if (length < 0) return null;
    this.at += length;
    return this.#bytes.subarray(this.at - length, this.at);
  }
}

export interface BatchOptions {
  readonly timestampMs: number;
  /** The producer of the transaction that this batch is part of. */
  readonly producerId?: bigint;
}

/** An uncompressed batch, as another producer may write it. */
export function batchOf(records: readonly PlainRecord[], { timestampMs, producerId }: BatchOptions): Buffer {
  const bodies = records.map((record, i) => {
    const headers = Object.entries(record.headers ?? {});
    const fields = [
      Buffer.alloc(1),
      varint(0),
      varint(i),
      sized(record.key),
      sized(record.value),
      varint(headers.length),
      ...headers.flatMap(([name, value]) => [sized(Buffer.from(name)), sized(Buffer.from(value))]),
    ];
    return sized(Buffer.concat(fields));
  });
  return assemble(bodies, timestampMs, producerId ?? NO_PRODUCER, producerId === undefined ? 0 : FLAG.transactional);
}

/** The marker that ends a transaction in a partition. */
export function markerOf(kind: 'abort' | 'commit', producerId: bigint, timestampMs: number): Buffer {
  const [key, value] = [Buffer.alloc(4), Buffer.alloc(6)];
  key.writeInt16BE(kind === 'commit' ? 1 : 0, 2);
  const body = sized(Buffer.concat([Buffer.alloc(1), varint(0), varint(0), sized(key), sized(value), varint(0)]));
  return assemble([body], timestampMs, producerId, FLAG.transactional | FLAG.control);
}

export function isCommitMarker(batch: Buffer): boolean {
  return recordsOf(batch)[0]?.key?.readInt16BE(2) === 1;
}

function assemble(bodies: readonly Buffer[], timestampMs: number, producerId: bigint, flags: number): Buffer {
  const batch = Buffer.concat([Buffer.alloc(AT.records), ...bodies]);
  batch.writeInt32BE(batch.length - LENGTH_END, AT.length);
  batch.writeInt32BE(-1, AT.leaderEpoch);
  batch[AT.magic] = MAGIC;
  batch.writeInt16BE(flags, AT.attributes);
  batch.writeInt32BE(bodies.length - 1, AT.lastOffsetDelta);
  batch.writeBigInt64BE(BigInt(timestampMs), AT.baseTime);
  batch.writeBigInt64BE(BigInt(timestampMs), AT.maxTime);
  batch.writeBigInt64BE(producerId, AT.producerId);
  batch.writeInt16BE(producerId === NO_PRODUCER ? -1 : 0, AT.producerEpoch);
  batch.writeInt32BE(-1, AT.baseSequence);
  batch.writeInt32BE(bodies.length, AT.count);
  seal(batch);
  return batch;
}

function seal(batch: Buffer): void {
  batch.writeUInt32BE(crc32c(batch.subarray(AT.attributes)), AT.crc);
}

function sized(bytes: Buffer | null): Buffer {
  return bytes === null ? varint(-1) : Buffer.concat([varint(bytes.length), bytes]);
}

/** Zigzag. */
function varint(value: number): Buffer {
  const bytes: number[] = [];
  let left = value < 0 ? -2 * value - 1 : 2 * value;
  while (left >= 128) {
    bytes.push((left % 128) | 0x80);
    left = Math.floor(left / 128);
  }
  return Buffer.from([...bytes, left]);
}

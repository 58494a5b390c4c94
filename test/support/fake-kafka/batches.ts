import { crc32c } from '../../../src/kafka/records/format.ts';
import {
  type BatchFields,
  FLAG,
  batchOf as handmadeBatch,
  markerOf as handmadeMarker,
  NO_PRODUCER,
} from '../record-bytes.ts';

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
  count: 57,
  records: 61,
} as const;
/** The length field counts the bytes after itself. */
const LENGTH_END = 12;
const MAGIC = 2;

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
  const handmade = records.map(({ key, value, headers = {} }) => ({
    ...{ key, value },
    headers: Object.entries(headers).map(([name, its]) => [Buffer.from(name), Buffer.from(its)] as const),
  }));
  const attributes = producerId === undefined ? 0 : FLAG.transactional;
  return handmadeBatch(handmade, { ...at(timestampMs), attributes, producerId: producerId ?? NO_PRODUCER });
}

/** The marker that ends a transaction in a partition. */
export function markerOf(kind: 'abort' | 'commit', producerId: bigint, timestampMs: number): Buffer {
  return handmadeMarker(kind, { ...at(timestampMs), producerId });
}

function at(timestampMs: number): Pick<BatchFields, 'baseTime' | 'maxTime'> {
  return { baseTime: BigInt(timestampMs), maxTime: BigInt(timestampMs) };
}

export function isCommitMarker(batch: Buffer): boolean {
  return recordsOf(batch)[0]?.key?.readInt16BE(2) === 1;
}

function seal(batch: Buffer): void {
  batch.writeUInt32BE(crc32c(batch.subarray(AT.attributes)), AT.crc);
}

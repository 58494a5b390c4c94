import { createRequire } from 'node:module';
import type { FetchedRecord } from '../../src/kafka/records/record.ts';

/** kafkajs' implementation, so that ours is checked by another one. */
const crc32c: (bytes: Buffer) => number = createRequire(import.meta.url)(
  'kafkajs/src/protocol/recordBatch/crc32C/index.js',
);

/** A record with fields that other encoders refuse: header names that are not text, values that are null. */
export interface HandmadeRecord {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers?: readonly (readonly [Buffer, Buffer | null])[];
}

/**
 * A zigzag varint, as in Kafka's record format and in Avro; of any size, since some tests need one that is too long.
 */
export function varint(value: bigint | number): Buffer {
  const number = BigInt(value);
  const bytes: number[] = [];
  let left = number >= 0n ? number << 1n : (-number << 1n) - 1n;
  for (; left >= 0x80n; left >>= 7n) bytes.push(Number(left & 0x7fn) | 0x80);
  return Buffer.from([...bytes, Number(left)]);
}

function sized(bytes: Buffer | null): Buffer {
  return bytes === null ? varint(-1) : Buffer.concat([varint(bytes.length), bytes]);
}

/** One record of a batch in format 2, with its length. */
export function encodeRecord({ key, value, headers = [] }: HandmadeRecord, offsetDelta = 0, timeDelta = 0n): Buffer {
  const body = Buffer.concat([
    Buffer.of(0),
    varint(timeDelta),
    varint(offsetDelta),
    sized(key),
    sized(value),
    varint(headers.length),
    ...headers.flatMap(([name, its]) => [sized(name), sized(its)]),
  ]);
  return Buffer.concat([varint(body.length), body]);
}

export const CODEC = { gzip: 1, snappy: 2, lz4: 3, zstd: 4 } as const;
export const FLAG = { logAppendTime: 0x08, transactional: 0x10, control: 0x20 } as const;

export interface BatchFields {
  readonly baseOffset?: bigint;
  readonly attributes?: number;
  readonly baseTime?: bigint;
  readonly maxTime?: bigint;
  readonly producerId?: bigint;
  readonly count?: number;
  readonly lastOffsetDelta?: number;
}

const HEAD_BYTES = 61;
/** The producer of batches that belong to no transaction, and whose producer is not idempotent. */
export const NO_PRODUCER = -1n;

/** A record batch in format 2 around the bytes of its records, with their checksum. */
export function batchAround(body: Buffer, fields: BatchFields & { readonly count: number }): Buffer {
  const { baseOffset = 0n, attributes = 0, baseTime = 0n, maxTime = 0n, producerId = 7n, count } = fields;
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeBigInt64BE(baseOffset, 0);
  head.writeInt32BE(HEAD_BYTES - 12 + body.length, 8);
  head[16] = 2;
  head.writeInt16BE(attributes, 21);
  head.writeInt32BE(fields.lastOffsetDelta ?? count - 1, 23);
  head.writeBigInt64BE(baseTime, 27);
  head.writeBigInt64BE(maxTime, 35);
  head.writeBigInt64BE(producerId, 43);
  if (producerId === NO_PRODUCER) head.fill(0xff, 51, 57); // no epoch, and no sequence
  head.writeInt32BE(count, 57);
  return sealed(Buffer.concat([head, body]));
}

/** Sets the checksum of a changed batch. */
export function sealed(batch: Buffer): Buffer {
  batch.writeUInt32BE(crc32c(batch.subarray(21)), 17);
  return batch;
}

export function batchOf(
  records: readonly HandmadeRecord[],
  fields: BatchFields = {},
  compress: (bytes: Buffer) => Buffer = (bytes) => bytes,
): Buffer {
  const body = Buffer.concat(records.map((record, i) => encodeRecord(record, i)));
  return batchAround(compress(body), { count: records.length, ...fields });
}

/** A batch with one control record: the marker that ends a transaction. */
export function markerOf(kind: 'abort' | 'commit', fields: BatchFields): Buffer {
  const key = Buffer.from([0, 0, 0, kind === 'commit' ? 1 : 0]);
  return batchOf([{ key, value: Buffer.alloc(6) }], { attributes: FLAG.transactional | FLAG.control, ...fields });
}

export const plain = (value: string): HandmadeRecord => ({ key: Buffer.from('k'), value: Buffer.from(value) });

/** Snappy without compression: the length, then literals, each with its length less one in two bytes. */
export function storedSnappy(bytes: Buffer): Buffer {
  const parts: Buffer[] = [unsigned(bytes.length)];
  for (let at = 0; at < bytes.length; at += 60_000) {
    const literal = bytes.subarray(at, at + 60_000);
    const tag = Buffer.from([61 << 2, 0, 0]);
    tag.writeUInt16LE(literal.length - 1, 1);
    parts.push(tag, literal);
  }
  return Buffer.concat(parts);
}

function unsigned(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  for (; left >= 0x80; left = Math.floor(left / 0x80)) bytes.push((left % 0x80) | 0x80);
  return Buffer.from([...bytes, left]);
}

/** Xerial's framing of Snappy: blocks of `blockBytes`, each after its length. */
export function xerial(compress: (block: Buffer) => Buffer, blockBytes = 32_768): (bytes: Buffer) => Buffer {
  return (bytes) => {
    const parts: Buffer[] = [Buffer.from('82534e4150505900' + '00000001' + '00000001', 'hex')];
    for (let at = 0; at < bytes.length; at += blockBytes) {
      const block = compress(bytes.subarray(at, at + blockBytes));
      const length = Buffer.alloc(4);
      length.writeUInt32BE(block.length);
      parts.push(length, block);
    }
    return Buffer.concat(parts);
  };
}

export interface Lz4Frame {
  /** The flags for version, independent blocks, checksums and content size. */
  readonly flags?: number;
  /** 4 for 64 KiB, to 7 for 4 MiB. */
  readonly blockSize?: number;
  readonly blockBytes?: number;
  /** Compresses a block; by default blocks are stored uncompressed. */
  readonly compress?: (block: Buffer, before: Buffer) => Buffer;
}

/** An LZ4 frame built byte by byte. */
export function lz4Frame(bytes: Buffer, frame: Lz4Frame = {}): Buffer {
  const { flags = 0x60, blockSize = 4, blockBytes = 65_536, compress } = frame;
  const contentSize = Buffer.alloc(8);
  contentSize.writeBigUInt64LE(BigInt(bytes.length));
  const head = Buffer.from([0x04, 0x22, 0x4d, 0x18, flags, blockSize << 4]);
  const parts: Uint8Array[] = [head, (flags & 0x08) === 0 ? Buffer.alloc(0) : contentSize, Buffer.of(0x82)];
  for (let at = 0; at < bytes.length; at += blockBytes) {
    const block = bytes.subarray(at, at + blockBytes);
    const its = compress?.(block, bytes.subarray(Math.max(0, at - 65_536), at)) ?? block;
    const size = Buffer.alloc(4);
    size.writeUInt32LE(its.length + (compress === undefined ? 0x8000_0000 : 0));
    parts.push(size, its, Buffer.alloc((flags & 0x10) === 0 ? 0 : 4, 0xaa));
  }
  return Buffer.concat([...parts, Buffer.alloc(4)]);
}

/** What was fetched, as plain values: the fields of a record are read from its batch when they are asked for. */
export function plainRecord({ offset, timestampMs, key, value, headers, isDense, since }: FetchedRecord) {
  return {
    offset,
    timestampMs,
    key,
    value,
    headers: { ...headers },
    ...(isDense && { isDense }),
    ...(since && { since }),
  };
}

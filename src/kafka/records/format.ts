import crc from '@chainsafe/fast-crc32c';
import { isDense } from './record.ts';

/** The record batch format that brokers have stored since 2017, and the only one supported here. */
export const RECORD_FORMAT = 2;

/** Byte positions in a record batch of that format; up to `magic` they are the same in older formats. */
export const AT = {
  baseOffset: 0,
  length: 8,
  leaderEpoch: 12,
  magic: 16,
  crc: 17,
  attributes: 21,
  lastOffset: 23,
  baseTime: 27,
  maxTime: 35,
  producerId: 43,
  producerEpoch: 51,
  sequence: 53,
  count: 57,
  records: 61,
} as const;

/** `length` counts what comes after itself. */
export const LENGTH_END = 12;
/**
 * Where the batch at a position ends, as its head says; undefined if it is cut off. Too low a value if it is damaged.
 */
export function endOfBatch(bytes: Buffer, at: number): number | undefined {
  if (at + LENGTH_END > bytes.length) return undefined;
  const end = at + LENGTH_END + bytes.readInt32BE(at + AT.length);
  return end > bytes.length ? undefined : end;
}

/** The checksum covers everything from here to the end. The broker may change the bytes before it. */
export const CHECKED_FROM = AT.attributes;

/** In `attributes`. */
export const CODEC_MASK = 0x07;
export const FLAGS = { logAppendTime: 0x08, transactional: 0x10, control: 0x20 } as const;

const TWO_TO_32 = 2 ** 32;

/** A 64-bit number, or NaN where it is not a safe integer. */
export function readInt64(bytes: Buffer, at: number): number {
  const value = bytes.readInt32BE(at) * TWO_TO_32 + bytes.readUInt32BE(at + 4);
  return Number.isSafeInteger(value) ? value : Number.NaN;
}

/** `value` is a safe integer. */
export function writeInt64(bytes: Buffer, value: number, at: number): void {
  const high = Math.floor(value / TWO_TO_32);
  bytes.writeInt32BE(high, at);
  bytes.writeUInt32BE(value - high * TWO_TO_32, at + 4);
}

/** The checksum of record batches (CRC-32 with Castagnoli's polynomial). */
export function crc32c(bytes: Uint8Array): number {
  return crc.calculate(bytes);
}

/** The fields that all records of a batch share. */
export interface BatchHead {
  readonly attributes: number;
  readonly baseOffset: number;
  readonly lastOffset: number;
  /** The time of the first record; any 64-bit number where senders choose it. */
  readonly baseTime: bigint | number;
  /** The broker's time, the same for all records; undefined where each record has its own. */
  readonly appendedAtMs: number | undefined;
  readonly count: number;
  readonly isDense: boolean;
}

/** Why the head of a batch is invalid; undefined if it is valid. */
export function headProblem(batch: Buffer): string | undefined {
  const format = batch[AT.magic];
  if (format !== RECORD_FORMAT) return `record format ${format} is not supported`;
  if (batch.length < AT.records) return 'the batch is damaged';
  if (batch.readUInt32BE(AT.crc) !== crc32c(batch.subarray(CHECKED_FROM))) return 'the checksum of the batch is wrong';
  const baseOffset = readInt64(batch, AT.baseOffset);
  const lastOffset = baseOffset + batch.readInt32BE(AT.lastOffset);
  const isPossible = baseOffset >= 0 && lastOffset >= baseOffset && Number.isSafeInteger(lastOffset + 1);
  return isPossible && batch.readInt32BE(AT.count) >= 0 ? undefined : 'the batch is damaged';
}

/** Reads the head of a batch that `headProblem` accepted. */
export function readHead(batch: Buffer): BatchHead {
  const attributes = batch.readInt16BE(AT.attributes);
  const baseOffset = readInt64(batch, AT.baseOffset);
  const baseTime = readInt64(batch, AT.baseTime);
  const count = batch.readInt32BE(AT.count);
  return {
    attributes,
    baseOffset,
    lastOffset: baseOffset + batch.readInt32BE(AT.lastOffset),
    baseTime: Number.isNaN(baseTime) ? batch.readBigInt64BE(AT.baseTime) : baseTime,
    appendedAtMs: (attributes & FLAGS.logAppendTime) === 0 ? undefined : readInt64(batch, AT.maxTime),
    count,
    isDense: isDense(count, batch.length),
  };
}

/** Milliseconds since 1970, or NaN where that is not a safe integer. */
export function timestampOf({ appendedAtMs, baseTime }: BatchHead, delta: number | bigint): number {
  if (appendedAtMs !== undefined) return appendedAtMs;
  const exact =
    typeof baseTime === 'number' && typeof delta === 'number'
      ? baseTime + delta
      : Number(BigInt.asIntN(64, BigInt(baseTime) + BigInt(delta)));
  return Number.isSafeInteger(exact) ? exact : Number.NaN;
}

import { crc32c } from './crc32c.ts';
import { AT, CHECKED_FROM, FLAGS, RECORD_FORMAT, readInt64 } from './format.ts';
import { type Bulk, bulkOf } from './record.ts';

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
  readonly bulk: Bulk | undefined;
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
    bulk: bulkOf(count, batch.length),
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

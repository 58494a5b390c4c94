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

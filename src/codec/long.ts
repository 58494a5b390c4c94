import type { IdRange } from '../core/generator.ts';

/** What can be written as a long: a BigInt, or a safe integer. */
export type Long = bigint | number;

/**
 * The most bytes of Avro's long:
 *
 *   zigzag: n >= 0 → 2n, n < 0 → -2n - 1; then seven bits a byte, lowest first, high bit set on all but the last
 */
export const MAX_LONG_BYTES = 10;
const MAX_UINT32 = 0xffff_ffff;

const scratch = new DataView(new ArrayBuffer(8));

const MIN_INT64 = -(2n ** 63n);
const MAX_INT64 = 2n ** 63n - 1n;

/**
 * Writes a long at `at`, where the target has room for ten bytes; returns where it ends. RangeError for anything but a
 * 64-bit integer.
 */
export function putLong(target: Buffer, at: number, value: Long): number {
  if (!isInt64(value)) throw new RangeError(`${value} is not a 64-bit integer`);
  if (typeof value === 'number' && value >= 0 && value < 2 ** 31) return putVarint(target, at, 0, value * 2);
  if (typeof value === 'bigint') scratch.setBigInt64(0, value, true);
  else {
    scratch.setInt32(0, value % 2 ** 32, true);
    scratch.setInt32(4, Math.floor(value / 2 ** 32), true);
  }
  const low = scratch.getInt32(0, true);
  const high = scratch.getInt32(4, true);
  const sign = high >> 31;
  const zigLow = ((low << 1) ^ sign) >>> 0;
  const zigHigh = (((high << 1) | (low >>> 31)) ^ sign) >>> 0;
  return putVarint(target, at, zigHigh, zigLow);
}

/** Writes a zigzagged value, given as two unsigned halves; returns where it ends. */
function putVarint(target: Uint8Array, at: number, zigHigh: number, zigLow: number): number {
  let high = zigHigh;
  let low = zigLow;
  let end = at;
  while (high !== 0 || low > 0x7f) {
    target[end++] = (low & 0x7f) | 0x80;
    low = ((low >>> 7) | (high << 25)) >>> 0;
    high >>>= 7;
  }
  target[end++] = low;
  return end;
}

/** The lowest bits of a long, which take four bytes of its varint, if it has more. */
const LOWEST_BITS = 28;

/**
 * Writes the length of an Avro array and its items, without the zero that ends it: rising longs from 0 to 2^63 - 1.
 * Returns where they end. Up to ten bytes behind that are overwritten, so write what follows afterwards. A list of
 * 100,000 must not take long, so the four lowest bytes of a varint are written as one word; those above seldom change.
 */
export function putLongs(bytes: Uint8Array, from: number, runs: readonly IdRange[], step: bigint): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let end = putVarint(bytes, from, 0, countOf(runs) * 2);
  const by = zigzagged(step);
  for (const { first, count } of runs) {
    let { high, low } = zigzagged(first);
    // This is what is above the lowest bits, and its bytes of the varint.
    const above = { value: 0, length: 0, word: 0, rest: 0 };
    for (let k = 0; k < count; k += 1) {
      const value = high * 16 + (low >>> LOWEST_BITS);
      if (value === 0) end = putVarint(bytes, end, high, low);
      else {
        const at = end + 4;
        if (value !== above.value) {
          above.value = value;
          above.length = putVarint(bytes, at, high >>> LOWEST_BITS, ((high << 4) | (low >>> LOWEST_BITS)) >>> 0) - at;
          above.word = view.getUint32(at);
          above.rest = view.getUint16(at + 4);
        }
        view.setUint32(end, spread(low), true);
        view.setUint32(at, above.word);
        view.setUint16(at + 4, above.rest);
        end = at + above.length;
      }
      low += by.low;
      high = (high + by.high + (low > MAX_UINT32 ? 1 : 0)) >>> 0;
      low >>>= 0;
    }
  }
  return end;
}

/** How many bytes putLongs writes: each long has one, and one more for each seven bits that it is too large for. */
export function lengthOfLongs(runs: readonly IdRange[], step: bigint): number {
  const total = countOf(runs);
  let bytes = putVarint(nearEnd, 0, 0, total * 2) + total;
  for (let bound = 2n ** 6n; bound <= MAX_INT64; bound *= 2n ** 7n)
    for (const run of runs) bytes += run.count - countBelow(bound, run, step);
  return bytes;
}

function countBelow(bound: bigint, { first, count }: IdRange, step: bigint): number {
  const below = first < bound ? (bound - first + step - 1n) / step : 0n;
  return below < count ? Number(below) : count;
}

const countOf = (runs: readonly IdRange[]) => runs.reduce((sum, { count }) => sum + count, 0);

/** The 28 lowest bits in four bytes, seven in each, with the high bits set. */
function spread(low: number): number {
  return 0x8080_8080 | (low & 0x7f) | ((low & 0x3f80) << 1) | ((low & 0x1f_c000) << 2) | ((low & 0xfe0_0000) << 3);
}

/** Twice a value that is not negative, as two unsigned halves. */
function zigzagged(value: bigint): { readonly high: number; readonly low: number } {
  return { high: Number((value >> 31n) & BigInt(MAX_UINT32)), low: Number((value << 1n) & BigInt(MAX_UINT32)) };
}

/** The cursor that avsc passes to a type; `pos` may exceed the length, which avsc checks only at the end. */
export interface LongTap {
  readonly buf: Buffer;
  pos: number;
}

/** Decodes a varint. RangeError for more than 64 bits; decodeStrict rejects overlong ones. */
export function readLong(tap: LongTap): bigint {
  const { buf } = tap;
  let zigLow = 0;
  let zigHigh = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = tap.pos < buf.length ? (buf[tap.pos] as number) : 0;
    tap.pos += 1;
    const bits = byte & 0x7f;
    if (shift < 32) zigLow |= bits << shift;
    if (shift >= 32) zigHigh |= bits << (shift - 32);
    else if (shift > 25) zigHigh |= bits >>> (32 - shift);
    if (byte < 0x80) {
      if (shift === 63 && byte > 1) throw tooLong();
      break;
    }
    if (shift === 63) throw tooLong();
  }
  const sign = -(zigLow & 1);
  scratch.setInt32(0, ((zigLow >>> 1) | (zigHigh << 31)) ^ sign, true);
  scratch.setInt32(4, (zigHigh >>> 1) ^ sign, true);
  return scratch.getBigInt64(0, true);
}

function tooLong(): RangeError {
  return new RangeError('a long has more than 64 bits');
}

/** Writes a long where avsc's cursor is, and moves it. RangeError for anything but a 64-bit integer. */
export function writeLong(tap: LongTap, value: Long): void {
  if (tap.pos + MAX_LONG_BYTES <= tap.buf.length) {
    tap.pos = putLong(tap.buf, tap.pos, value);
    return;
  }
  // Near the end of the buffer: avsc encodes again in a larger one if it was too small.
  const end = putLong(nearEnd, 0, value);
  nearEnd.copy(tap.buf, tap.pos, 0, end);
  tap.pos += end;
}

const nearEnd = Buffer.alloc(MAX_LONG_BYTES);

export function isInt64(value: unknown): value is Long {
  if (typeof value === 'number') return Number.isSafeInteger(value);
  return typeof value === 'bigint' && value >= MIN_INT64 && value <= MAX_INT64;
}

/**
 * A long as a number. RangeError outside [min, max]; the bounds must be safe integers.
 * For offsets and times, which are far below 2^53 when they are valid.
 */
export function toSafeNumber(value: Long, field: string, min: number, max: number = Number.MAX_SAFE_INTEGER): number {
  const number = Number(value);
  if (!(number >= min && number <= max)) throw new RangeError(`${field} ${value} is outside ${min}..${max}`);
  return number;
}

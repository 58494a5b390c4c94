import { randomBytes } from 'node:crypto';
import type { EntryKey } from '../../codec/ledger-key.ts';

/**
 * The stored form of entries: for each, the hash of its key and its place within its run, 64 bits in two words. The
 * upper word has the highest 32 bits of the hash, the lower one its last 11 bits and the place. As 64-bit integers they
 * sort by hash, then by place.
 */
export type Items = Uint32Array<ArrayBuffer>;

const PLACE_BITS = 21;
/** The most entries of a run. */
export const MAX_PLACES = 2 ** PLACE_BITS;
/** The number of values of a hash's lower part. */
const LOWER_HASHES = 2 ** 11;
const UPPER_HASHES = 2 ** 32;
const PLACE_MASK = MAX_PLACES - 1;

export const ITEM_WORDS = 2;

export function upperOf(hash: number): number {
  return Math.floor(hash / LOWER_HASHES);
}

export function lowerOf(hash: number, place: number): number {
  return (hash % LOWER_HASHES) * MAX_PLACES + place;
}

/** The lower 32 bits of a hash, of which `upperOf` has the upper ones. */
export function bitsOf(hash: number): number {
  return hash | 0;
}

/** As `bitsOf`, from an item's words. */
export function bitsIn(lower: number, upper: number): number {
  return (upper << 11) | (lower >>> PLACE_BITS);
}

/** The hash in an item's words. */
export function hashIn(lower: number, upper: number): number {
  return upper * LOWER_HASHES + (lower >>> PLACE_BITS);
}

export function placeIn(lower: number): number {
  return lower & PLACE_MASK;
}

/** Sorts by hash, then by place. Needs a little-endian machine, as all platforms of the images are. */
export function sortItems(items: Items): void {
  new BigUint64Array(items.buffer, items.byteOffset, items.length / ITEM_WORDS).sort();
}

/** The part that a hash is in, when all hashes are divided into `parts` equal parts. */
export function partOf(upper: number, parts: number): number {
  return Math.floor((upper * parts) / UPPER_HASHES);
}

/** Where each of the parts [first, last) of `parts` starts in sorted items, and where the last one ends. */
export function cutItems(items: Items, parts: number, first: number, last: number): number[] {
  const starts = [0];
  let at = 0;
  for (let part = first; part < last; part += 1) {
    while (at < items.length && partOf(items[at + 1] as number, parts) === part) at += ITEM_WORDS;
    starts.push(at);
  }
  return starts;
}

/** Adds the offsets of the items with this hash to `found`: `first` plus their place. The items are sorted. */
export function findPlaces(items: Items, hash: number, first: number, found: number[]): void {
  const upper = upperOf(hash);
  const rest = hash % LOWER_HASHES;
  for (let at = 0; at < items.length; at += ITEM_WORDS) {
    if (items[at + 1] !== upper) continue;
    const lower = items[at] as number;
    if (lower >>> PLACE_BITS === rest) found.push(first + placeIn(lower));
  }
}

/** Bits of a key's hash; together with the 21 bits of a place they make 64. */
export const HASH_BITS = 43;
const SEED_BYTES = 8;

/** Two 32-bit words, random for each store. */
export interface HashSeed {
  readonly low: number;
  readonly high: number;
}

/** A seed that nobody can guess. */
export function randomSeed(): HashSeed {
  return decodeSeed(randomBytes(SEED_BYTES));
}

export function encodeSeed({ low, high }: HashSeed): Buffer {
  const bytes = Buffer.alloc(SEED_BYTES);
  bytes.writeInt32BE(low, 0);
  bytes.writeInt32BE(high, 4);
  return bytes;
}

export function decodeSeed(bytes: Uint8Array): HashSeed {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { low: view.getInt32(0), high: view.getInt32(4) };
}

/**
 * A keyed hash of a ledger key, in [0, 2^HASH_BITS).
 *
 * The version of the key is a part of the seed, and what follows it is hashed: HalfSipHash-1-3 with 64 bits of output
 * (Aumasson and Bernstein's SipHash in 32-bit words). Requesters choose the keys; since they don't know the seed they
 * can't choose keys that collide and slow down look-ups.
 */
export function hashKey({ version, rest }: EntryKey, seed: HashSeed): number {
  const { bytes, at, length } = rest;
  let v0 = seed.low ^ version;
  let v1 = seed.high ^ 0xee;
  let v2 = seed.low ^ 0x6c796765;
  let v3 = seed.high ^ 0x74656462;
  const words = length >>> 2;
  let first = 0;
  for (let i = 0; i < words + 7; i++) {
    const word = i < words ? wordAt(bytes, at + 4 * i) : i === words ? lastWord(bytes, at + 4 * i, length) : 0;
    v3 ^= word;
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
    v0 ^= word;
    if (i === words) v2 ^= 0xee;
    if (i === words + 3) {
      first = (v1 ^ v3) >>> 0;
      v1 ^= 0xdd;
    }
  }
  return first * 2_048 + ((v1 ^ v3) & 2_047);
}

function wordAt(bytes: Buffer, at: number): number {
  return (
    byteAt(bytes, at) | (byteAt(bytes, at + 1) << 8) | (byteAt(bytes, at + 2) << 16) | (byteAt(bytes, at + 3) << 24)
  );
}

/** The bytes that are left from `at` on, with the length of all in the highest byte. */
function lastWord(bytes: Buffer, at: number, length: number): number {
  let word = length << 24;
  for (let i = 0; i < (length & 3); i += 1) word |= byteAt(bytes, at + i) << (8 * i);
  return word;
}

function byteAt(bytes: Buffer, at: number): number {
  return bytes[at] as number;
}

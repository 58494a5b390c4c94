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
export const ITEM_BYTES = 8;

export function upperOf(hash: number): number {
  return Math.floor(hash / LOWER_HASHES);
}

export function lowerOf(hash: number, place: number): number {
  return (hash % LOWER_HASHES) * MAX_PLACES + place;
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

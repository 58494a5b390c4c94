/**
 * What is kept of an entry: the hash of its key and its place within its run, 64 bits in two words. The upper word has
 * the highest 32 bits of the hash, the lower one its last 11 and the place. As whole numbers they are in the order of
 * hashes, and of places where the hash is the same.
 */
export type Items = Uint32Array<ArrayBuffer>;

const PLACE_BITS = 21;
/** The most entries of a run. */
export const MAX_PLACES = 2 ** PLACE_BITS;
/** What is left of a hash without the upper word. */
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

/** Sorts by hash, then by place. A number has its lower word first, as on all machines that the images are made for. */
export function sortItems(items: Items): void {
  new BigUint64Array(items.buffer, items.byteOffset, items.length / ITEM_WORDS).sort();
}

/** Which of so many equal parts of all hashes has this one. */
export function partOf(upper: number, parts: number): number {
  return Math.floor((upper * parts) / UPPER_HASHES);
}

/** Where each of `parts` begins in sorted items, from the part `first` to before `last`, and where the last one ends. */
export function cutItems(items: Items, parts: number, first: number, last: number): number[] {
  const starts = [0];
  let at = 0;
  for (let part = first; part < last; part += 1) {
    while (at < items.length && partOf(items[at + 1] as number, parts) === part) at += ITEM_WORDS;
    starts.push(at);
  }
  return starts;
}

/** Adds the places that have this hash to `found`, raised by `first`; the items are sorted. */
export function findPlaces(items: Items, hash: number, first: number, found: number[]): void {
  const upper = upperOf(hash);
  const rest = hash % LOWER_HASHES;
  for (let at = 0; at < items.length; at += ITEM_WORDS) {
    if (items[at + 1] !== upper) continue;
    const lower = items[at] as number;
    if (lower >>> PLACE_BITS === rest) found.push(first + placeIn(lower));
  }
}

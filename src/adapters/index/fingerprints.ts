import { bitsIn, ITEM_WORDS, type Items } from './items.ts';
import { requireIntact } from './store.ts';

/**
 * The fingerprint of a hash is its upper bits: 35 of them where a run has two million entries, so that one hash in
 * 16,000 is taken for one that such a run has. The first of these bits say in which page it is, and the others are in
 * that page.
 *
 * A page has the fingerprints of up to 64 runs in one part of all hashes. It is divided into buckets by the next bits,
 * and a bucket is a short list: for each fingerprint its last bits, and the slot of its run, in one word. So a look-up
 * reads one bucket, however many runs there are. With twice the runs there are twice the buckets: a fingerprint then
 * leaves one bit to the number of its bucket, and its slot takes one. So a word has 16 bits whatever the number of
 * runs, and a bucket of runs that are full has 2 to 4 words.
 *
 * First come the places at which the buckets start, then where the last one ends, then the buckets.
 */
export type Page = Uint16Array<ArrayBuffer>;

const WORD_BITS = 16;
/** The bits of a fingerprint within its page. */
const PRINT_BITS = 23;
/** The buckets of a page of one run. */
const BUCKETS = 2 ** (PRINT_BITS - WORD_BITS);
/** How many entries a full run has for each page. */
const PAGE_PLACES = 4 * BUCKETS;
/** The bits of a hash below its upper 32. */
const LOWER_BITS = 11;
const MAX_WORDS = 2 ** WORD_BITS;

/** The pages of a run in one row of the store, which has some 80 KB. */
export const PAGES_A_CHUNK = 64;
/** The rows of the largest run's fingerprints. */
export const MAX_CHUNKS = 64;

/** Where the fingerprints of runs of one size are. */
export class PageShape {
  readonly pages: number;
  readonly chunks: number;
  readonly #bits: number;

  /** For runs of so many places, a power of two up to 2^21. */
  constructor(places: number) {
    this.pages = Math.max(1, places / PAGE_PLACES);
    this.chunks = Math.ceil(this.pages / PAGES_A_CHUNK);
    this.#bits = Math.log2(this.pages);
  }

  /** The page that a hash is in, from its upper 32 bits. */
  pageOf(upper: number): number {
    return this.#bits === 0 ? 0 : upper >>> (32 - this.#bits);
  }

  /** The fingerprint of a hash within its page, from its upper and its lower 32 bits. It rises with the hash. */
  printOf(upper: number, bits: number): number {
    const lower = this.#bits === 0 ? 0 : (bits << (32 - LOWER_BITS)) >>> (32 - this.#bits);
    return ((upper << this.#bits) | lower) >>> (32 - PRINT_BITS);
  }

  /** How many pages a chunk has. */
  pagesIn(chunk: number): number {
    return Math.min(PAGES_A_CHUNK, this.pages - chunk * PAGES_A_CHUNK);
  }
}

/** The fingerprints of one run, which is written in the order of hashes. */
export class RunPrints {
  readonly #shape: PageShape;
  readonly #pages: Page[] = [];
  /** The rising fingerprints of the page that comes next. */
  #prints: number[] = [];

  constructor(shape: PageShape) {
    this.#shape = shape;
  }

  /** How many chunks are complete once all hashes below part `part` of `parts` were added. */
  chunksBelow(part: number, parts: number): number {
    if (part === parts) return this.#shape.chunks;
    return Math.floor(Math.floor((part * this.#shape.pages) / parts) / PAGES_A_CHUNK);
  }

  /** Adds sorted items that follow those before. A fingerprint that the run has already is not added again. */
  addAll(items: Items): void {
    for (let at = 0; at < items.length; at += ITEM_WORDS) {
      const upper = items[at + 1] as number;
      this.#closeTo(this.#shape.pageOf(upper));
      const print = this.#shape.printOf(upper, bitsIn(items[at] as number, upper));
      if (this.#prints.at(-1) !== print) this.#prints.push(print);
    }
  }

  /** What is stored in one row. No more hashes follow that are in it, or in one before. */
  chunk(number: number): Uint32Array<ArrayBuffer> {
    const from = number * PAGES_A_CHUNK;
    const to = from + this.#shape.pagesIn(number);
    this.#closeTo(to);
    const pages = this.#pages.slice(from, to);
    const length = pages.reduce((sum, page) => sum + page.length, 0);
    const chunk = new Uint32Array(Math.ceil(length / 2));
    const words = new Uint16Array(chunk.buffer);
    let at = 0;
    for (const page of pages) {
      words.set(page, at);
      at += page.length;
    }
    return chunk;
  }

  /** A page of this run alone. No more hashes follow. */
  page(number: number): Page {
    this.#closeTo(this.#shape.pages);
    return this.#pages[number] as Page;
  }

  #closeTo(page: number): void {
    while (this.#pages.length < page) {
      this.#pages.push(pageOf(this.#prints));
      this.#prints = [];
    }
  }
}

/** A page of one run, from its rising fingerprints. */
function pageOf(prints: readonly number[]): Page {
  const words: Page = new Uint16Array(BUCKETS + 1 + prints.length);
  let bucket = 0;
  for (const [i, print] of prints.entries()) {
    for (; bucket <= print >>> WORD_BITS; bucket += 1) words[bucket] = BUCKETS + 1 + i;
    words[BUCKETS + 1 + i] = print;
  }
  return words.fill(words.length, bucket, BUCKETS + 1);
}

/** The pages in a stored chunk of one run. Throws StoreError unless it has so many. */
export function storedPages(chunk: Uint32Array<ArrayBuffer>, pages: number): readonly Page[] {
  const words = new Uint16Array(chunk.buffer, chunk.byteOffset, chunk.length * 2);
  const found: Page[] = [];
  let at = 0;
  for (let page = 0; page < pages; page += 1) {
    const length = words[at + BUCKETS] ?? 0;
    requireIntact(length > BUCKETS && at + length <= words.length, 'the fingerprints of a run');
    found.push(words.subarray(at, at + length));
    at += length;
  }
  requireIntact(words.length - at < 2, 'the fingerprints of a run');
  return found;
}

/** The fingerprint at a place of a page of one run. */
function printAt(page: Page, bucket: number, at: number): number {
  return (bucket << WORD_BITS) | (page[at] as number);
}

/** The words before the first bucket of a page. */
export function startsOf(slotBits: number): number {
  return (BUCKETS << slotBits) + 1;
}

/** How many fingerprints a page of one run has. */
export function printsIn(alone: Page): number {
  return alone.length - startsOf(0);
}

/** A page in an array of them, where it starts. */
export interface PlacedPage {
  readonly words: Page;
  readonly start: number;
  readonly slotBits: number;
}

/**
 * Writes the page of these runs, given those of each alone; returns where it ends. Their slots are in the same order.
 */
export function writeRuns({ words, start, slotBits }: PlacedPage, alone: readonly Page[]): number {
  const shift = WORD_BITS - slotBits;
  const buckets = BUCKETS << slotBits;
  const next = new Uint32Array(buckets);
  for (const page of alone) {
    for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
      const end = page[bucket + 1] as number;
      for (let at = page[bucket] as number; at < end; at += 1) {
        const to = printAt(page, bucket, at) >>> shift;
        next[to] = (next[to] as number) + 1;
      }
    }
  }
  let end = buckets + 1;
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    const count = next[bucket] as number;
    words[start + bucket] = end;
    next[bucket] = start + end;
    end += count;
  }
  requireRoom(end);
  words[start + buckets] = end;
  for (const [slot, page] of alone.entries()) {
    for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
      const last = page[bucket + 1] as number;
      for (let at = page[bucket] as number; at < last; at += 1) {
        const print = printAt(page, bucket, at);
        const to = next[print >>> shift] as number;
        words[to] = (print << slotBits) | slot;
        next[print >>> shift] = to + 1;
      }
    }
  }
  return start + end;
}

/**
 * Writes the page `from` again, with no fewer bits for slots: of the runs whose slot is `kept` (not 0), and of one
 * more, given its page alone. Returns where it ends.
 */
export function writeWithRun(
  { words, start, slotBits }: PlacedPage,
  { words: source, start: origin, slotBits: before }: PlacedPage,
  kept: Uint8Array,
  alone: Page,
  slot: number,
): number {
  const buckets = BUCKETS << slotBits;
  const shift = WORD_BITS - slotBits;
  const more = slotBits - before;
  const mask = (1 << before) - 1;
  let own = BUCKETS + 1;
  let at = start + buckets + 1;
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    words[start + bucket] = at - start;
    const from = bucket >>> more;
    const end = origin + (source[origin + from + 1] as number);
    for (let i = origin + (source[origin + from] as number); i < end; i += 1) {
      let word = source[i] as number;
      if (kept[word & mask] === 0) continue;
      if (more > 0) {
        const print = (from << (WORD_BITS - before)) | (word >>> before);
        if (print >>> shift !== bucket) continue;
        word = (print << slotBits) | (word & mask);
      }
      words[at] = word;
      at += 1;
    }
    const ownBucket = bucket >>> slotBits;
    const ownEnd = alone[ownBucket + 1] as number;
    for (; own < ownEnd; own += 1, at += 1) {
      const print = printAt(alone, ownBucket, own);
      if (print >>> shift !== bucket) break;
      words[at] = (print << slotBits) | slot;
    }
  }
  requireRoom(at - start);
  words[start + buckets] = at - start;
  return at;
}

/** Throws StoreError if a page has more words than that many runs can have. */
function requireRoom(words: number): void {
  requireIntact(words < MAX_WORDS, 'the fingerprints of a run');
}

/** Adds the runs of a page that have a fingerprint to `found`. `runs` are by slot, absent where they don't count. */
export function findPrint<R>(
  words: Page,
  start: number,
  slotBits: number,
  print: number,
  runs: readonly (R | undefined)[],
  found: R[],
): void {
  const bucket = start + (print >>> (WORD_BITS - slotBits));
  const wanted = (print << slotBits) & 0xffff;
  const mask = (1 << slotBits) - 1;
  const end = start + (words[bucket + 1] as number);
  for (let at = start + (words[bucket] as number); at < end; at += 1) {
    const word = words[at] as number;
    if ((word & ~mask) !== wanted) continue;
    const run = runs[word & mask];
    if (run !== undefined) found.push(run);
  }
}

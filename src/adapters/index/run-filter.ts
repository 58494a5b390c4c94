import { bitsIn, ITEM_WORDS, type Items, partOf } from './items.ts';
import { requireIntact } from './store.ts';

/**
 * A hash has two bits in each of the 5 lanes of a block. Both are in 16 bits that follow each other: where the filters
 * of 32 runs lie side by side, these are as long as a cache line, and most of the time of a look-up is waiting for
 * memory. In shorter lanes some blocks would be much fuller than others by chance.
 */
const LANE_BITS = 256;
/** One multiplier per lane that picks the bits of a hash: random odd numbers. */
const SALTS = Int32Array.of(0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7);

export const LANES = SALTS.length;
const BLOCK_BITS = LANES * LANE_BITS;
export const BLOCK_WORDS = BLOCK_BITS / 32;

/** The two bits of a hash in a lane, counted from the start of the block: the second one in the upper 16 bits. */
export function pairIn(lane: number, bits: number): number {
  const pick = Math.imul(bits, SALTS[lane] as number);
  const first = lane * LANE_BITS + (pick >>> 24);
  const second = first ^ (((((pick >>> 20) & 15) * 15) >>> 4) + 1); // one of the 15 others of the same 16
  return first | (second << 16);
}

export function blocksFor(bits: number): number {
  return Math.ceil(bits / BLOCK_BITS);
}

/** The blocks of a filter that are written together when it lies beside others. */
export const PAGE_BLOCKS = 128;
/** The words of a filter in one row of the store, some whole pages, and the rows of the largest run's filter. */
const CHUNK_WORDS = 3 * PAGE_BLOCKS * BLOCK_WORDS;
export const MAX_CHUNKS = 128;

/** The number of chunks of a filter with this many bits. */
export function chunksFor(bits: number): number {
  return Math.ceil((blocksFor(bits) * BLOCK_WORDS) / CHUNK_WORDS);
}

/** How many words each of these chunks has. */
export function wordsOf(bits: number, chunk: number): number {
  return Math.min(CHUNK_WORDS, blocksFor(bits) * BLOCK_WORDS - chunk * CHUNK_WORDS);
}

/**
 * A blocked Bloom filter in memory that says whether a run may contain a hash, so that looking up a new key need not
 * read the run. Blocks are in the order of hashes, so the filter fills from its start when a run is written in order.
 */
export class RunFilter {
  readonly #words: Uint32Array<ArrayBuffer>;
  readonly #blocks: number;

  constructor(bits: number) {
    this.#blocks = blocksFor(bits);
    this.#words = new Uint32Array(this.#blocks * BLOCK_WORDS);
  }

  get chunks(): number {
    return Math.ceil(this.#words.length / CHUNK_WORDS);
  }

  /** The part of its words that is stored in one row. */
  chunk(number: number): Uint32Array<ArrayBuffer> {
    return this.#words.subarray(number * CHUNK_WORDS, (number + 1) * CHUNK_WORDS);
  }

  /** The words of its blocks [from, to), as far as it has them. */
  blocks(from: number, to: number): Uint32Array<ArrayBuffer> {
    return this.#words.subarray(from * BLOCK_WORDS, to * BLOCK_WORDS);
  }

  /** Restores a stored chunk. Throws StoreError if its length is wrong. */
  restore(number: number, words: Uint32Array): void {
    const chunk = this.chunk(number);
    requireIntact(words.length === chunk.length, 'the filter of a run');
    chunk.set(words);
  }

  /** How many chunks are complete once all hashes below part `part` of `parts` were added. */
  chunksBelow(part: number, parts: number): number {
    if (part === parts) return this.chunks;
    return Math.floor((Math.floor((part * this.#blocks) / parts) * BLOCK_WORDS) / CHUNK_WORDS);
  }

  addAll(items: Items): void {
    for (let at = 0; at < items.length; at += ITEM_WORDS) {
      const upper = items[at + 1] as number;
      this.add(upper, bitsIn(items[at] as number, upper));
    }
  }

  /** Adds a hash, given its upper 32 bits and its lower 32 bits. */
  add(upper: number, bits: number): void {
    const words = this.#words;
    const block = partOf(upper, this.#blocks) * BLOCK_WORDS;
    for (let lane = 0; lane < LANES; lane += 1) {
      const pair = pairIn(lane, bits);
      const at = block + ((pair & 0xffff) >>> 5); // both are in the same word
      words[at] = (words[at] as number) | (1 << pair) | (1 << (pair >>> 16));
    }
  }

  mayHold(upper: number, bits: number): boolean {
    const words = this.#words;
    const block = partOf(upper, this.#blocks) * BLOCK_WORDS;
    for (let lane = 0; lane < LANES; lane += 1) {
      const pair = pairIn(lane, bits);
      const both = (1 << pair) | (1 << (pair >>> 16));
      if (((words[block + ((pair & 0xffff) >>> 5)] as number) & both) !== both) return false;
    }
    return true;
  }
}

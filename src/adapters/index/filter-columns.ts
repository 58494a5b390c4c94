import { partOf } from './items.ts';
import {
  BLOCK_WORDS,
  blocksFor,
  chunksFor,
  LANES,
  PAGE_BLOCKS,
  pairIn,
  type RunFilter,
  wordsOf,
} from './run-filter.ts';
import { requireIntact } from './store.ts';

/** Runs whose filters share the words of a sheet: as many as a word has bits. */
const MAX_COLUMNS = 32;

/** Rows of one width. Adding a column writes a page in half a millisecond. One more word follows, for `rowAt`. */
type Page = Int32Array<ArrayBuffer>;

/** Returns a stored part of a run's filter. */
export type ReadChunk<R> = (run: R, chunk: number) => Uint32Array;

/**
 * The filters of all runs of one level, side by side.
 *
 * A level that is never merged has a run for every two million entries, and a look-up must ask the filter of each. All
 * these filters have the same size, and a hash has the same ten bits in each. So they are turned round: a row holds
 * one bit of each of up to 32 filters. A look-up reads ten rows rather than ten bits of 32 filters, and the bits that
 * are set in all of them name the runs that may hold the key. Two rows are near each other, and where no run holds the
 * key the first three pairs show it most often.
 *
 * A row is as wide as there are columns, so the filters take no more memory than they did one by one. A run that no
 * longer counts leaves its column to the next one.
 */
export class FilterColumns<R extends object> {
  readonly #bits: number;
  readonly #blocks: number;
  #sheets: Sheet<R>[] = [];

  /** For filters of this many bits. */
  constructor(bits: number) {
    this.#bits = bits;
    this.#blocks = blocksFor(bits);
  }

  /** What they take in memory, columns included that wait for a run. */
  get bytes(): number {
    return this.#sheets.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Takes the filters of these runs from the disk, in steps. Throws StoreError if one is damaged. */
  *load(runs: readonly R[], read: ReadChunk<R>): Generator<void, void> {
    for (let from = 0; from < runs.length; from += MAX_COLUMNS) {
      const some = runs.slice(from, from + MAX_COLUMNS);
      const sheet = new Sheet<R>(this.#bits);
      yield* sheet.load(some, read);
      this.#sheets.push(sheet);
    }
  }

  /** Adds the filter of a run, in steps. The run is found after the last one, and never if the steps are cut short. */
  *add(run: R, filter: RunFilter): Generator<void, void> {
    let sheet = this.#sheets.find(({ hasRoom }) => hasRoom);
    if (sheet === undefined) {
      sheet = new Sheet(this.#bits);
      this.#sheets.push(sheet);
    }
    yield* sheet.add(run, filter);
  }

  remove(run: R): void {
    for (const sheet of this.#sheets) sheet.remove(run);
    this.#sheets = this.#sheets.filter(({ isEmpty }) => !isEmpty);
  }

  /** Adds the runs that may hold a hash to `found`, in any order. `upper` and `bits` are its two words. */
  find(upper: number, bits: number, found: R[]): void {
    if (this.#sheets.length === 0) return;
    const block = partOf(upper, this.#blocks);
    for (const sheet of this.#sheets) sheet.find(block, bits, found);
  }
}

/**
 * Up to 32 filters. A row has one bit of each, and rows follow each other without a gap, so that 32 rows of `width`
 * columns take `width` words. A page is widened when a column is added, and each has its own width meanwhile.
 */
class Sheet<R extends object> {
  readonly #bits: number;
  readonly #pages: Page[] = [];
  readonly #widths: number[] = [];
  readonly #runs: (R | undefined)[] = [];
  /** The columns in use: those of runs that count, and of one that is being added. */
  #taken = 0;
  /** The columns of runs that count. */
  #live = 0;

  constructor(bits: number) {
    this.#bits = bits;
    const pages = Math.ceil(blocksFor(bits) / PAGE_BLOCKS);
    for (let page = 0; page < pages; page += 1) this.#setPage(page, new Int32Array(1), 0);
  }

  get hasRoom(): boolean {
    return this.#taken !== -1;
  }

  get bytes(): number {
    return this.#pages.reduce((sum, { byteLength }) => sum + byteLength, 0);
  }

  get isEmpty(): boolean {
    return this.#taken === 0;
  }

  *load(runs: readonly R[], read: ReadChunk<R>): Generator<void, void> {
    let page = 0;
    for (let chunk = 0; chunk < chunksFor(this.#bits); chunk += 1) {
      const words = wordsOf(this.#bits, chunk);
      const sources = runs.map((run) => read(run, chunk));
      requireIntact(
        sources.every(({ length }) => length === words),
        'the filter of a run',
      );
      yield;
      for (let at = 0; at < words; at += PAGE_BLOCKS * BLOCK_WORDS, page += 1) {
        const own = sources.map((source) => source.subarray(at, at + PAGE_BLOCKS * BLOCK_WORDS));
        this.#setPage(page, transposed(own), runs.length);
        yield;
      }
    }
    for (const [column, run] of runs.entries()) this.#count(column, run);
  }

  *add(run: R, filter: RunFilter): Generator<void, void> {
    const column = lowestBit(~this.#taken);
    this.#taken |= 1 << column;
    try {
      for (let page = 0; page < this.#pages.length; page += 1) {
        const source = filter.blocks(page * PAGE_BLOCKS, (page + 1) * PAGE_BLOCKS);
        const [words, before] = [this.#pages[page] as Page, this.#widths[page] as number];
        const width = Math.max(before, column + 1);
        this.#setPage(page, withColumn(words, before, source, column, width), width);
        words.buffer.transfer(0); // frees it now: by the next collection there would be hundreds
        yield;
      }
      this.#count(column, run);
    } finally {
      if (this.#runs[column] !== run) this.#free(column);
    }
  }

  remove(run: R): void {
    const column = this.#runs.indexOf(run);
    if (column !== -1) this.#free(column);
  }

  find(block: number, bits: number, found: R[]): void {
    const page = Math.floor(block / PAGE_BLOCKS);
    const words = this.#pages[page] as Page;
    const width = this.#widths[page] as number;
    const start = (block % PAGE_BLOCKS) * BLOCK_WORDS * width;
    let may = this.#live;
    for (let lane = 0; lane < LANES && may !== 0; lane += 1) {
      const pair = pairIn(lane, bits);
      may &= rowAt(words, start, (pair & 0xffff) * width) & rowAt(words, start, (pair >>> 16) * width);
    }
    for (; may !== 0; may &= may - 1) found.push(this.#runs[lowestBit(may)] as R);
  }

  #setPage(page: number, words: Page, width: number): void {
    this.#pages[page] = words;
    this.#widths[page] = width;
  }

  #count(column: number, run: R): void {
    this.#runs[column] = run;
    this.#taken |= 1 << column;
    this.#live |= 1 << column;
  }

  #free(column: number): void {
    this.#runs[column] = undefined;
    this.#taken &= ~(1 << column);
    this.#live &= ~(1 << column);
  }
}

function lowestBit(bits: number): number {
  return 31 - Math.clz32(bits & -bits);
}

/** The row that begins `bit` bits after the word `start`; what follows it is in its higher bits. */
function rowAt(words: Page, start: number, bit: number): number {
  const at = start + (bit >>> 5);
  const shift = bit & 31;
  return ((words[at] as number) >>> shift) | (((words[at + 1] as number) << 1) << (31 - shift));
}

/** The rows of several filters, each with one bit of each. */
function transposed(sources: readonly Uint32Array[]): Page {
  const width = sources.length;
  const length = (sources[0] as Uint32Array).length;
  const words = new Int32Array(length * width + 1);
  if (width === 1) {
    words.set(sources[0] as Uint32Array);
    return words;
  }
  const square = new Int32Array(32);
  for (let at = 0; at < length; at += 1) {
    square.fill(0);
    for (let column = 0; column < width; column += 1) square[column] = (sources[column] as Uint32Array)[at] as number;
    turn(square);
    pack(square, words, at * width, width);
  }
  return words;
}

/** Turns a square of 32 by 32 bits round: exchanges its quarters, then those of each quarter, down to single bits. */
function turn(square: Int32Array): void {
  for (let size = 16, mask = 0xffff; size > 0; size >>>= 1, mask ^= mask << size) {
    for (let at = 0; at < 32; at = (at + size + 1) & ~size) {
      const [one, other] = [square[at] as number, square[at + size] as number];
      const changed = ((one >>> size) ^ other) & mask;
      square[at] = one ^ (changed << size);
      square[at + size] = other ^ changed;
    }
  }
}

/** A page of `before` columns, with one of them set from a filter, in rows of `width` columns. */
function withColumn(words: Page, before: number, source: Uint32Array, column: number, width: number): Page {
  const wider = new Int32Array(source.length * width + 1);
  const rows = new Int32Array(32);
  const others = before === 0 ? 0 : (-1 >>> (32 - before)) & ~(1 << column);
  for (let at = 0; at < source.length; at += 1) {
    const bits = source[at] as number;
    for (let row = 0; row < 32; row += 1) {
      rows[row] = (rowAt(words, at * before, row * before) & others) | (((bits >>> row) & 1) << column);
    }
    pack(rows, wider, at * width, width);
  }
  return wider;
}

/** Writes 32 rows of `width` bits each to as many words. */
function pack(rows: Int32Array, words: Int32Array, start: number, width: number): void {
  let [at, filled, word] = [start, 0, 0];
  for (let row = 0; row < 32; row += 1) {
    const bits = rows[row] as number;
    word |= bits << filled;
    filled += width;
    if (filled < 32) continue;
    filled -= 32;
    words[at] = word;
    at += 1;
    word = filled === 0 ? 0 : bits >>> (width - filled);
  }
}

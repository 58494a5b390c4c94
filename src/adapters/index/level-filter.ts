import {
  findPrint,
  PAGES_A_CHUNK,
  type Page,
  type PageShape,
  type PlacedPage,
  printsIn,
  type RunPrints,
  startsOf,
  storedPages,
  writeRuns,
  writeWithRun,
} from './fingerprints.ts';

/** The runs of a sheet. With more, a page would have more words than a word can count. */
const MAX_SLOTS = 64;
/** How many pages are written in one step, which takes a millisecond with 64 runs. */
const PAGES_A_STEP = 8;
/** How many chunks are read in one step. */
const CHUNKS_A_STEP = 8;

/** The page without runs, which is all pages of a sheet at first. */
const EMPTY: Page = new Uint16Array(startsOf(0)).fill(startsOf(0));

/** Returns a stored part of a run's fingerprints. */
export type ReadChunk<R> = (run: R, chunk: number) => Uint32Array<ArrayBuffer>;

/**
 * Says which runs of a level may hold a hash. Most of what that costs is waiting for memory, and the last level has a
 * run for every two million entries, so a filter for each would take longer with each. Instead, the fingerprints of up
 * to 64 runs are together in a sheet, sorted by hash, each with the slot of its run. So one place in memory answers for
 * all of these runs.
 *
 * A run that no longer counts leaves its slot to the next one, and its fingerprints are left out when pages are written
 * for another run.
 */
export class LevelFilter<R extends object> {
  readonly #shape: PageShape;
  #sheets: Sheet<R>[] = [];

  constructor(shape: PageShape) {
    this.#shape = shape;
  }

  /** What it takes in memory. */
  get bytes(): number {
    return this.#sheets.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Takes the fingerprints of these runs from the disk, in steps. Throws StoreError if they are damaged. */
  *load(runs: readonly R[], read: ReadChunk<R>): Generator<void, void> {
    for (let from = 0; from < runs.length; from += MAX_SLOTS) {
      const sheet = new Sheet<R>(this.#shape);
      yield* sheet.load(runs.slice(from, from + MAX_SLOTS), read);
      this.#sheets.push(sheet);
    }
  }

  /**
   * Adds a run, in steps; one run at a time. It is found after the last step, and never if the steps are cut short.
   */
  *add(run: R, prints: RunPrints): Generator<void, void> {
    let sheet = this.#sheets.find(({ hasRoom }) => hasRoom);
    if (sheet === undefined) {
      sheet = new Sheet(this.#shape);
      this.#sheets.push(sheet);
    }
    yield* sheet.add(run, prints);
  }

  remove(run: R): void {
    for (const sheet of this.#sheets) sheet.remove(run);
    this.#sheets = this.#sheets.filter(({ isUnused }) => !isUnused);
  }

  /** Adds the runs that may hold a hash to `found`, in any order. It is given by its upper and its lower 32 bits. */
  find(upper: number, bits: number, found: R[]): void {
    if (this.#sheets.length === 0) return;
    const page = this.#shape.pageOf(upper);
    const print = this.#shape.printOf(upper, bits);
    for (const sheet of this.#sheets) sheet.find(page, print, found);
  }
}

/**
 * Up to 64 runs. Pages lie one after another in chunks, since an array for each would be one more place in memory to
 * wait for. A chunk is written again, in steps, when a run is added.
 */
class Sheet<R extends object> {
  readonly #shape: PageShape;
  readonly #chunks: Page[];
  /** Of each chunk: the bits for slots, and the number of fingerprints. */
  readonly #slotBits: Uint8Array;
  readonly #prints: Uint32Array;
  /** Where each page starts in its chunk. */
  readonly #starts: Uint32Array;
  /** By slot. A slot without a run may have fingerprints of a former one. */
  readonly #runs: (R | undefined)[] = new Array(MAX_SLOTS).fill(undefined);
  #isAdding = false;

  constructor(shape: PageShape) {
    this.#shape = shape;
    this.#chunks = new Array(shape.chunks).fill(EMPTY);
    this.#slotBits = new Uint8Array(shape.chunks);
    this.#prints = new Uint32Array(shape.chunks);
    this.#starts = new Uint32Array(shape.pages);
  }

  get hasRoom(): boolean {
    return this.#runs.includes(undefined);
  }

  get bytes(): number {
    return this.#chunks.reduce((sum, { byteLength }) => sum + byteLength, this.#starts.byteLength);
  }

  /** Whether no run counts, or is being added. */
  get isUnused(): boolean {
    return !this.#isAdding && this.#runs.every((run) => run === undefined);
  }

  *load(runs: readonly R[], read: ReadChunk<R>): Generator<void, void> {
    const slotBits = bitsFor(runs.length);
    for (let chunk = 0; chunk < this.#shape.chunks; chunk += 1) {
      const count = this.#shape.pagesIn(chunk);
      const stored: (readonly Page[])[] = [];
      for (const run of runs) {
        stored.push(storedPages(read(run, chunk), count));
        if (stored.length % CHUNKS_A_STEP === 0) yield;
      }
      const prints = stored.flat().reduce((sum, page) => sum + printsIn(page), 0);
      yield* this.#write(chunk, slotBits, prints, (target, page) =>
        writeRuns(
          target,
          stored.map((pages) => pages[page] as Page),
        ),
      );
      yield;
    }
    for (const [slot, run] of runs.entries()) this.#runs[slot] = run;
  }

  *add(run: R, prints: RunPrints): Generator<void, void> {
    const slot = this.#runs.indexOf(undefined);
    this.#isAdding = true;
    try {
      for (let chunk = 0; chunk < this.#shape.chunks; chunk += 1) {
        if (chunk > 0) yield;
        const kept = Uint8Array.from(this.#runs, (other) => Number(other !== undefined));
        const [words, before, first] = [
          this.#chunks[chunk] as Page,
          this.#slotBits[chunk] as number,
          chunk * PAGES_A_CHUNK,
        ];
        const alone = Array.from({ length: this.#shape.pagesIn(chunk) }, (_, page) => prints.page(first + page));
        const most = alone.reduce((sum, page) => sum + printsIn(page), this.#prints[chunk] as number);
        yield* this.#write(chunk, Math.max(before, bitsFor(slot + 1)), most, (target, page) => {
          const source = { words, start: this.#starts[first + page] as number, slotBits: before };
          return writeWithRun(target, source, kept, alone[page] as Page, slot);
        });
        if (words !== EMPTY) words.buffer.transfer(0); // frees it now: by the next collection there would be dozens
      }
      this.#runs[slot] = run;
    } finally {
      this.#isAdding = false;
    }
  }

  /** Replaces a chunk by one of at most `most` fingerprints. `write` returns where a page ends. */
  *#write(
    chunk: number,
    slotBits: number,
    most: number,
    write: (target: PlacedPage, page: number) => number,
  ): Generator<void, void> {
    const starts = new Uint32Array(this.#shape.pagesIn(chunk));
    const words = new Uint16Array(starts.length * startsOf(slotBits) + most);
    let end = 0;
    for (let page = 0; page < starts.length; page += 1) {
      if (page > 0 && page % PAGES_A_STEP === 0) yield;
      starts[page] = end;
      end = write({ words, start: end, slotBits }, page);
    }
    this.#chunks[chunk] = words;
    this.#slotBits[chunk] = slotBits;
    this.#prints[chunk] = end - starts.length * startsOf(slotBits);
    this.#starts.set(starts, chunk * PAGES_A_CHUNK);
  }

  remove(run: R): void {
    const slot = this.#runs.indexOf(run);
    if (slot !== -1) this.#runs[slot] = undefined;
  }

  find(page: number, print: number, found: R[]): void {
    const chunk = Math.floor(page / PAGES_A_CHUNK);
    const start = this.#starts[page] as number;
    findPrint(this.#chunks[chunk] as Page, start, this.#slotBits[chunk] as number, print, this.#runs, found);
  }
}

/** The bits that number so many runs. */
function bitsFor(runs: number): number {
  return 32 - Math.clz32(runs - 1);
}

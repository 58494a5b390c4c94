/** Low bits of an ID that select a bit of a row: the sequence of the default layout. */
const LOW_BITS = 12n;
const ROW_WORDS = 2 ** Number(LOW_BITS) / 32;

/**
 * A set of millions of IDs, one bit each: a row of 512 bytes for the 4,096 IDs with the same bits above the sequence.
 */
export class SeenIds {
  readonly #rows = new Map<bigint, Uint32Array>();
  #size = 0;
  #duplicates = 0;

  /** The number of different IDs. */
  get size(): number {
    return this.#size;
  }

  get duplicates(): number {
    return this.#duplicates;
  }

  add(id: bigint): void {
    const high = id >> LOW_BITS;
    const low = Number(BigInt.asUintN(Number(LOW_BITS), id));
    const row = this.#rows.get(high) ?? new Uint32Array(ROW_WORDS);
    if (!this.#rows.has(high)) this.#rows.set(high, row);
    const word = low >>> 5;
    const bit = 1 << (low & 31);
    const before = row[word] ?? 0;
    if ((before & bit) !== 0) {
      this.#duplicates += 1;
      return;
    }
    row[word] = before | bit;
    this.#size += 1;
  }
}

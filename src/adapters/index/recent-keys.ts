/** Most entries of a run: the place of one within it takes 15 bits. */
export const MAX_RUN_ENTRIES = 32_768;

const SLOTS = 2 * MAX_RUN_ENTRIES;
const NO_KEY = -1;

/**
 * The keys of the newest entries of a partition, by hash: those since the last run was sealed.
 *
 * A table with linear probing that only grows until it is cleared. Places come in rising order, so that among equal
 * hashes the first that is met is the oldest.
 */
export class RecentKeys {
  /** Place + 1 of the entry in each slot; 0 for none. */
  readonly #slots = new Uint16Array(SLOTS);
  readonly #hashes = new Float64Array(MAX_RUN_ENTRIES).fill(NO_KEY);
  #count = 0;

  add(hash: number, place: number): void {
    let slot = hash % SLOTS;
    while (this.#slots[slot] !== 0) slot = (slot + 1) % SLOTS;
    this.#slots[slot] = place + 1;
    this.#hashes[place] = hash;
    this.#count += 1;
  }

  /** The lowest place above `after` that has this hash; -1 for none. */
  find(hash: number, after = -1): number {
    for (let slot = hash % SLOTS; ; slot = (slot + 1) % SLOTS) {
      const place = (this.#slots[slot] as number) - 1;
      if (place === -1 || (place > after && this.#hashes[place] === hash)) return place;
    }
  }

  /** All of them as `hash * MAX_RUN_ENTRIES + place`, in rising order. */
  packed(): Float64Array<ArrayBuffer> {
    const packed = new Float64Array(this.#count);
    let at = 0;
    for (let place = 0; place < MAX_RUN_ENTRIES; place++) {
      const hash = this.#hashes[place] as number;
      if (hash !== NO_KEY) packed[at++] = hash * MAX_RUN_ENTRIES + place;
    }
    return packed.sort();
  }

  clear(): void {
    this.#slots.fill(0);
    this.#hashes.fill(NO_KEY);
    this.#count = 0;
  }
}

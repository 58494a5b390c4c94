import { hashIn, ITEM_WORDS, type Items, lowerOf, placeIn, upperOf } from './items.ts';

/**
 * The items of the open run, by hash.
 *
 * A hash table with linear probing that only grows until it is cleared. Places are added in rising order, so that the
 * first match of a hash is the oldest.
 */
export class RecentKeys {
  readonly #items: Items;
  /** The index of the item in each slot, plus 1; 0 for an empty slot. */
  readonly #slots: Uint16Array;
  #count = 0;

  constructor(capacity: number) {
    this.#items = new Uint32Array(capacity * ITEM_WORDS);
    this.#slots = new Uint16Array(capacity * 2);
  }

  get count(): number {
    return this.#count;
  }

  add(hash: number, place: number): void {
    const at = this.#count * ITEM_WORDS;
    this.#items[at] = lowerOf(hash, place);
    this.#items[at + 1] = upperOf(hash);
    this.#count += 1;
    const slots = this.#slots;
    let slot = hash % slots.length;
    while (slots[slot] !== 0) slot = (slot + 1) % slots.length;
    slots[slot] = this.#count;
  }

  /** Adds the offsets with this hash to `found`, `first` plus their place, the lowest one first. */
  find(hash: number, first: number, found: number[]): void {
    const slots = this.#slots;
    for (let slot = hash % slots.length; slots[slot] !== 0; slot = (slot + 1) % slots.length) {
      const at = ((slots[slot] as number) - 1) * ITEM_WORDS;
      const lower = this.#items[at] as number;
      if (hashIn(lower, this.#items[at + 1] as number) === hash) found.push(first + placeIn(lower));
    }
  }

  /** The items from index `from` on, in the order in which they were added. */
  since(from: number): Items {
    return this.#items.slice(from * ITEM_WORDS, this.#count * ITEM_WORDS);
  }

  clear(): void {
    this.#slots.fill(0);
    this.#count = 0;
  }
}

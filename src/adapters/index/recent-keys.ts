import { hashIn, ITEM_WORDS, type Items, lowerOf, placeIn, upperOf } from './items.ts';

/**
 * The items of the open run, by hash: those since the last run was sealed.
 *
 * A table with linear probing that only grows until it is cleared. Places come in rising order, so that among equal
 * hashes the first that is met is the oldest.
 */
export class RecentKeys {
  readonly #items: Items;
  /** Number + 1 of the item in each slot; 0 for none. */
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

  /** Adds the places that have this hash to `found`, raised by `first`, the lowest one first. */
  find(hash: number, first: number, found: number[]): void {
    const slots = this.#slots;
    for (let slot = hash % slots.length; slots[slot] !== 0; slot = (slot + 1) % slots.length) {
      const at = ((slots[slot] as number) - 1) * ITEM_WORDS;
      const lower = this.#items[at] as number;
      if (hashIn(lower, this.#items[at + 1] as number) === hash) found.push(first + placeIn(lower));
    }
  }

  /** The items from the number `from` on, in the order in which they came. */
  since(from: number): Items {
    return this.#items.slice(from * ITEM_WORDS, this.#count * ITEM_WORDS);
  }

  clear(): void {
    this.#slots.fill(0);
    this.#count = 0;
  }
}

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { hashIn, ITEM_WORDS, type Items, lowerOf, placeIn, sortItems, upperOf } from './items.ts';
import { asBuffer, requireIntact } from './store.ts';

/** The share of a run that may be in memory alone. A crash loses that, and it is read from the ledger again. */
const UNSAVED_SHARE = 1 / 4;

/** The newest entries of a partition, which will become the next run: in memory, and on disk one row per save. */
export class OpenRun {
  readonly #name: string;
  readonly #keys: RecentKeys;
  readonly #insert: StatementSync;
  readonly #all: StatementSync;
  readonly #clear: StatementSync;
  readonly #entries: number;
  #first: number;
  /** The number of items on disk, and the end of the entries that they belong to. */
  #saved = 0;
  #savedTo: number;

  /** For at most `entries` entries, from the offset `first` on. */
  constructor(db: DatabaseSync, partition: number, entries: number, first: number) {
    this.#name = `open_${partition}`;
    this.#keys = new RecentKeys(entries);
    this.#entries = entries;
    this.#first = first;
    this.#savedTo = first;
    this.#insert = db.prepare(`INSERT INTO ${this.#name} VALUES (?, ?, ?, ?)`);
    this.#all = db.prepare(`SELECT * FROM ${this.#name} ORDER BY id`);
    this.#all.setReturnArrays(true);
    this.#clear = db.prepare(`DELETE FROM ${this.#name}`);
  }

  /** The offset at which it starts. */
  get first(): number {
    return this.#first;
  }

  /** The offset at which it ends when it is full. */
  get limit(): number {
    return this.#first + this.#entries;
  }

  /** Reads the rows on disk. Throws StoreError unless they are intact and cover the entries up to `end`. */
  load(end: number): void {
    let due = this.#first;
    for (const row of this.#all.all()) {
      const [id, blob, sum, limit] = row as unknown as readonly unknown[];
      const bytes = asBuffer(blob);
      const [from, to] = [Number(id), Number(limit)];
      requireIntact(from === due && sum === this.#sumOf(from, to, bytes), 'the open run');
      const items: Items = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
      for (let at = 0; at < items.length; at += ITEM_WORDS) {
        const lower = items[at] as number;
        this.#keys.add(hashIn(lower, items[at + 1] as number), placeIn(lower));
      }
      due = to;
    }
    requireIntact(due === end, 'the open run');
    this.#saved = this.#keys.count;
    this.#savedTo = end;
  }

  add(hash: number, offset: number): void {
    this.#keys.add(hash, offset - this.#first);
  }

  /** Whether so much is unsaved with the entries up to `end` that it must be saved, as a full run must be. */
  isDue(end: number): boolean {
    return end >= this.limit || this.unsaved(end) >= this.#entries * UNSAVED_SHARE;
  }

  /** How many of the entries up to `end` are in memory alone. */
  unsaved(end: number): number {
    return end - this.#savedTo;
  }

  /** Writes what was added since the last save, for the entries up to `end`. */
  save(end: number): void {
    if (this.unsaved(end) === 0) return;
    const items = this.#keys.since(this.#saved);
    const bytes = new Uint8Array(items.buffer);
    const from = this.#savedTo;
    this.#insert.run(from, bytes, this.#sumOf(from, end, bytes), end);
    this.#saved = this.#keys.count;
    this.#savedTo = end;
  }

  /** Adds the offsets with this hash to `found`, in rising order. */
  find(hash: number, found: number[]): void {
    this.#keys.find(hash, this.#first, found);
  }

  /** All items, sorted by hash. */
  sorted(): Items {
    const items = this.#keys.since(0);
    sortItems(items);
    return items;
  }

  /** Empties it, and starts again at `first`. */
  restart(first: number): void {
    this.#clear.run();
    this.#keys.clear();
    this.#saved = 0;
    this.#savedTo = first;
    this.#first = first;
  }

  #sumOf(from: number, to: number, bytes: Uint8Array): number {
    return crc32(bytes, crc32(`${this.#name} ${from} ${to}`));
  }
}

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

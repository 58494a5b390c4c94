import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { ITEM_BYTES, type Items } from './items.ts';
import { LEVELS } from './run-shape.ts';
import { sequenceTableOf } from './sequence-table.ts';
import { asBuffer, checksumOf, createTable, requireIntact, requireSum, type TableShape } from './store.ts';

/** Describes a run: the entries at the offsets [first, end). */
export interface RunFacts {
  readonly id: number;
  readonly level: number;
  readonly first: number;
  readonly end: number;
  /** The highest request offset of its entries; -1 for none. */
  readonly requests: number;
  /** When its first entry, not counting markers, was appended; undefined for none. */
  readonly appended: number | undefined;
}

/** A table of one partition. */
export interface TableFacts extends TableShape {
  /** How many rows can be deleted in a millisecond or two. */
  readonly rowsAStep: number;
  /** Created with its first row: an empty table takes a page. */
  readonly isLater?: boolean;
}

const BLOBS = 'id INTEGER PRIMARY KEY, bytes BLOB NOT NULL, sum INTEGER NOT NULL';
const itemsOf = (partition: number, level: number): TableFacts => ({
  ...{ name: `items_${partition}_${level}`, columns: BLOBS, rowsAStep: 512 },
  isLater: level > 0,
});

export function tablesOf(partition: number): readonly TableFacts[] {
  const facts = 'level INTEGER, first INTEGER, "end" INTEGER, requests INTEGER, appended REAL, whole INTEGER';
  return [
    { name: `open_${partition}`, columns: `${BLOBS}, "end" INTEGER NOT NULL`, rowsAStep: 512 },
    { name: `run_${partition}`, columns: `id INTEGER PRIMARY KEY, ${facts}, sum INTEGER`, rowsAStep: 512 },
    { name: `filter_${partition}`, columns: BLOBS, rowsAStep: 8 },
    { ...sequenceTableOf(partition), rowsAStep: 512, isLater: true },
    ...Array.from({ length: LEVELS }, (_, level) => itemsOf(partition, level)),
  ];
}

/** A table whose rows have a number and bytes, with a checksum over both and the table's name. */
class BlobTable {
  readonly #name: string;
  readonly #salt: number;
  readonly #insert: StatementSync;
  readonly #find: StatementSync;
  readonly #delete: StatementSync;

  constructor(db: DatabaseSync, name: string) {
    this.#name = name;
    this.#salt = crc32(name);
    this.#insert = db.prepare(`INSERT INTO ${name} VALUES (?, ?, ?)`);
    this.#find = db.prepare(`SELECT bytes, sum FROM ${name} WHERE id = ?`);
    this.#find.setReturnArrays(true); // makes look-ups a quarter faster
    this.#delete = db.prepare(`DELETE FROM ${name} WHERE id >= ? AND id < ?`);
  }

  write(id: number, words: Uint32Array<ArrayBuffer>): void {
    const bytes = new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
    this.#insert.run(id, bytes, this.#sumOf(id, bytes));
  }

  /** Throws StoreError if the row is missing or damaged. */
  read(id: number): Uint32Array<ArrayBuffer> {
    const [blob, sum] = (this.#find.get(id) ?? []) as readonly unknown[];
    const bytes = asBuffer(blob);
    requireIntact(sum === this.#sumOf(id, bytes), `row ${id} of ${this.#name}`);
    return new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  }

  delete(from: number, to: number): void {
    this.#delete.run(from, to);
  }

  #sumOf(id: number, bytes: Uint8Array): number {
    return crc32(bytes, (this.#salt + id) >>> 0);
  }
}

/**
 * The rows of the sealed runs of a partition. Each level has a table for its items, in which one run at a time is
 * written, after all existing rows: so pages are filled in order, and freed from the other end.
 */
export class RunTables {
  readonly #db: DatabaseSync;
  readonly #partition: number;
  /** By level; one without runs may have no table yet. */
  readonly #items: BlobTable[] = [];
  readonly #filters: BlobTable;
  readonly #put: StatementSync;
  readonly #all: StatementSync;
  readonly #delete: StatementSync;

  constructor(db: DatabaseSync, partition: number) {
    this.#db = db;
    this.#partition = partition;
    this.#filters = new BlobTable(db, `filter_${partition}`);
    this.#put = db.prepare(`INSERT OR REPLACE INTO run_${partition} VALUES (?, ?, ?, ?, ?, ?, ?, ?)`);
    this.#all = db.prepare(`SELECT * FROM run_${partition} ORDER BY id`);
    this.#all.setReturnArrays(true);
    this.#delete = db.prepare(`DELETE FROM run_${partition} WHERE id = ?`);
  }

  /** To be called before the first run of a level is written. */
  openLevel(level: number): void {
    createTable(this.#db, itemsOf(this.#partition, level));
  }

  /** `whole`: the run counts, since it is completely written and not dropped. */
  put({ id, level, first, end, requests, appended }: RunFacts, whole: boolean): void {
    const fields = [id, level, first, end, requests, appended ?? null, Number(whole)];
    this.#put.run(...fields, checksumOf(...fields));
  }

  /** All runs, in the order in which they were started. Throws StoreError if one is damaged, or lacks its table. */
  all(): readonly (RunFacts & { readonly whole: boolean })[] {
    return this.#all.all().map((row) => {
      const [id, level, first, end, requests, appended, whole] = requireSum(row, 'the description of a run');
      this.#table(Number(level));
      return {
        id: Number(id),
        level: Number(level),
        first: Number(first),
        end: Number(end),
        requests: Number(requests),
        appended: appended === null ? undefined : Number(appended),
        whole: whole === 1,
      };
    });
  }

  delete(id: number): void {
    this.#delete.run(id);
  }

  writeItems(level: number, row: number, items: Items): void {
    this.#table(level).write(row, items);
  }

  /** Throws StoreError if the row is missing or damaged. */
  readItems(level: number, row: number): Items {
    const items = this.#table(level).read(row);
    requireIntact(items.byteLength % ITEM_BYTES === 0, `row ${row} of a run`);
    return items;
  }

  deleteItems(level: number, from: number, to: number): void {
    this.#table(level).delete(from, to);
  }

  writeFilter(row: number, words: Uint32Array<ArrayBuffer>): void {
    this.#filters.write(row, words);
  }

  /** Throws StoreError if the row is missing or damaged. */
  readFilter(row: number): Uint32Array<ArrayBuffer> {
    return this.#filters.read(row);
  }

  deleteFilters(from: number, to: number): void {
    this.#filters.delete(from, to);
  }

  #table(level: number): BlobTable {
    requireIntact(level >= 0 && level < LEVELS, 'the level of a run');
    this.#items[level] ??= new BlobTable(this.#db, itemsOf(this.#partition, level).name);
    return this.#items[level];
  }
}

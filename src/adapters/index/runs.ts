import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { MAX_CHUNKS, PageShape, RunPrints } from './fingerprints.ts';
import { cutItems, ITEM_WORDS, type Items, MAX_PLACES, sortItems } from './items.ts';
import { sequenceTableOf } from './sequence-table.ts';
import { asBuffer, checksumOf, createTable, requireIntact, requireSum, type TableShape } from './store.ts';

/** How many runs of a level are merged into one of the next. */
export const FAN_IN = 8;
export const LEVELS = 4;
/** The runs of this level are not merged. */
export const LAST_LEVEL = LEVELS - 1;
/** The entries of a run of the first level: those of the last one are then as many as an item has places for. */
export const RUN_ENTRIES = MAX_PLACES / FAN_IN ** LAST_LEVEL;
/** The average number of items in a row of a run. They take 1 KiB. */
const ROW_PLACES = 128;

/** The size of the runs of each level, in places and in rows. */
export class RunShape {
  readonly #entries: number;
  /** By level. */
  readonly #pages: readonly PageShape[];

  /** `entries`: the size of a run of the first level, a power of two up to RUN_ENTRIES. */
  constructor(entries: number) {
    if (!Number.isInteger(Math.log2(entries)) || entries > RUN_ENTRIES) {
      throw new RangeError(`the entries of a run must be a power of two up to ${RUN_ENTRIES}, not ${entries}`);
    }
    this.#entries = entries;
    this.#pages = Array.from({ length: LEVELS }, (_, level) => new PageShape(this.placesAt(level)));
  }

  placesAt(level: number): number {
    return this.#entries * FAN_IN ** level;
  }

  pagesAt(level: number): PageShape {
    return this.#pages[level] as PageShape;
  }

  /** Each row has an equal part of all hashes; a row of one level covers a whole number of rows of the next. */
  rowsAt(level: number): number {
    return Math.max(1, this.placesAt(level) / ROW_PLACES);
  }
}

/** Describes a run: the entries at the offsets [first, end). */
export interface RunFacts {
  readonly id: number;
  readonly level: number;
  readonly first: number;
  readonly end: number;
  /** The highest request offset of its entries; -1 for none. */
  requests: number;
  /** When its first entry, not counting markers, was appended; undefined for none. */
  readonly appended: number | undefined;
}

/** A table of one partition. */
export interface TableFacts extends TableShape {
  /** How many rows are deleted in one step, which takes a millisecond or two. */
  readonly rowsAStep: number;
  /** The table is created with its first row, since an empty table takes a page. */
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
    return this.#table(level).read(row);
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

/** How much is deleted in one step, which takes about a millisecond. */
const CHUNKS_A_STEP = 8;
const ROWS_A_STEP = 128;

/** Writes all of a run except `facts`; returns its fingerprints. */
export function writeRun(tables: RunTables, shape: RunShape, facts: RunFacts, items: Items): RunPrints {
  const prints = new RunPrints(shape.pagesAt(facts.level));
  prints.addAll(items);
  writeRows(tables, shape, facts, items, 0, shape.rowsAt(facts.level));
  writeChunks(tables, facts, prints, 0, prints.chunksBelow(1, 1));
  return prints;
}

/**
 * Merges consecutive runs of the level below into one run; writes all of it except `facts`. Returns its fingerprints.
 * Each step merges one row of
 * each input, in the order of hashes. The output does not count before the last step.
 */
export function* mergeRuns(
  tables: RunTables,
  shape: RunShape,
  facts: RunFacts,
  inputs: readonly RunFacts[],
): Generator<void, RunPrints> {
  const prints = new RunPrints(shape.pagesAt(facts.level));
  const inputLevel = facts.level - 1;
  const steps = shape.rowsAt(inputLevel);
  const rowsAStep = shape.rowsAt(facts.level) / steps;
  let chunk = 0;
  for (let step = 0; step < steps; step += 1) {
    const rows = inputs.map(({ id }) => tables.readItems(inputLevel, id * steps + step));
    const items = joined(
      rows,
      inputs.map(({ first }) => first - facts.first),
    );
    sortItems(items);
    prints.addAll(items);
    writeRows(tables, shape, facts, items, step * rowsAStep, (step + 1) * rowsAStep);
    const complete = prints.chunksBelow(step + 1, steps);
    writeChunks(tables, facts, prints, chunk, complete);
    chunk = complete;
    if (step < steps - 1) yield;
  }
  return prints;
}

/** All items of some rows; each row's places are raised by its number in `raises`. */
function joined(rows: readonly Items[], raises: readonly number[]): Items {
  const items: Items = new Uint32Array(rows.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const [i, row] of rows.entries()) {
    const raise = raises[i] as number;
    items.set(row, at);
    const end = at + row.length;
    for (; at < end; at += ITEM_WORDS) items[at] = (items[at] as number) + raise;
  }
  return items;
}

/** Writes empty rows as well, so that a missing row is noticed. */
function writeRows(
  tables: RunTables,
  shape: RunShape,
  { id, level }: RunFacts,
  items: Items,
  from: number,
  to: number,
): void {
  const rows = shape.rowsAt(level);
  const starts = cutItems(items, rows, from, to);
  for (let row = from; row < to; row += 1) {
    tables.writeItems(level, id * rows + row, items.subarray(starts[row - from], starts[row - from + 1]));
  }
}

function writeChunks(tables: RunTables, { id }: RunFacts, prints: RunPrints, from: number, to: number): void {
  for (let chunk = from; chunk < to; chunk += 1) tables.writeFilter(id * MAX_CHUNKS + chunk, prints.chunk(chunk));
}

/** A chunk of the fingerprints of a run. Throws StoreError if it is damaged. */
export function readChunk(tables: RunTables, id: number, chunk: number): Uint32Array<ArrayBuffer> {
  return tables.readFilter(id * MAX_CHUNKS + chunk);
}

/** Deletes all rows of a run that no longer counts, in steps. */
export function* deleteRun(tables: RunTables, shape: RunShape, { id, level }: RunFacts): Generator<void, void> {
  const rows = shape.rowsAt(level);
  for (let row = 0; row < rows; row += ROWS_A_STEP) {
    if (row > 0) yield;
    tables.deleteItems(level, id * rows + row, id * rows + Math.min(rows, row + ROWS_A_STEP));
  }
  const { chunks } = shape.pagesAt(level);
  for (let chunk = 0; chunk < chunks; chunk += CHUNKS_A_STEP) {
    if (chunk > 0) yield;
    tables.deleteFilters(id * MAX_CHUNKS + chunk, id * MAX_CHUNKS + chunk + CHUNKS_A_STEP);
  }
  tables.delete(id);
}

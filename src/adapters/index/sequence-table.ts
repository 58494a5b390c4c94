import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { SequenceRow } from '../../core/sequence-row.ts';
import { checksumOf, createTable, requireIntact, requireSum, type TableShape } from './store.ts';

const FIELDS = [
  'name TEXT',
  'next INTEGER',
  'step INTEGER',
  'max INTEGER',
  'format TEXT',
  'closed INTEGER',
  'edition INTEGER',
  'stated INTEGER',
  'appended REAL',
  'gap INTEGER',
] as const;

export function sequenceTableOf(partition: number): TableShape {
  return { name: `sequences_${partition}`, columns: `id INTEGER PRIMARY KEY, ${FIELDS.join(', ')}, sum INTEGER` };
}

/**
 * The rows of a partition's sequences: in memory, and on disk when they are saved. The table is created with the first
 * one.
 */
export class SequenceTable {
  readonly #db: DatabaseSync;
  readonly #table: TableShape;
  #put: StatementSync | undefined;
  readonly #rows = new Map<string, SequenceRow>();
  /** By the names of the sequences. */
  readonly rows: ReadonlyMap<string, SequenceRow> = this.#rows;
  /** Those that differ from the disk. */
  readonly #changed = new Set<string>();
  readonly #ids = new Map<string, number>();

  constructor(db: DatabaseSync, partition: number) {
    this.#db = db;
    this.#table = sequenceTableOf(partition);
  }

  /** Reads the disk, which must have so many rows. Throws StoreError if one is missing or damaged. */
  load(size: number): void {
    if (size === 0) return;
    const { name: table } = this.#table;
    const all = this.#db.prepare(`SELECT * FROM ${table} ORDER BY id`);
    all.setReturnArrays(true);
    for (const stored of all.all()) {
      const [id, name, next, step, max, format, closed, edition, ...rest] = requireSum(stored, table);
      const [offset, appended, gap] = rest;
      const range = { next: Number(next), step: Number(step), max: Number(max) };
      this.#ids.set(String(name), Number(id));
      this.#rows.set(String(name), {
        known: { ...range, format: String(format), closed: closed === 1, edition: Number(edition) },
        stated: { offset: Number(offset), appendedAtMs: Number(appended) },
        gap: Number(gap),
      });
    }
    requireIntact(this.#rows.size === size, `the number of rows in ${table}`);
  }

  set(name: string, row: SequenceRow): void {
    this.#rows.set(name, row);
    this.#changed.add(name);
  }

  clear(): void {
    if (this.#ids.size > 0) this.#db.exec(`DELETE FROM ${this.#table.name}`);
    for (const map of [this.#rows, this.#ids, this.#changed]) map.clear();
  }

  /** Writes what has changed; call within the transaction that moves the end. */
  save(): void {
    if (this.#changed.size === 0) return;
    const put = this.#opened();
    for (const name of this.#changed) {
      const id = this.#ids.get(name) ?? this.#ids.size;
      this.#ids.set(name, id);
      const { known, stated, gap } = this.#rows.get(name) as SequenceRow;
      const { next, step, max, format, closed, edition } = known;
      const said = [next, step, max, format, Number(closed), edition];
      const fields = [id, name, ...said, stated.offset, stated.appendedAtMs, gap];
      put.run(...fields, checksumOf(...fields));
    }
    this.#changed.clear();
  }

  #opened(): StatementSync {
    if (this.#put !== undefined) return this.#put;
    createTable(this.#db, this.#table);
    const fields = [...FIELDS, 'id', 'sum'].map(() => '?');
    this.#put = this.#db.prepare(`INSERT OR REPLACE INTO ${this.#table.name} VALUES (${fields.join(', ')})`);
    return this.#put;
  }
}

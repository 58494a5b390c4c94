import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { SequenceRow } from '../../core/sequence.ts';
import { checksumOf, requireIntact, requireSum } from './store.ts';

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

/** The columns of the table of a partition. */
export const SEQUENCE_COLUMNS = `id INTEGER PRIMARY KEY, ${FIELDS.join(', ')}, sum INTEGER`;

export function sequenceTableOf(partition: number): string {
  return `sequences_${partition}`;
}

/** The rows of a partition's sequences: in memory, and on disk when they are saved. */
export class SequenceTable {
  readonly #name: string;
  readonly #all: StatementSync;
  readonly #put: StatementSync;
  readonly #clear: StatementSync;
  readonly #rows = new Map<string, SequenceRow>();
  /** Those that differ from the disk. */
  readonly #changed = new Set<string>();
  readonly #ids = new Map<string, number>();

  constructor(db: DatabaseSync, partition: number) {
    this.#name = sequenceTableOf(partition);
    this.#all = db.prepare(`SELECT * FROM ${this.#name} ORDER BY id`);
    this.#all.setReturnArrays(true);
    this.#put = db.prepare(`INSERT OR REPLACE INTO ${this.#name} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`);
    this.#clear = db.prepare(`DELETE FROM ${this.#name}`);
  }

  get size(): number {
    return this.#rows.size;
  }

  /** Reads the disk, which must have so many rows. Throws StoreError if one is missing or damaged. */
  load(size: number): void {
    for (const stored of this.#all.all()) {
      const [id, name, next, step, max, format, closed, edition, ...rest] = requireSum(stored, this.#name);
      const [offset, appended, gap] = rest;
      const range = { next: Number(next), step: Number(step), max: Number(max) };
      this.#ids.set(String(name), Number(id));
      this.#rows.set(String(name), {
        known: { ...range, format: String(format), closed: closed === 1, edition: Number(edition) },
        stated: { offset: Number(offset), appendedAtMs: Number(appended) },
        gap: Number(gap),
      });
    }
    requireIntact(this.#rows.size === size, `the number of rows in ${this.#name}`);
  }

  get(name: string): SequenceRow | undefined {
    return this.#rows.get(name);
  }

  all(): Iterable<readonly [string, SequenceRow]> {
    return this.#rows;
  }

  set(name: string, row: SequenceRow): void {
    this.#rows.set(name, row);
    this.#changed.add(name);
  }

  clear(): void {
    this.#clear.run();
    for (const map of [this.#rows, this.#ids, this.#changed]) map.clear();
  }

  /** Writes what has changed; call within the transaction that moves the end. */
  save(): void {
    for (const name of this.#changed) {
      const id = this.#ids.get(name) ?? this.#ids.size;
      this.#ids.set(name, id);
      const { known, stated, gap } = this.#rows.get(name) as SequenceRow;
      const { next, step, max, format, closed, edition } = known;
      const said = [next, step, max, format, Number(closed), edition];
      const fields = [id, name, ...said, stated.offset, stated.appendedAtMs, gap];
      this.#put.run(...fields, checksumOf(...fields));
    }
    this.#changed.clear();
  }
}

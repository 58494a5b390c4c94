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
  'stated INTEGER',
  'appended REAL',
  'floor INTEGER',
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
    this.#put = db.prepare(`INSERT OR REPLACE INTO ${this.#name} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`);
    this.#clear = db.prepare(`DELETE FROM ${this.#name}`);
  }

  get size(): number {
    return this.#rows.size;
  }

  /** Reads the disk, which must have so many rows. Throws StoreError if one is missing or damaged. */
  load(size: number): void {
    for (const stored of this.#all.all()) {
      const [id, name, next, step, max, format, closed, stated, appended, floor] = requireSum(stored, this.#name);
      const known = { next: Number(next), step: Number(step), max: Number(max), format: String(format) };
      this.#ids.set(String(name), Number(id));
      this.#rows.set(String(name), {
        known: next === null ? undefined : { ...known, closed: closed === 1 },
        stated: stated === null ? undefined : { offset: Number(stated), appendedAtMs: Number(appended) },
        floor: floor === null ? undefined : Number(floor),
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

  /** Replaces each row by what `change` returns, and drops those for which that is undefined. */
  replaceAll(change: (row: SequenceRow) => SequenceRow | undefined): void {
    const before = [...this.#rows];
    this.#clear.run();
    for (const map of [this.#rows, this.#ids, this.#changed]) map.clear();
    for (const [name, row] of before) {
      const after = change(row);
      if (after !== undefined) this.set(name, after);
    }
  }

  /** Writes what has changed; call within the transaction that moves the end. */
  save(): void {
    for (const name of this.#changed) {
      const id = this.#ids.get(name) ?? this.#ids.size;
      this.#ids.set(name, id);
      const { known, stated, floor } = this.#rows.get(name) as SequenceRow;
      const closed = known === undefined ? null : Number(known.closed);
      const numbers = [known?.next ?? null, known?.step ?? null, known?.max ?? null, known?.format ?? null, closed];
      const fields = [id, name, ...numbers, stated?.offset ?? null, stated?.appendedAtMs ?? null, floor ?? null];
      this.#put.run(...fields, checksumOf(...fields));
    }
    this.#changed.clear();
  }
}

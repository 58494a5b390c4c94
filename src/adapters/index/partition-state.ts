import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { asBuffer, checksumOf, requireIntact } from './store.ts';

/** The stored state of a partition, besides its entries. */
export interface State {
  readonly end: number;
  readonly through: number;
  readonly digest: Buffer | undefined;
  /** The start of the known part of the log. */
  readonly origin: number;
  readonly horizon: number;
  /** Whether an entry covers what the lost head of the log decided: until then the horizon is only a lower bound. */
  readonly anchored: boolean;
  /** The time since which all decisions are known, by the brokers' clocks; 0 for all time, undefined if unknown. */
  readonly since: number | undefined;
  /** When the last entry was appended. */
  readonly appended: number;
  /** The highest request offset in the entries since the last sealed run. */
  readonly recent: number;
  /** When the first entry since the last sealed run, not counting markers, was appended; undefined for none. */
  readonly opened: number | undefined;
}

/** The state of a partition before anything of it was read. */
export const EMPTY_STATE: State = {
  end: 0,
  through: -1,
  digest: undefined,
  origin: 0,
  horizon: -1,
  anchored: true,
  since: 0,
  appended: 0,
  recent: -1,
  opened: undefined,
};

/** The row with a partition's state. It exists as long as anything else of the partition does. */
export class SavedState {
  readonly #partition: number;
  readonly #find: StatementSync;
  readonly #put: StatementSync;
  readonly #delete: StatementSync;

  constructor(db: DatabaseSync, partition: number) {
    this.#partition = partition;
    this.#find = db.prepare('SELECT * FROM state WHERE id = ?');
    this.#put = db.prepare('INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.#delete = db.prepare('DELETE FROM state WHERE id = ?');
  }

  /** `dropped`: the rest of the partition is being deleted. */
  save(state: State, dropped = false): void {
    const { end, through, digest, origin, horizon, anchored, since, appended, recent, opened } = state;
    const known = [end, through, digest ?? null, origin, horizon, Number(anchored), since ?? null];
    const fields = [this.#partition, ...known, appended, recent, opened ?? null, Number(dropped)];
    this.#put.run(...fields, checksumOf(...fields));
  }

  /** Undefined if nothing of the partition is stored. Throws StoreError if the row is damaged. */
  find(): State | 'dropped' | undefined {
    const stored = this.#find.get(this.#partition);
    if (stored === undefined) return undefined;
    requireSum(stored);
    if (stored.dropped === 1) return 'dropped';
    return {
      end: Number(stored.end),
      through: Number(stored.through),
      digest: stored.digest === null ? undefined : asBuffer(stored.digest),
      origin: Number(stored.origin),
      horizon: Number(stored.horizon),
      anchored: stored.anchored === 1,
      since: numberIn(stored.since),
      appended: Number(stored.appended),
      recent: Number(stored.recent),
      opened: numberIn(stored.opened),
    };
  }

  delete(): void {
    this.#delete.run(this.#partition);
  }
}

/** The stored partitions, in rising order. Throws StoreError if a row is damaged. */
export function partitionsIn(db: DatabaseSync): readonly number[] {
  return db
    .prepare('SELECT * FROM state ORDER BY id')
    .all()
    .map((stored) => {
      requireSum(stored);
      return Number(stored.id);
    });
}

function requireSum({ sum, ...fields }: Record<string, unknown>): void {
  requireIntact(sum === checksumOf(...Object.values(fields)), 'the state of a partition');
}

function numberIn(value: unknown): number | undefined {
  return value === null ? undefined : Number(value);
}

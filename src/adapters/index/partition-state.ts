import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { asBuffer, requireIntact, sumOf } from './store.ts';

/** What is known of a partition besides its entries. */
export interface State {
  readonly end: number;
  readonly through: number;
  readonly digest: Buffer | undefined;
  /** Where the part of the log begins that this knows. */
  readonly origin: number;
  readonly horizon: number;
  /** Whether an entry covers what the lost head of the log decided: before that the horizon is only the least that it can be. */
  readonly anchored: boolean;
  /** The place of an entry is its offset and this. */
  readonly shift: number;
  /** Since when all decisions are known, by the brokers' clocks; 0 for ever, undefined when nothing tells. */
  readonly since: number | undefined;
  /** When the last entry was appended. */
  readonly appended: number;
  /** Highest request offset that entries since the last sealed run tell of. */
  readonly recent: number;
}

/** Of a partition of which nothing was read yet. */
export const NOTHING: State = {
  end: 0,
  through: -1,
  digest: undefined,
  origin: 0,
  horizon: -1,
  anchored: true,
  shift: 0,
  since: 0,
  appended: 0,
  recent: -1,
};

/** The row of a partition's state. */
export class SavedState {
  readonly #partition: number;
  readonly #find: StatementSync;
  readonly #put: StatementSync;

  constructor(db: DatabaseSync, partition: number) {
    this.#partition = partition;
    this.#find = db.prepare('SELECT * FROM state WHERE id = ?');
    this.#put = db.prepare('INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
  }

  save({ end, through, digest, origin, horizon, anchored, shift, since, appended, recent }: State): void {
    const known = [end, through, digest ?? null, origin, horizon, Number(anchored)];
    const fields = [this.#partition, ...known, shift, since ?? null, appended, recent];
    this.#put.run(...fields, sumOf(...fields));
  }

  /** Throws StoreFault when the row is not as it was written. */
  load(): State {
    const stored = this.#find.get(this.#partition);
    if (stored === undefined) return NOTHING;
    const { sum, ...fields } = stored;
    requireIntact(sum === sumOf(...Object.values(fields)), 'what is said of a partition');
    return {
      end: Number(stored.end),
      through: Number(stored.through),
      digest: stored.digest === null ? undefined : asBuffer(stored.digest),
      origin: Number(stored.origin),
      horizon: Number(stored.horizon),
      anchored: stored.anchored === 1,
      shift: Number(stored.shift),
      since: stored.since === null ? undefined : Number(stored.since),
      appended: Number(stored.appended),
      recent: Number(stored.recent),
    };
  }
}

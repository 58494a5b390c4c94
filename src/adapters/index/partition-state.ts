import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { asBuffer, checksumOf, requireSum } from './store.ts';

/** The stored state of a partition, besides its entries. */
export interface State {
  readonly end: number;
  readonly through: number;
  readonly digest: Buffer | undefined;
  /** The start of the known part of the log. */
  readonly origin: number;
  readonly horizon: number;
  /** What the last statement of a replay says; 0 without one. */
  readonly answeredBelow: number;
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
  /** How many sequences are known. */
  readonly sequences: number;
  /** The offset of the last adoption of the log; -1 without one. */
  readonly adopted: number;
}

/** The state of a partition before anything of it was read. */
export const EMPTY_STATE: State = {
  end: 0,
  through: -1,
  digest: undefined,
  origin: 0,
  horizon: -1,
  answeredBelow: 0,
  anchored: true,
  since: 0,
  appended: 0,
  recent: -1,
  opened: undefined,
  sequences: 0,
  adopted: -1,
};

const WHAT = 'the state of a partition';

/** The row with a partition's state. It exists as long as anything else of the partition does. */
export class SavedState {
  readonly #partition: number;
  readonly #find: StatementSync;
  readonly #put: StatementSync;
  readonly #delete: StatementSync;

  constructor(db: DatabaseSync, partition: number) {
    this.#partition = partition;
    this.#find = db.prepare('SELECT * FROM state WHERE id = ?');
    this.#find.setReturnArrays(true);
    this.#put = db.prepare('INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.#delete = db.prepare('DELETE FROM state WHERE id = ?');
  }

  /** `dropped`: the rest of the partition is being deleted. */
  save(state: State, dropped = false): void {
    const { end, through, digest, origin, horizon, answeredBelow, anchored, since } = state;
    const { appended, recent, opened, sequences, adopted } = state;
    const known = [end, through, digest ?? null, origin, horizon, answeredBelow, Number(anchored), since ?? null];
    const fields = [this.#partition, ...known, appended, recent, opened ?? null, sequences, adopted, Number(dropped)];
    this.#put.run(...fields, checksumOf(...fields));
  }

  /** Undefined if nothing of the partition is stored. Throws StoreError if the row is damaged. */
  find(): State | 'dropped' | undefined {
    const stored = this.#find.get(this.#partition);
    if (stored === undefined) return undefined;
    const fields = requireSum(stored, WHAT);
    const [, end, through, digest, origin, horizon, answeredBelow, anchored, since, ...rest] = fields;
    const [appended, recent, opened, sequences, adopted] = rest;
    if (fields.at(-1) === 1) return 'dropped';
    return {
      end: Number(end),
      through: Number(through),
      digest: digest === null ? undefined : asBuffer(digest),
      origin: Number(origin),
      horizon: Number(horizon),
      answeredBelow: Number(answeredBelow),
      anchored: anchored === 1,
      since: numberIn(since),
      appended: Number(appended),
      recent: Number(recent),
      opened: numberIn(opened),
      sequences: Number(sequences),
      adopted: Number(adopted),
    };
  }

  delete(): void {
    this.#delete.run(this.#partition);
  }
}

/** The stored partitions, in rising order. Throws StoreError if a row is damaged. */
export function partitionsIn(db: DatabaseSync): readonly number[] {
  const all = db.prepare('SELECT * FROM state ORDER BY id');
  all.setReturnArrays(true);
  return all.all().map((stored) => Number(requireSum(stored, WHAT)[0]));
}

function numberIn(value: unknown): number | undefined {
  return value === null ? undefined : Number(value);
}

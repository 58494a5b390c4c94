import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { digestEntry } from '../../codec/ledger-digest.ts';
import { type LedgerPosition, readLedgerPosition } from '../../codec/ledger-position.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { type Applied, FORGOTTEN, type IndexedEntry, type LedgerRecord } from '../../pipeline/ports.ts';
import { type HashSeed, hashKey } from './key-hash.ts';
import { NOTHING, SavedState, type State } from './partition-state.ts';
import { RecentKeys } from './recent-keys.ts';
import { SealedRuns } from './sealed-runs.ts';
import { asBuffer, requireIntact, StoreFault, sqliteResult } from './store.ts';

/** Rows deleted in one step, a few milliseconds of work. */
const SWEEP_ROWS = 1_024;

/**
 * One partition: entries in log order, a row each, and two ways from a key's hash to rows: RecentKeys for the rows of
 * the run that is being filled, SealedRuns for those before.
 *
 * Rows only ever rise. What is forgotten lies below the floor: the first row that counts, where a run begins. A wipe
 * puts the floor above all rows and shifts what comes; so it costs as little as forgetting the head of the log does,
 * and both are swept up in small steps later.
 */
export class PartitionTables {
  readonly #db: DatabaseSync;
  readonly #partition: number;
  readonly #runEntries: number;
  readonly #seed: HashSeed;
  readonly #recent = new RecentKeys();
  readonly #runs: SealedRuns;
  readonly #insert: StatementSync;
  readonly #find: StatementSync;
  readonly #key: StatementSync;
  readonly #oldest: StatementSync;
  readonly #delete: StatementSync;
  readonly #saved: SavedState;
  #state: State;

  constructor(db: DatabaseSync, partition: number, options: { readonly runEntries: number; readonly seed: HashSeed }) {
    this.#db = db;
    this.#partition = partition;
    this.#runEntries = options.runEntries;
    this.#seed = options.seed;
    db.exec(`CREATE TABLE IF NOT EXISTS entry_${partition}
      ("row" INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB NOT NULL, appended INTEGER NOT NULL,
       behind INTEGER NOT NULL)`);
    this.#insert = db.prepare(`INSERT INTO entry_${partition} VALUES (?, ?, ?, ?, ?)`);
    this.#find = db.prepare(`SELECT value, appended, behind FROM entry_${partition} WHERE "row" = ? AND key = ?`);
    this.#key = db.prepare(`SELECT key FROM entry_${partition} WHERE "row" = ?`);
    this.#oldest = db.prepare(`SELECT min("row") AS "row" FROM entry_${partition}`);
    this.#delete = db.prepare(`DELETE FROM entry_${partition} WHERE "row" < ?`);
    this.#saved = new SavedState(db, partition);
    const { state, hashes } = this.#saved.load();
    this.#state = state;
    this.#runs = new SealedRuns(db, partition, this.#runEntries, this.#floorRun, this.#openRun);
    this.#loadRecent();
    requireIntact(this.#recent.sum === hashes, 'one of the newest keys');
  }

  get end(): number {
    return this.#state.end;
  }

  get through(): number {
    return this.#state.through;
  }

  get horizon(): number | undefined {
    return this.#state.horizon;
  }

  get last(): { readonly offset: number; readonly digest: Buffer } | undefined {
    const { end, digest } = this.#state;
    return digest === undefined ? undefined : { offset: end - 1, digest };
  }

  lookUp(key: Buffer): IndexedEntry | typeof FORGOTTEN | undefined {
    const hash = hashKey(key, this.#seed);
    for (const row of this.#rowsOf(hash)) {
      const found = this.#at(row, key, hash);
      if (found === undefined) continue;
      const offset = row - this.#state.shift;
      if (offset - found.behind < this.#state.origin) return FORGOTTEN;
      return { offset, value: found.value, appendedAtMs: found.appendedAtMs };
    }
    return undefined;
  }

  /** What a row says of a key; undefined when it is another key with the same hash. */
  #at(
    row: number,
    key: Buffer,
    hash: number,
  ): (Omit<IndexedEntry, 'offset'> & { readonly behind: number }) | undefined {
    const found = this.#find.get(row, key);
    if (found === undefined) {
      const other = this.#key.get(row)?.key;
      const intact = other instanceof Uint8Array && hashKey(other, this.#seed) === hash;
      requireIntact(intact, `the key of row ${row}`);
      return undefined;
    }
    const [value, behind, appendedAtMs] = [asBuffer(found.value), Number(found.behind), Number(found.appended)];
    requireIntact(storedEnd(value) === row - this.#state.shift - behind, `row ${row}`);
    return { value, appendedAtMs, behind };
  }

  firsts(records: readonly LedgerRecord[]): ReadonlySet<number> {
    const firsts = new Set<number>();
    for (const record of records) {
      if (record.key !== null && this.#isFirst(record.key, record)) firsts.add(record.offset);
    }
    return firsts;
  }

  #isFirst(key: Buffer, record: LedgerRecord): boolean {
    const own = record.offset + this.#state.shift;
    const hash = hashKey(key, this.#seed);
    for (const row of this.#rowsOf(hash)) {
      if (row === own) return positionOf(this.#partition, record).end >= this.#state.origin;
      if (this.#at(row, key, hash) !== undefined) return false;
    }
    return false;
  }

  /** The rows of what has this hash, the oldest first. */
  *#rowsOf(hash: number): Generator<number> {
    yield* this.#runs.rowsOf(hash);
    const start = this.#openRun * this.#runEntries;
    for (let at = this.#recent.find(hash); at >= 0; at = this.#recent.find(hash, at)) yield start + at;
  }

  /** Nothing is written before all of it was read: an entry that can't be read leaves everything as it was. */
  apply(records: readonly LedgerRecord[]): Applied {
    const fresh = records.filter((record) => record.offset >= this.end);
    const last = fresh.at(-1);
    if (last === undefined) return {};
    const positions = fresh.map((record) => positionOf(this.#partition, record));
    this.#requireWhole(fresh);
    let lossAt: number | undefined;
    this.#inTransaction(() => {
      for (const [i, record] of fresh.entries()) {
        const position = positions[i] as LedgerPosition;
        if (position.end > record.offset) lossAt = record.offset;
        this.#applyOne(record, position);
      }
      this.#state = { ...this.#state, digest: digestEntry(last) };
    });
    return lossAt === undefined ? {} : { lossAt };
  }

  #requireWhole(fresh: readonly LedgerRecord[]): void {
    const hole = fresh.findIndex(({ offset }, i) => offset !== this.end + i);
    if (hole === -1) return;
    const message = `ledger partition ${this.#partition} goes on at offset ${fresh[hole]?.offset} where ${this.end + hole} was due`;
    throw new IdallocError('LEDGER_TRUNCATED', message);
  }

  #applyOne({ offset, key, value, appendedAtMs }: LedgerRecord, position: LedgerPosition): void {
    const { end, through, requestOffset = -1 } = position;
    const state = this.#state;
    const row = offset + state.shift;
    if (key !== null && value !== null && position.requestOffset !== undefined) {
      this.#insert.run(row, key, value, appendedAtMs, offset - end);
      this.#recent.add(hashKey(key, this.#seed), row % this.#runEntries);
    }
    this.#state = {
      ...state,
      end: offset + 1,
      through: Math.max(state.through, through, requestOffset),
      horizon: raised(state.horizon, position, offset),
      recent: Math.max(state.recent, requestOffset),
    };
    if ((row + 1) % this.#runEntries === 0) this.#seal(Math.floor(row / this.#runEntries));
  }

  #seal(run: number): void {
    this.#runs.seal(run, this.#recent.packed(), this.#state.recent);
    this.#recent.clear();
    this.#state = { ...this.#state, recent: -1 };
  }

  wipe(from: number): void {
    const { end, shift } = this.#state;
    const floor = Math.ceil((end + shift) / this.#runEntries) * this.#runEntries;
    this.#inTransaction(() => {
      this.#recent.clear();
      this.#state = { ...NOTHING, end: from, origin: from, horizon: from === 0 ? -1 : undefined, shift: floor - from };
    });
    this.#runs.forgetBelow(this.#floorRun);
  }

  /** Forgets whole runs below an offset, then deletes some of what was forgotten. True while there is more to delete. */
  expire(low: number): boolean {
    const { horizon, shift } = this.#state;
    const run = Math.min(Math.floor((low + shift) / this.#runEntries), this.#openRun);
    if (run > this.#floorRun && horizon !== undefined) {
      const decided = Math.max(horizon, this.#runs.highestRequest(this.#floorRun, run));
      this.#inTransaction(() => {
        this.#state = { ...this.#state, origin: run * this.#runEntries - shift, horizon: decided };
      });
      this.#runs.forgetBelow(run);
    }
    return this.#sweep();
  }

  #sweep(): boolean {
    const floor = this.#floorRun * this.#runEntries;
    const oldest = this.#oldest.get()?.row;
    if (typeof oldest === 'number' && oldest < floor) {
      this.#delete.run(Math.min(floor, oldest + SWEEP_ROWS));
      return true;
    }
    return this.#runs.sweep(this.#floorRun);
  }

  get #floorRun(): number {
    return Math.floor((this.#state.origin + this.#state.shift) / this.#runEntries);
  }

  get #openRun(): number {
    return Math.floor((this.#state.end + this.#state.shift) / this.#runEntries);
  }

  /**
   * Entries and what is said of them change together or not at all: an end without its entries would be believed. What
   * fails in here leaves this object ahead of the disk, so it is the end of the store, whatever it is.
   */
  #inTransaction(change: () => void): void {
    try {
      this.#db.exec('BEGIN');
      change();
      this.#saved.save(this.#state, this.#recent.sum);
      this.#db.exec('COMMIT');
    } catch (error) {
      throw sqliteResult(error) === undefined ? new StoreFault(describeError(error), { cause: error }) : error;
    }
  }

  #loadRecent(): void {
    const start = this.#openRun * this.#runEntries;
    const rows = this.#db.prepare(`SELECT "row", key FROM entry_${this.#partition} WHERE "row" >= ? ORDER BY "row"`);
    for (const { row, key } of rows.iterate(start)) {
      this.#recent.add(hashKey(asBuffer(key), this.#seed), Number(row) - start);
    }
  }
}

/**
 * The horizon after an entry. Its writer had read the log to `end`: if that was its own place, all that was trimmed is
 * covered by its `through`; if that was above, what lay between is lost, and covered by it too.
 */
function raised(horizon: number | undefined, { end, through }: LedgerPosition, offset: number): number | undefined {
  if (end < offset) return horizon;
  return end === offset ? (horizon ?? through) : Math.max(horizon ?? -1, through);
}

function positionOf(partition: number, record: LedgerRecord): LedgerPosition {
  if (record.value === null) throw foreign(partition, record, 'no value');
  const position: LedgerPosition = record.entry ?? readLedgerPosition(record.value);
  if (position.requestOffset !== undefined && record.key === null) throw foreign(partition, record, 'no key');
  return position;
}

function foreign(partition: number, record: LedgerRecord, what: string): IdallocError {
  return new IdallocError(
    'LEDGER_UNREADABLE',
    `ledger partition ${partition} has an entry with ${what} at offset ${record.offset}: somebody else writes to the ledger topic`,
  );
}

function storedEnd(value: Buffer): number {
  try {
    return readLedgerPosition(value).end;
  } catch (error) {
    throw new StoreFault(describeError(error), { cause: error });
  }
}

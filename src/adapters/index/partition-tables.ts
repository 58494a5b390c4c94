import type { DatabaseSync } from 'node:sqlite';
import { digestEntry } from '../../codec/ledger-digest.ts';
import { type LedgerPosition, readLedgerPosition } from '../../codec/ledger-position.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { Applied, LedgerRecord } from '../../pipeline/ports.ts';

const FORGOTTEN = 'forgotten';
type IndexedEntry = any;

import { Blocks, type StoredEntry } from './blocks.ts';
import { type HashSeed, hashKey } from './key-hash.ts';
import { NOTHING, SavedState, type State } from './partition-state.ts';
import { RecentKeys } from './recent-keys.ts';
import { SealedRuns } from './sealed-runs.ts';
import { StoreFault, sqliteResult } from './store.ts';

/**
 * One partition: entries in log order, in blocks, and two ways from a key's hash to their places: RecentKeys for the run
 * that is being filled, SealedRuns for those before.
 *
 * Places only ever rise. What is forgotten lies below the floor: the first place that counts, where a run begins. A wipe
 * puts the floor above all places and shifts what comes; so it costs as little as forgetting the head of the log does,
 * and both are swept up in small steps later.
 */
export class PartitionTables {
  readonly #db: DatabaseSync;
  readonly #partition: number;
  readonly #runEntries: number;
  readonly #seed: HashSeed;
  readonly #recent = new RecentKeys();
  readonly #runs: SealedRuns;
  readonly #blocks: Blocks;
  readonly #saved: SavedState;
  #state: State;

  constructor(db: DatabaseSync, partition: number, options: { readonly runEntries: number; readonly seed: HashSeed }) {
    this.#db = db;
    this.#partition = partition;
    this.#runEntries = options.runEntries;
    this.#seed = options.seed;
    this.#blocks = new Blocks(db, partition);
    this.#saved = new SavedState(db, partition);
    this.#state = this.#saved.load();
    this.#runs = new SealedRuns(db, partition, this.#runEntries, this.#floorRun, this.#openRun);
    const start = this.#openRun * this.#runEntries;
    for (const { place, key } of this.#blocks.keys(start, this.#state.end + this.#state.shift)) {
      this.#recent.add(hashKey(key, this.#seed), place - start);
    }
  }

  get end(): number {
    return this.#state.end;
  }

  get through(): number {
    return this.#state.through;
  }

  get horizon(): number | undefined {
    return this.#state.anchored ? this.#state.horizon : undefined;
  }

  get since(): number | undefined {
    return this.#state.since;
  }

  get last(): { readonly offset: number; readonly digest: Buffer } | undefined {
    const { end, digest } = this.#state;
    return digest === undefined ? undefined : { offset: end - 1, digest };
  }

  lookUp(key: Buffer): IndexedEntry | typeof FORGOTTEN | undefined {
    for (const place of this.#placesOf(hashKey(key, this.#seed))) {
      const { key: other, value, appendedAtMs } = this.#blocks.entryAt(place);
      if (!other.equals(key)) continue;
      if (readLedgerPosition(value).end < this.#state.origin) return FORGOTTEN;
      return { offset: place - this.#state.shift, value, appendedAtMs };
    }
    return undefined;
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
    for (const place of this.#placesOf(hashKey(key, this.#seed))) {
      if (place === own) return positionOf(this.#partition, record).end >= this.#state.origin;
      if (this.#blocks.entryAt(place).key.equals(key)) return false;
    }
    return false;
  }

  /** The places of what has this hash, the oldest first. */
  #placesOf(hash: number): readonly number[] {
    const sealed = this.#runs.placesOf(hash);
    let at = this.#recent.find(hash);
    if (at < 0) return sealed;
    const start = this.#openRun * this.#runEntries;
    const places = [...sealed, start + at];
    for (at = this.#recent.find(hash, at); at >= 0; at = this.#recent.find(hash, at)) places.push(start + at);
    return places;
  }

  /** Nothing is written before all of it was read: an entry that can't be read leaves everything as it was. */
  apply(records: readonly LedgerRecord[]): Applied {
    const fresh = records.filter((record) => record.offset >= this.end);
    const last = fresh.at(-1);
    if (last === undefined) return {};
    const positions = fresh.map((record) => positionOf(this.#partition, record));
    this.#requireWhole(fresh);
    this.#inTransaction(() => {
      const places = this.#runEntries;
      for (let at = 0; at < fresh.length; ) {
        const left = places - ((this.end + this.#state.shift) % places);
        this.#fill(fresh.slice(at, at + left), positions.slice(at, at + left));
        at += left;
      }
      this.#state = { ...this.#state, digest: digestEntry(last), appended: last.appendedAtMs };
    });
    const lost = fresh.findLast(({ offset }, i) => (positions[i] as LedgerPosition).end > offset);
    return lost === undefined ? {} : { lossAt: lost.offset };
  }

  #requireWhole(fresh: readonly LedgerRecord[]): void {
    const hole = fresh.findIndex(({ offset }, i) => offset !== this.end + i);
    if (hole === -1) return;
    const message = `ledger partition ${this.#partition} goes on at offset ${fresh[hole]?.offset} where ${this.end + hole} was due`;
    throw new IdallocError('LEDGER_TRUNCATED', message);
  }

  /** Goes on with the open run, which has room for these; seals it when it is full. */
  #fill(records: readonly LedgerRecord[], positions: readonly LedgerPosition[]): void {
    let { end, through, horizon, anchored, since, recent } = this.#state;
    const first = end + this.#state.shift;
    const entries = records.map((record, i) => {
      const position = positions[i] as LedgerPosition;
      const requestOffset = position.requestOffset ?? -1;
      if (coversLoss(position, record.offset, anchored)) {
        horizon = Math.max(horizon, position.through);
        anchored = true;
      }
      // What is gone was appended before this entry, and before the last one that was known.
      if (since === undefined || position.end > record.offset) {
        since = Math.max(since ?? this.#state.appended, record.appendedAtMs);
      }
      through = Math.max(through, position.through, requestOffset);
      recent = Math.max(recent, requestOffset);
      end += 1;
      if (position.requestOffset === undefined || !isStored(record)) return undefined;
      this.#recent.add(hashKey(record.key, this.#seed), (first + i) % this.#runEntries);
      return record;
    });
    this.#blocks.write(first, entries);
    this.#state = { ...this.#state, end, through, horizon, anchored, since, recent };
    const next = first + records.length;
    if (next % this.#runEntries === 0) this.#seal(next / this.#runEntries - 1);
  }

  #seal(run: number): void {
    this.#runs.seal(run, this.#recent.packed(), this.#state.recent);
    this.#recent.clear();
    this.#state = { ...this.#state, recent: -1 };
  }

  wipe(from: number): void {
    const { end, shift, through, appended } = this.#state;
    const floor = Math.ceil((end + shift) / this.#runEntries) * this.#runEntries;
    this.#inTransaction(() => {
      this.#recent.clear();
      const known = { through, horizon: through, anchored: from === 0, appended };
      const since = from === 0 && through === -1 ? 0 : undefined;
      this.#state = { ...NOTHING, ...known, since, end: from, origin: from, shift: floor - from };
    });
    this.#runs.forgetBelow(this.#floorRun);
  }

  /** Forgets whole runs below an offset, then deletes some of what was forgotten. True while there is more to delete. */
  expire(low: number): boolean {
    const { horizon, anchored, shift } = this.#state;
    const run = Math.min(Math.floor((low + shift) / this.#runEntries), this.#openRun);
    if (run > this.#floorRun && anchored) {
      const decided = Math.max(horizon, this.#runs.highestRequest(this.#floorRun, run));
      const floor = run * this.#runEntries;
      const since = Math.max(this.#state.since ?? 0, this.#blocks.firstAppendedMs(floor) ?? this.#state.appended);
      this.#inTransaction(() => {
        this.#state = { ...this.#state, origin: floor - shift, horizon: decided, since };
      });
      this.#runs.forgetBelow(run);
    }
    return this.#blocks.sweep(this.#floorRun * this.#runEntries) || this.#runs.sweep(this.#floorRun);
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
      this.#saved.save(this.#state);
      this.#db.exec('COMMIT');
    } catch (error) {
      throw sqliteResult(error) === undefined ? new StoreFault(describeError(error), { cause: error }) : error;
    }
  }
}

/**
 * Whether all that may be gone of the log is covered by the `through` of an entry. Its writer had read the log to `end`:
 * if that was its own place, it had read what was trimmed; if that was above, what lay between is lost.
 */
function coversLoss({ end }: LedgerPosition, offset: number, anchored: boolean): boolean {
  return end > offset || (end === offset && !anchored);
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

function isStored(record: LedgerRecord): record is LedgerRecord & StoredEntry {
  return record.key !== null && record.value !== null;
}

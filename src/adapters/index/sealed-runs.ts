import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { HASH_BITS } from './key-hash.ts';
import { MAX_RUN_ENTRIES } from './recent-keys.ts';
import { RunFilter } from './run-filter.ts';

/** A run's hashes are cut by their highest bits into this many rows, about 1 KB each. */
const CHUNKS = 256;
const HASHES_PER_CHUNK = 2 ** HASH_BITS / CHUNKS;
/** Rows deleted in one step. */
const SWEEP_CHUNKS = 512;

/**
 * The way from a key's hash to rows, for entries that are not among the recent ones any more.
 *
 * A run is as many rows as one place within it can tell apart. It is written at once, in the order of hashes, and never
 * changed: random keys cost no random writes. Whole runs go when the ledger's head goes.
 */
export class SealedRuns {
  readonly #filter = new RunFilter();
  readonly #entries: number;
  readonly #insertChunk: StatementSync;
  readonly #insertRun: StatementSync;
  readonly #chunk: StatementSync;
  readonly #highest: StatementSync;
  readonly #oldest: StatementSync;
  readonly #delete: StatementSync;
  readonly #deleteRuns: StatementSync;

  /** `entries` rows make a run; those below run `from` are forgotten. */
  constructor(db: DatabaseSync, partition: number, entries: number, from: number) {
    this.#entries = entries;
    db.exec(`
      CREATE TABLE IF NOT EXISTS chunk_${partition} (id INTEGER PRIMARY KEY, packed BLOB NOT NULL);
      CREATE TABLE IF NOT EXISTS run_${partition} (id INTEGER PRIMARY KEY, requests INTEGER NOT NULL)`);
    this.#insertChunk = db.prepare(`INSERT INTO chunk_${partition} VALUES (?, ?)`);
    this.#insertRun = db.prepare(`INSERT INTO run_${partition} VALUES (?, ?)`);
    this.#chunk = db.prepare(`SELECT packed FROM chunk_${partition} WHERE id = ?`);
    this.#highest = db.prepare(`SELECT max(requests) AS requests FROM run_${partition} WHERE id >= ? AND id < ?`);
    this.#oldest = db.prepare(`SELECT min(id) AS id FROM chunk_${partition}`);
    this.#delete = db.prepare(`DELETE FROM chunk_${partition} WHERE id < ?`);
    this.#deleteRuns = db.prepare(`DELETE FROM run_${partition} WHERE id < ?`);
    this.#filter.dropBelow(from);
    const chunks = db.prepare(`SELECT id, packed FROM chunk_${partition} WHERE id >= ? ORDER BY id`);
    for (const { id, packed } of chunks.iterate(from * CHUNKS)) {
      const run = Math.floor(Number(id) / CHUNKS);
      for (const item of unpack(packed)) this.#filter.add(run, hashOf(item));
    }
  }

  /** Writes a run. `packed` is RecentKeys' own; `requests` the highest request offset that its entries tell of. */
  seal(run: number, packed: Float64Array<ArrayBuffer>, requests: number): void {
    let from = 0;
    for (let chunk = 0; chunk < CHUNKS; chunk++) {
      const limit = (chunk + 1) * HASHES_PER_CHUNK * MAX_RUN_ENTRIES;
      let to = from;
      while (to < packed.length && (packed[to] as number) < limit) to += 1;
      if (to > from)
        this.#insertChunk.run(run * CHUNKS + chunk, new Uint8Array(packed.buffer, from * 8, (to - from) * 8));
      from = to;
    }
    for (const item of packed) this.#filter.add(run, hashOf(item));
    this.#insertRun.run(run, requests);
  }

  /** The rows that have this hash, in rising order. */
  rowsOf(hash: number): number[] {
    const rows: number[] = [];
    for (const run of this.#filter.runsOf(hash)) {
      const chunk = this.#chunk.get(run * CHUNKS + Math.floor(hash / HASHES_PER_CHUNK));
      if (chunk === undefined) continue;
      for (const item of unpack(chunk.packed)) {
        if (hashOf(item) === hash) rows.push(run * this.#entries + (item % MAX_RUN_ENTRIES));
      }
    }
    return rows;
  }

  /** The highest request offset that entries of the runs [from, to) tell of; -1 for none. */
  highestRequest(from: number, to: number): number {
    return Number(this.#highest.get(from, to)?.requests ?? -1);
  }

  /** Runs below this one are not looked at any more. */
  forgetBelow(run: number): void {
    this.#filter.dropBelow(run);
  }

  /** Deletes some of what lies below a run; true when it found something. */
  sweep(run: number): boolean {
    const oldest = this.#oldest.get()?.id;
    const limit = run * CHUNKS;
    if (typeof oldest !== 'number' || oldest >= limit) return false;
    this.#delete.run(Math.min(limit, oldest + SWEEP_CHUNKS));
    this.#deleteRuns.run(run);
    return true;
  }
}

function hashOf(item: number): number {
  return Math.floor(item / MAX_RUN_ENTRIES);
}

function unpack(packed: unknown): Float64Array {
  const bytes = packed as Uint8Array;
  return new Float64Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 8);
}

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { HASH_BITS } from './key-hash.ts';
import { MAX_RUN_ENTRIES } from './recent-keys.ts';
import { RunFilter } from './run-filter.ts';
import { requireIntact, StoreFault, sumOf } from './store.ts';

/** A run's hashes are cut by their highest bits into this many rows, about 1 KB each. */
const CHUNKS = 256;
const HASHES_PER_CHUNK = 2 ** HASH_BITS / CHUNKS;
/** Rows deleted in one step. */
const SWEEP_CHUNKS = 512;

/**
 * The way from a key's hash to places, for entries that are not among the recent ones any more.
 *
 * A run is as many places as its items can tell apart. It is written at once, in the order of hashes, and never
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

  /** `entries` places make a run; those below run `from` are forgotten, those from `to` on are not sealed yet. */
  constructor(db: DatabaseSync, partition: number, entries: number, from: number, to: number) {
    this.#entries = entries;
    db.exec(`
      CREATE TABLE IF NOT EXISTS chunk_${partition} (id INTEGER PRIMARY KEY, packed BLOB NOT NULL, sum INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS run_${partition} (id INTEGER PRIMARY KEY, requests INTEGER NOT NULL, sum INTEGER NOT NULL)`);
    this.#insertChunk = db.prepare(`INSERT INTO chunk_${partition} VALUES (?, ?, ?)`);
    this.#insertRun = db.prepare(`INSERT INTO run_${partition} VALUES (?, ?, ?)`);
    this.#chunk = db.prepare(`SELECT packed, sum FROM chunk_${partition} WHERE id = ?`);
    this.#highest = db.prepare(`SELECT id, requests, sum FROM run_${partition} WHERE id >= ? AND id < ?`);
    this.#oldest = db.prepare(`SELECT min(id) AS id FROM chunk_${partition}`);
    this.#delete = db.prepare(`DELETE FROM chunk_${partition} WHERE id < ?`);
    this.#deleteRuns = db.prepare(`DELETE FROM run_${partition} WHERE id < ?`);
    this.#filter.dropBelow(from);
    const chunks = db.prepare(`SELECT packed, sum FROM chunk_${partition} WHERE id >= ? ORDER BY id`);
    let next = from * CHUNKS;
    for (const chunk of chunks.iterate(next)) {
      const run = Math.floor(next / CHUNKS);
      for (const item of unpack(next, chunk)) this.#filter.add(run, hashOf(item));
      next += 1;
    }
    requireIntact(next === to * CHUNKS, 'the number of sealed runs');
  }

  /** Writes a run. `packed` is RecentKeys' own; `requests` the highest request offset that its entries tell of. */
  seal(run: number, packed: Float64Array<ArrayBuffer>, requests: number): void {
    let from = 0;
    for (let chunk = 0; chunk < CHUNKS; chunk++) {
      const limit = (chunk + 1) * HASHES_PER_CHUNK * MAX_RUN_ENTRIES;
      let to = from;
      while (to < packed.length && (packed[to] as number) < limit) to += 1;
      const [id, bytes] = [run * CHUNKS + chunk, new Uint8Array(packed.buffer, from * 8, (to - from) * 8)];
      this.#insertChunk.run(id, bytes, crc32(bytes, id >>> 0)); // one without entries too: a row that is gone is seen
      from = to;
    }
    for (const item of packed) this.#filter.add(run, hashOf(item));
    this.#insertRun.run(run, requests, sumOf(run, requests));
  }

  /** The places that have this hash, in rising order. */
  placesOf(hash: number): readonly number[] {
    const runs = this.#filter.runsOf(hash);
    if (runs.length === 0) return runs;
    const places: number[] = [];
    for (const run of runs) {
      const id = run * CHUNKS + Math.floor(hash / HASHES_PER_CHUNK);
      for (const item of unpack(id, this.#chunk.get(id))) {
        if (hashOf(item) === hash) places.push(run * this.#entries + (item % MAX_RUN_ENTRIES));
      }
    }
    return places;
  }

  /** The highest request offset that entries of the runs [from, to) tell of; -1 for none. */
  highestRequest(from: number, to: number): number {
    const runs = this.#highest.all(from, to);
    const intact = runs.length === to - from && runs.every((run) => run.sum === sumOf(run.id, run.requests));
    requireIntact(intact, 'what is said of sealed runs');
    return runs.reduce((highest, { requests }) => Math.max(highest, Number(requests)), -1);
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

/** The hashes and places in a chunk. Throws StoreFault when it is damaged or gone. */
function unpack(id: number, chunk: Record<string, unknown> | undefined): Float64Array {
  const { packed, sum } = chunk ?? {};
  if (packed instanceof Uint8Array && crc32(packed, id >>> 0) === sum) {
    return new Float64Array(packed.buffer, packed.byteOffset, packed.byteLength / 8);
  }
  throw new StoreFault(`part ${id} of the sealed runs is gone, or not as it was written`);
}

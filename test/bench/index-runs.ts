import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { ITEM_WORDS, type Items, MAX_PLACES } from '../../src/adapters/index/items.ts';
import { EMPTY_STATE, SavedState } from '../../src/adapters/index/partition-state.ts';
import { LAST_LEVEL, RUN_ENTRIES, RunShape, RunTables, writeRun } from '../../src/adapters/index/runs.ts';
import { mixed } from './index-entries.ts';

/** The entries of each run of the last level. */
export const LAST_RUN_ENTRIES = new RunShape(RUN_ENTRIES).placesAt(LAST_LEVEL);

/**
 * Gives an empty partition so many runs of the last level, as merges would have written them: a hundred million entries
 * take a minute. The index has been opened in this directory with partition 0, and is closed. No key of `keyOf` is in
 * them.
 */
export function writeLastRuns(directory: string, runs: number): void {
  const db = new DatabaseSync(join(directory, 'ledger-index.sqlite'));
  try {
    db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF');
    const tables = new RunTables(db, 0);
    tables.openLevel(LAST_LEVEL);
    for (let id = 0; id < runs; id += 1) {
      const first = id * LAST_RUN_ENTRIES;
      const end = first + LAST_RUN_ENTRIES;
      const facts = { id, level: LAST_LEVEL, first, end, requests: end - 1, appended: 1_780_416_300_000 };
      db.exec('BEGIN');
      writeRun(tables, new RunShape(RUN_ENTRIES), facts, spreadItems(first));
      tables.put(facts, true);
      new SavedState(db, 0).save({ ...EMPTY_STATE, end, through: end - 1 });
      db.exec('COMMIT');
    }
  } finally {
    db.close();
  }
}

/** Sorted items with random hashes: the gaps between random numbers have an exponential distribution. */
function spreadItems(first: number): Items {
  const hashes = new Float64Array(MAX_PLACES);
  let sum = 0;
  for (let place = 0; place < MAX_PLACES; place += 1) {
    sum -= Math.log((mixed(first + place) + 1) / 2 ** 32);
    hashes[place] = sum;
  }
  const items: Items = new Uint32Array(MAX_PLACES * ITEM_WORDS);
  for (let place = 0; place < MAX_PLACES; place += 1) {
    items[place * ITEM_WORDS] = mixed(~(first + place)) - (mixed(~(first + place)) % MAX_PLACES) + place;
    items[place * ITEM_WORDS + 1] = ((hashes[place] as number) / (sum + 1)) * 2 ** 32;
  }
  return items;
}

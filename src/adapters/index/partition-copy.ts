import type { DatabaseSync } from 'node:sqlite';
import type { HashSeed } from './items.ts';
import { OpenRun } from './open-run.ts';
import { PartitionIndex } from './partition-index.ts';
import { EMPTY_STATE, SavedState, type State } from './partition-state.ts';
import { type RunShape, RunTables, tablesOf } from './runs.ts';
import { SealedRuns } from './sealed-runs.ts';
import { SequenceTable } from './sequence-table.ts';
import { inTransaction } from './store.ts';

export interface CopyOptions {
  readonly shape: RunShape;
  readonly seed: HashSeed;
}

/** Opens the copy of a partition, in steps; creates an empty one if there is none, or if one is half deleted. */
export function* loadPartition(
  db: DatabaseSync,
  partition: number,
  options: CopyOptions,
): Generator<void, PartitionIndex> {
  const saved = new SavedState(db, partition);
  if (saved.find() === 'dropped') yield* dropPartition(db, partition);
  const state = saved.find();
  if (state === undefined || state === 'dropped') {
    createTables(db, partition, saved);
    return yield* openParts(db, partition, saved, EMPTY_STATE, options);
  }
  return yield* openParts(db, partition, saved, state, options);
}

/** Throws StoreError unless everything from the origin to the end is there; items are only checked by look-ups. */
function* openParts(
  db: DatabaseSync,
  partition: number,
  saved: SavedState,
  state: State,
  options: CopyOptions,
): Generator<void, PartitionIndex> {
  const { shape, seed } = options;
  const tables = new RunTables(db, partition);
  const runs = yield* SealedRuns.open(tables, shape, state.origin);
  const open = new OpenRun(db, partition, shape.placesAt(0), runs.end ?? state.origin);
  open.load(state.end);
  const sequences = new SequenceTable(db, partition);
  sequences.load(state.sequences);
  return new PartitionIndex(db, partition, { state, saved, open, runs, sequences }, seed);
}

/** Fails if tables exist without a state: then the state of the partition was lost. */
function createTables(db: DatabaseSync, partition: number, saved: SavedState): void {
  inTransaction(db, () => {
    for (const { name, columns, isLater } of tablesOf(partition))
      if (isLater !== true) db.exec(`CREATE TABLE ${name} (${columns})`);
    saved.save(EMPTY_STATE);
  });
}

/** Deletes everything of a partition, in steps. If it is interrupted by a restart, it must be called again. */
export function* dropPartition(db: DatabaseSync, partition: number): Generator<void, void> {
  const saved = new SavedState(db, partition);
  if (saved.find() === undefined) return;
  inTransaction(db, () => saved.save(EMPTY_STATE, true));
  const hasTable = db.prepare('SELECT 1 FROM sqlite_schema WHERE name = ?');
  const tables = tablesOf(partition).filter(({ name }) => hasTable.get(name) !== undefined);
  for (const { name, rowsAStep } of tables) {
    const some = db.prepare(`DELETE FROM ${name} WHERE id IN (SELECT id FROM ${name} ORDER BY id LIMIT ${rowsAStep})`);
    do yield;
    while (Number(some.run().changes) > 0);
  }
  inTransaction(db, () => {
    for (const { name } of tables) db.exec(`DROP TABLE ${name}`);
    saved.delete();
  });
}

import { cutItems, ITEM_WORDS, type Items, sortItems } from './items.ts';
import { chunksFor, MAX_CHUNKS, RunFilter } from './run-filter.ts';
import type { RunShape } from './run-shape.ts';
import type { RunFacts, RunTables } from './run-tables.ts';

/** Read or deleted in one step, which takes about a millisecond. */
const CHUNKS_A_STEP = 8;
const ROWS_A_STEP = 128;

/** A sealed run with its filter. */
export interface SealedRun extends RunFacts {
  readonly filter: RunFilter;
}

/** Writes all of a run except `facts`. */
export function writeRun(tables: RunTables, shape: RunShape, facts: RunFacts, items: Items): SealedRun {
  const filter = new RunFilter(shape.filterBitsAt(facts.level));
  filter.addAll(items);
  writeRows(tables, shape, facts, items, 0, shape.rowsAt(facts.level));
  writeChunks(tables, facts, filter, 0, filter.chunks);
  return { ...facts, filter };
}

/**
 * Merges consecutive runs of the level below into one run; writes all of it except `facts`. Each step merges one row of
 * each input, in the order of hashes. The output does not count before the last step.
 */
export function* mergeRuns(
  tables: RunTables,
  shape: RunShape,
  facts: RunFacts,
  inputs: readonly SealedRun[],
): Generator<void, SealedRun> {
  const filter = new RunFilter(shape.filterBitsAt(facts.level));
  const inputLevel = facts.level - 1;
  const steps = shape.rowsAt(inputLevel);
  const rowsAStep = shape.rowsAt(facts.level) / steps;
  let chunk = 0;
  for (let step = 0; step < steps; step += 1) {
    const rows = inputs.map(({ id }) => tables.readItems(inputLevel, id * steps + step));
    const items = joined(
      rows,
      inputs.map(({ first }) => first - facts.first),
    );
    sortItems(items);
    filter.addAll(items);
    writeRows(tables, shape, facts, items, step * rowsAStep, (step + 1) * rowsAStep);
    const complete = filter.chunksBelow(step + 1, steps);
    writeChunks(tables, facts, filter, chunk, complete);
    chunk = complete;
    if (step < steps - 1) yield;
  }
  return { ...facts, filter };
}

/** All items of some rows; each row's places are raised by its number in `raises`. */
function joined(rows: readonly Items[], raises: readonly number[]): Items {
  const items: Items = new Uint32Array(rows.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const [i, row] of rows.entries()) {
    const raise = raises[i] as number;
    items.set(row, at);
    const end = at + row.length;
    for (; at < end; at += ITEM_WORDS) items[at] = (items[at] as number) + raise;
  }
  return items;
}

/** Writes empty rows as well, so that a missing row is noticed. */
function writeRows(
  tables: RunTables,
  shape: RunShape,
  { id, level }: RunFacts,
  items: Items,
  from: number,
  to: number,
): void {
  const rows = shape.rowsAt(level);
  const starts = cutItems(items, rows, from, to);
  for (let row = from; row < to; row += 1) {
    tables.writeItems(level, id * rows + row, items.subarray(starts[row - from], starts[row - from + 1]));
  }
}

function writeChunks(tables: RunTables, { id }: RunFacts, filter: RunFilter, from: number, to: number): void {
  for (let chunk = from; chunk < to; chunk += 1) tables.writeFilter(id * MAX_CHUNKS + chunk, filter.chunk(chunk));
}

/** Reads the filter of a run, in steps. Throws StoreError if it is damaged. */
export function* loadRun(tables: RunTables, shape: RunShape, facts: RunFacts): Generator<void, SealedRun> {
  const filter = new RunFilter(shape.filterBitsAt(facts.level));
  for (let chunk = 0; chunk < filter.chunks; chunk += 1) {
    filter.restore(chunk, tables.readFilter(facts.id * MAX_CHUNKS + chunk));
    if (chunk % CHUNKS_A_STEP === 0) yield;
  }
  return { ...facts, filter };
}

/** Deletes all rows of a run that no longer counts, in steps. */
export function* deleteRun(tables: RunTables, shape: RunShape, { id, level }: RunFacts): Generator<void, void> {
  const rows = shape.rowsAt(level);
  for (let row = 0; row < rows; row += ROWS_A_STEP) {
    if (row > 0) yield;
    tables.deleteItems(level, id * rows + row, id * rows + Math.min(rows, row + ROWS_A_STEP));
  }
  const chunks = chunksFor(shape.filterBitsAt(level));
  for (let chunk = 0; chunk < chunks; chunk += CHUNKS_A_STEP) {
    if (chunk > 0) yield;
    tables.deleteFilters(id * MAX_CHUNKS + chunk, id * MAX_CHUNKS + chunk + CHUNKS_A_STEP);
  }
  tables.delete(id);
}

import { bitsOf, findPlaces, type Items, partOf, upperOf } from './items.ts';
import { LevelFilter } from './level-filter.ts';
import {
  deleteRun,
  FAN_IN,
  LAST_LEVEL,
  LEVELS,
  mergeRuns,
  type RunFacts,
  type RunShape,
  type RunTables,
  readChunk,
  writeRun,
} from './runs.ts';
import { requireIntact } from './store.ts';

/** How many entries are merged for each entry applied: a merge is done by about the time when one more run is full. */
const MERGE_PACE = 8;

interface Merge {
  readonly inputs: readonly RunFacts[];
  readonly output: RunFacts;
  readonly steps: Generator<void, void>;
  /** The number of entries that a step merges. */
  readonly stepPlaces: number;
  /** The number of entries to merge by now. */
  due: number;
}

/**
 * Maps the hash of a key to offsets, for entries that are no longer in the open run: a log-structured merge tree.
 *
 * A run is written in the order of hashes and never changed, so random keys cost no random writes. The eight oldest
 * runs of a level are merged into one of the next, so that a look-up has few runs to check. A merge is done in steps,
 * in proportion to the entries applied. Until its last step only its inputs count, and after a restart it starts again.
 * Runs that no longer count are deleted in steps as well.
 */
export class SealedRuns {
  readonly #tables: RunTables;
  readonly #shape: RunShape;
  readonly #sweeper: RunSweeper;
  /** Each starts where the previous one ends; levels never rise. */
  #runs: readonly RunFacts[] = [];
  /** By level. */
  readonly #filters: readonly LevelFilter<RunFacts>[];
  /** By the level of their inputs. */
  readonly #merges = new Map<number, Merge>();
  #nextId = 0;

  private constructor(tables: RunTables, shape: RunShape, dead: readonly RunFacts[]) {
    this.#tables = tables;
    this.#shape = shape;
    this.#sweeper = new RunSweeper(tables, shape, dead);
    this.#filters = Array.from({ length: LEVELS }, (_, level) => new LevelFilter(shape.pagesAt(level)));
  }

  /** Opens the runs from `origin` on, in steps. Throws StoreError if one is missing or damaged. */
  static *open(tables: RunTables, shape: RunShape, origin: number): Generator<void, SealedRuns> {
    const all = tables.all();
    const live = requireContiguous(
      all.filter(({ whole }) => whole),
      shape,
      origin,
    );
    const dead = all.filter(({ whole }) => !whole);
    const opened = new SealedRuns(tables, shape, dead);
    opened.#nextId = Math.max(-1, ...all.map(({ id }) => id)) + 1;
    for (const [level, filter] of opened.#filters.entries()) {
      const runs = live.filter((run) => run.level === level);
      yield* filter.load(runs, ({ id }, chunk) => readChunk(tables, id, chunk));
    }
    opened.#runs = live;
    return opened;
  }

  /** The offset after the last entry; undefined without runs. */
  get end(): number | undefined {
    return this.#runs.at(-1)?.end;
  }

  /** Writes the items of the entries at the offsets [first, end), which follow the last run. */
  seal(items: Items, entries: Pick<RunFacts, 'first' | 'end' | 'requests' | 'appended'>): void {
    const facts = { id: this.#newId(), level: 0, ...entries };
    const prints = writeRun(this.#tables, this.#shape, facts, items);
    this.#tables.put(facts, true);
    for (const _ of this.#filterAt(0).add(facts, prints)); // takes a tenth of a millisecond
    this.#runs = [...this.#runs, facts];
  }

  /**
   * Adds the offsets with this hash to `found`, in rising order. Runs that end at or below `from` are left out: the
   * hash is known to be in none of them.
   */
  find(hash: number, from: number, found: number[]): void {
    if (from >= (this.end ?? 0)) return;
    const [upper, bits] = [upperOf(hash), bitsOf(hash)];
    const holders: RunFacts[] = [];
    for (const filter of this.#filters) filter.find(upper, bits, holders);
    if (holders.length > 1) holders.sort((one, other) => one.first - other.first);
    for (const { level, id, first, end } of holders) {
      if (end <= from) continue;
      const rows = this.#shape.rowsAt(level);
      findPlaces(this.#tables.readItems(level, id * rows + partOf(upper, rows)), hash, first, found);
    }
  }

  /** Does the merging that is due after `entries` entries were applied. */
  merge(entries: number): void {
    for (let level = 0; level < LAST_LEVEL; level += 1) {
      const merge = this.#merges.get(level) ?? this.#startMerge(level);
      if (merge === undefined) continue;
      merge.due += MERGE_PACE * entries;
      while (merge.due >= merge.stepPlaces) {
        merge.due -= merge.stepPlaces;
        const step = merge.steps.next();
        if (step.done !== true) continue;
        this.#finish(level, merge);
        break;
      }
    }
    this.#sweeper.sweepFor(entries);
  }

  #startMerge(level: number): Merge | undefined {
    const inputs = this.#runs.filter((run) => run.level === level).slice(0, FAN_IN);
    const [oldest] = inputs;
    if (oldest === undefined || inputs.length < FAN_IN) return undefined;
    const output: RunFacts = {
      id: this.#newId(),
      level: level + 1,
      first: oldest.first,
      end: oldest.first + this.#shape.placesAt(level + 1),
      requests: highestRequest(inputs),
      appended: firstAppended(inputs),
    };
    this.#tables.openLevel(output.level);
    this.#tables.put(output, false);
    const steps = this.#stepsOf(output, inputs);
    const stepPlaces = this.#shape.placesAt(level + 1) / this.#shape.rowsAt(level);
    const merge = { inputs, output, steps, stepPlaces, due: 0 };
    this.#merges.set(level, merge);
    return merge;
  }

  *#stepsOf(output: RunFacts, inputs: readonly RunFacts[]): Generator<void, void> {
    const prints = yield* mergeRuns(this.#tables, this.#shape, output, inputs);
    yield* this.#filterAt(output.level).add(output, prints);
  }

  #finish(level: number, { inputs, output }: Merge): void {
    this.#merges.delete(level);
    this.#tables.put(output, true);
    const at = this.#runs.indexOf(inputs[0] as RunFacts);
    this.#retire(inputs);
    this.#runs = this.#runs.toSpliced(at, inputs.length, output);
  }

  #filterAt(level: number): LevelFilter<RunFacts> {
    return this.#filters[level] as LevelFilter<RunFacts>;
  }

  /** The runs that end at or below an offset. */
  below(low: number): readonly RunFacts[] {
    return this.#runs.filter(({ end }) => end <= low);
  }

  /** When the first entry from this offset on, not counting markers, was appended; undefined for none. */
  appendedFrom(offset: number): number | undefined {
    return firstAppended(this.#runs.filter(({ first }) => first >= offset));
  }

  /** Drops runs that end at or below an offset, within a transaction. They are deleted later. */
  forgetBelow(low: number): void {
    const forgotten = new Set(this.below(low));
    for (const [level, { inputs, output, steps }] of this.#merges) {
      if (!inputs.some((run) => forgotten.has(run))) continue;
      this.#merges.delete(level);
      steps.return(); // its fingerprints count for nothing
      this.#sweeper.add(output);
    }
    this.#retire([...forgotten]);
    this.#runs = this.#runs.filter((run) => !forgotten.has(run));
  }

  /** The request offsets in all entries so far are those of another topic. To be repeated if it was interrupted. */
  forgetRequests(): void {
    for (const run of this.#runs) {
      run.requests = -1;
      this.#tables.put(run, true);
    }
    for (const { output } of this.#merges.values()) {
      output.requests = -1;
      this.#tables.put(output, false);
    }
  }

  /** Deletes some of the dropped and merged runs; true while there is more. */
  sweep(): boolean {
    return this.#sweeper.sweep();
  }

  #retire(runs: readonly RunFacts[]): void {
    for (const run of runs) {
      this.#tables.put(run, false);
      this.#filterAt(run.level).remove(run);
      this.#sweeper.add(run);
    }
  }

  #newId(): number {
    const id = this.#nextId;
    this.#nextId += 1;
    return id;
  }
}

/** The runs in order. Throws StoreError unless they cover the offsets from `origin` on without a gap. */
function requireContiguous<R extends RunFacts>(runs: readonly R[], shape: RunShape, origin: number): readonly R[] {
  const sorted = runs.toSorted((a, b) => a.first - b.first);
  let due = origin;
  let level = LAST_LEVEL;
  for (const run of sorted) {
    const isNext = run.first === due && run.level <= level && run.end === run.first + shape.placesAt(run.level);
    requireIntact(isNext, 'the order of the sealed runs');
    due = run.end;
    level = run.level;
  }
  return sorted;
}

/** The highest request offset in these runs; -1 for none. */
export function highestRequest(runs: readonly RunFacts[]): number {
  return runs.reduce((highest, { requests }) => Math.max(highest, requests), -1);
}

function firstAppended(runs: readonly RunFacts[]): number | undefined {
  return runs.find(({ appended }) => appended !== undefined)?.appended;
}

/** Steps per call of `sweep`, a few milliseconds. */
const STEPS_A_SWEEP = 2;

/** Deletes runs that no longer count, in steps. After a restart the remaining ones are passed to the constructor. */
class RunSweeper {
  readonly #tables: RunTables;
  readonly #shape: RunShape;
  readonly #dead: RunFacts[];
  /**
   * How often a step is due: twice for each sealed run. A step deletes a run of the first level, or as much of another.
   */
  readonly #entriesAStep: number;
  #steps: Generator<void, void> | undefined;
  #due = 0;

  constructor(tables: RunTables, shape: RunShape, dead: readonly RunFacts[]) {
    this.#tables = tables;
    this.#shape = shape;
    this.#entriesAStep = shape.placesAt(0) / 2;
    this.#dead = [...dead];
  }

  add({ id, level, first, end, requests, appended }: RunFacts): void {
    this.#dead.push({ id, level, first, end, requests, appended }); // without the filter, to free its memory
  }

  /** Does the work that is due after `entries` entries were applied. */
  sweepFor(entries: number): void {
    this.#due += entries;
    for (; this.#due >= this.#entriesAStep; this.#due -= this.#entriesAStep) this.#step();
  }

  /** Does some of the work; true while there is more. */
  sweep(): boolean {
    for (let steps = 0; steps < STEPS_A_SWEEP; steps += 1) if (!this.#step()) return false;
    return true;
  }

  /** False when there is nothing to do. */
  #step(): boolean {
    const [oldest] = this.#dead;
    if (oldest === undefined) return false;
    this.#steps ??= deleteRun(this.#tables, this.#shape, oldest);
    if (this.#steps.next().done !== true) return true;
    this.#steps = undefined;
    this.#dead.shift();
    return true;
  }
}

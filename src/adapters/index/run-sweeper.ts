import { deleteRun } from './run-rows.ts';
import type { RunShape } from './run-shape.ts';
import type { RunFacts, RunTables } from './run-tables.ts';

/** Steps per call of `sweep`, a few milliseconds. */
const STEPS_A_SWEEP = 2;

/** Deletes runs that no longer count, in steps. After a restart the remaining ones are passed to the constructor. */
export class RunSweeper {
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

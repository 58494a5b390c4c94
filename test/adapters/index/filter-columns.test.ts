import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FilterColumns } from '../../../src/adapters/index/filter-columns.ts';
import { bitsOf, HASH_BITS, upperOf } from '../../../src/adapters/index/items.ts';
import { RunFilter } from '../../../src/adapters/index/run-filter.ts';
import { examples } from '../../support/examples.ts';
import { seeded } from '../../support/seeded.ts';

interface Run {
  readonly name: string;
  readonly filter: RunFilter;
  readonly hashes: readonly number[];
}

/** Runs of one size, and the columns that hold the filters of those that count. */
class Level {
  readonly #bits: number;
  readonly #random = seeded('columns');
  readonly #alive = new Set<Run>();
  readonly #dead = new Set<Run>();
  #columns: FilterColumns<Run>;

  constructor(bits: number) {
    this.#bits = bits;
    this.#columns = new FilterColumns(bits);
  }

  get size(): number {
    return this.#alive.size;
  }

  get bytes(): number {
    return this.#columns.bytes;
  }

  /** A run that fills its filter as those of the last level do. */
  #newRun(): Run {
    const filter = new RunFilter(this.#bits);
    const hashes = Array.from({ length: Math.min(500, this.#bits / 14) }, () => this.#newHash());
    for (const hash of hashes) filter.add(upperOf(hash), bitsOf(hash));
    return { name: `run ${this.#alive.size + this.#dead.size}`, filter, hashes };
  }

  #newHash(): number {
    return this.#random.below(2 ** (HASH_BITS - 32)) * 2 ** 32 + this.#random.below(2 ** 32);
  }

  add(): void {
    const run = this.#newRun();
    for (const _ of this.#columns.add(run, run.filter));
    this.#alive.add(run);
  }

  /** Adds a run, but stops before the last step. */
  cutShort(steps: number): void {
    const run = this.#newRun();
    const adding = this.#columns.add(run, run.filter);
    for (let step = 0; step < steps; step += 1) if (adding.next().done === true) break;
    this.#columns.remove(run); // if these were all of its steps
    adding.return();
    this.#dead.add(run);
  }

  remove(nth: number): void {
    const run = [...this.#alive][nth % this.#alive.size];
    if (run === undefined) return;
    this.#columns.remove(run);
    this.#alive.delete(run);
    this.#dead.add(run);
  }

  reopen(): void {
    this.#columns = new FilterColumns(this.#bits);
    for (const _ of this.#columns.load([...this.#alive], ({ filter }, chunk) => filter.chunk(chunk)));
  }

  /** Compares what the columns say with the filter of each run. */
  check(): void {
    const strangers = Array.from({ length: 50 }, () => this.#newHash());
    const members = [...this.#alive, ...this.#dead].flatMap(({ hashes }) => hashes.slice(0, 20));
    for (const hash of [...strangers, ...members]) {
      const found: Run[] = [];
      this.#columns.find(upperOf(hash), bitsOf(hash), found);
      const may = [...this.#alive].filter(({ filter }) => filter.mayHold(upperOf(hash), bitsOf(hash)));
      expect(found.map(({ name }) => name).toSorted()).toEqual(may.map(({ name }) => name).toSorted());
    }
    for (const run of this.#alive) {
      const missed = run.hashes.filter((hash) => {
        const found: Run[] = [];
        this.#columns.find(upperOf(hash), bitsOf(hash), found);
        return !found.includes(run);
      });
      expect(missed).toEqual([]);
    }
  }
}

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ add: fc.integer({ min: 1, max: 12 }) }) },
  { weight: 3, arbitrary: fc.record({ remove: fc.array(fc.nat(100), { minLength: 1, maxLength: 12 }) }) },
  { weight: 2, arbitrary: fc.record({ cutShort: fc.nat(4) }) },
  { weight: 1, arbitrary: fc.constant('reopen' as const) },
);

describe('filters side by side', () => {
  // One block; a few; some pages; more than one stored chunk.
  it.each([500, 2_000, 300_000, 1_100_000])(
    'of %d bits each say what each filter says, whatever is added, removed, cut short and opened again',
    (bits) => {
      let most = 0;
      fc.assert(
        fc.property(fc.array(step, { minLength: 4, maxLength: 12 }), (steps) => {
          const level = new Level(bits);
          for (const next of steps) {
            if (next === 'reopen') level.reopen();
            else if ('add' in next) for (let times = 0; times < next.add; times += 1) level.add();
            else if ('remove' in next) for (const nth of next.remove) level.remove(nth);
            else level.cutShort(next.cutShort);
            most = Math.max(most, level.size);
          }
          level.check();
          level.reopen();
          level.check();
        }),
        { numRuns: examples(20, 3) },
      );
      expect(most).toBeGreaterThan(0);
    },
  );

  it('are exact with any number of them', () => {
    const level = new Level(2_000);
    for (let size = 1; size <= 70; size += 1) {
      level.add();
      if (size % 7 === 0) level.check();
    }
    level.reopen();
    level.check();
    for (let size = 70; size > 0; size -= 1) {
      level.remove(size * 11);
      if (size % 9 === 0) level.check();
    }
    level.check();
  });

  it('take the memory of those that count, and leave it to the next when they no longer do', () => {
    const [bits, few] = [300_000, 5];
    const level = new Level(bits);
    for (let size = 1; size <= few; size += 1) level.add();
    const { bytes } = level;
    expect(bytes).toBeLessThan((few * bits * 1.01) / 8);
    for (let round = 0; round < 60; round += 1) {
      level.remove(0);
      level.cutShort(round % 3);
      level.add();
    }
    level.check();
    expect(level.bytes).toBe(bytes);
    for (let size = few; size > 0; size -= 1) level.remove(0);
    expect(level.bytes).toBe(0);
  });

  it('reject a filter of another length', () => {
    const columns = new FilterColumns<object>(2_000);
    const load = columns.load([{}, {}], () => new Uint32Array(8));
    expect(() => [...load]).toThrow('the filter of a run');
  });
});

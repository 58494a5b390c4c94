import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PageShape, RunPrints } from '../../../src/adapters/index/fingerprints.ts';
import { bitsOf, HASH_BITS, lowerOf, sortItems, upperOf } from '../../../src/adapters/index/items.ts';
import { LevelFilter } from '../../../src/adapters/index/level-filter.ts';
import { examples } from '../../support/examples.ts';
import { seeded } from '../../support/seeded.ts';

interface Run {
  readonly name: string;
  readonly prints: RunPrints;
  readonly hashes: readonly number[];
}

/** The bits of a hash that its fingerprint has: those of the page's number, and 23 in the page. */
const printBits = (places: number) => Math.log2(Math.max(1, places / 512)) + 23;

function printsOf(shape: PageShape, hashes: readonly number[]): RunPrints {
  const items = Uint32Array.from(hashes.flatMap((hash, place) => [lowerOf(hash, place), upperOf(hash)]));
  sortItems(items);
  const prints = new RunPrints(shape);
  prints.addAll(items);
  return prints;
}

/** Runs of one size, and the filter of those that count. */
class Level {
  readonly #places: number;
  readonly #shape: PageShape;
  readonly #random = seeded('level');
  readonly #alive = new Set<Run>();
  readonly #dead = new Set<Run>();
  #filter: LevelFilter<Run>;

  constructor(places: number) {
    this.#places = places;
    this.#shape = new PageShape(places);
    this.#filter = new LevelFilter(this.#shape);
  }

  get size(): number {
    return this.#alive.size;
  }

  get bytes(): number {
    return this.#filter.bytes;
  }

  #newRun(): Run {
    const hashes = Array.from({ length: Math.min(500, this.#places) }, () => this.newHash());
    return { name: `run ${this.#alive.size + this.#dead.size}`, prints: printsOf(this.#shape, hashes), hashes };
  }

  newHash(): number {
    return this.#random.below(2 ** (HASH_BITS - 32)) * 2 ** 32 + this.#random.below(2 ** 32);
  }

  add(): void {
    const run = this.#newRun();
    for (const _ of this.#filter.add(run, run.prints));
    this.#alive.add(run);
  }

  /** Adds a run while all others are removed. */
  addAlone(): void {
    const run = this.#newRun();
    const adding = this.#filter.add(run, run.prints);
    let isDone = adding.next().done;
    while (this.size > 0) this.remove(0);
    while (isDone !== true) isDone = adding.next().done;
    this.#alive.add(run);
  }

  /** Adds a run, but stops before the last step. */
  cutShort(steps: number): void {
    const run = this.#newRun();
    const adding = this.#filter.add(run, run.prints);
    for (let step = 0; step < steps; step += 1) if (adding.next().done === true) break;
    this.#filter.remove(run); // if these were all of its steps
    adding.return();
    this.#dead.add(run);
  }

  remove(nth: number): void {
    const run = [...this.#alive][nth % this.#alive.size];
    if (run === undefined) return;
    this.#filter.remove(run);
    this.#alive.delete(run);
    this.#dead.add(run);
  }

  reopen(): void {
    this.#filter = new LevelFilter(this.#shape);
    for (const _ of this.#filter.load([...this.#alive], ({ prints }, chunk) => prints.chunk(chunk)));
  }

  find(hash: number): string[] {
    const found: Run[] = [];
    this.#filter.find(upperOf(hash), bitsOf(hash), found);
    return found.map(({ name }) => name).toSorted();
  }

  /** Compares what the filter says with the fingerprints of each run that counts. */
  check(): void {
    const print = (hash: number) => Math.floor(hash / 2 ** (HASH_BITS - printBits(this.#places)));
    const holders = new Map<number, Set<string>>();
    for (const { name, hashes } of this.#alive) {
      for (const hash of hashes) holders.set(print(hash), (holders.get(print(hash)) ?? new Set()).add(name));
    }
    const members = [...this.#alive, ...this.#dead].flatMap(({ hashes }) => hashes.slice(0, 40));
    const near = members.map((hash) => (hash % 2 === 0 ? hash + 1 : hash - 1));
    const strangers = Array.from({ length: 50 }, () => this.newHash());
    for (const hash of [...members, ...near, ...strangers]) {
      expect(this.find(hash)).toEqual([...(holders.get(print(hash)) ?? [])].toSorted());
    }
  }
}

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ add: fc.integer({ min: 1, max: 12 }) }) },
  { weight: 3, arbitrary: fc.record({ remove: fc.array(fc.nat(100), { minLength: 1, maxLength: 12 }) }) },
  { weight: 2, arbitrary: fc.record({ cutShort: fc.nat(12) }) },
  { weight: 1, arbitrary: fc.constantFrom('reopen' as const, 'add alone' as const) },
);

describe('the filter of a level', () => {
  // Less than a page; one; some; a chunk; two chunks.
  it.each([1, 64, 512, 8_192, 32_768, 65_536])(
    'of runs with %d places says which have the fingerprint of a hash, whatever is added, removed, cut short and loaded',
    (places) => {
      let most = 0;
      fc.assert(
        fc.property(fc.array(step, { minLength: 4, maxLength: 12 }), (steps) => {
          const level = new Level(places);
          for (const next of steps) {
            if (next === 'reopen') level.reopen();
            else if (next === 'add alone') level.addAlone();
            else if ('add' in next) for (let times = 0; times < next.add; times += 1) level.add();
            else if ('remove' in next) for (const nth of next.remove) level.remove(nth);
            else level.cutShort(next.cutShort);
            most = Math.max(most, level.size);
          }
          level.check();
          level.reopen();
          level.check();
        }),
        { numRuns: examples(12, 3) },
      );
      expect(most).toBeGreaterThan(0);
    },
  );

  it('is exact with any number of runs', () => {
    const level = new Level(2_048);
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

  it('finds a run that was added while the last others were removed', () => {
    const level = new Level(65_536);
    level.add();
    level.addAlone();
    expect(level.size).toBe(1);
    level.check();
  });

  it('takes the memory of the runs that count, and leaves it to the next when they no longer do', () => {
    const [places, few] = [512, 5];
    const level = new Level(places);
    for (let size = 1; size <= few; size += 1) level.add();
    const { bytes } = level;
    expect(bytes).toBeLessThan(few * places * 3);
    for (let round = 0; round < 60; round += 1) {
      level.remove(0);
      level.cutShort(round % 3);
      level.add();
    }
    level.check();
    expect(level.bytes).toBeLessThan(bytes * 1.3);
    for (let size = few; size > 0; size -= 1) level.remove(0);
    expect(level.bytes).toBe(0);
  });

  it('of no run takes no memory when it is loaded', () => {
    const filter = new LevelFilter<object>(new PageShape(4_096));
    for (const _ of filter.load([], () => new Uint32Array()));
    expect(filter.bytes).toBe(0);
  });

  it.each([4_096, 262_144])(
    'names a run of %d entries for less than one hash in 12,000 that is not in it',
    (places) => {
      const level = new Level(places);
      const hashes = Array.from({ length: places }, () => level.newHash());
      const filter = new LevelFilter<object>(new PageShape(places));
      for (const _ of filter.add({}, printsOf(new PageShape(places), hashes)));
      const found: object[] = [];
      for (let i = 0; i < 400_000; i += 1) {
        const hash = level.newHash();
        filter.find(upperOf(hash), bitsOf(hash), found);
      }
      expect(found.length).toBeGreaterThan(5);
      expect(found.length).toBeLessThan(400_000 / 12_000 + 18);
    },
  );
});

describe('the fingerprints of a run', () => {
  it('are complete chunk by chunk while the run is written', () => {
    const shape = new PageShape(262_144);
    const level = new Level(262_144);
    const hashes = Array.from({ length: 20_000 }, () => level.newHash()).toSorted((one, other) => one - other);
    const whole = printsOf(shape, hashes);
    const prints = new RunPrints(shape);
    const parts = 16;
    let chunk = 0;
    for (let part = 0; part < parts; part += 1) {
      const some = hashes.filter((hash) => Math.floor((hash * parts) / 2 ** HASH_BITS) === part);
      prints.addAll(Uint32Array.from(some.flatMap((hash) => [lowerOf(hash, 0), upperOf(hash)])));
      for (; chunk < prints.chunksBelow(part + 1, parts); chunk += 1)
        expect(prints.chunk(chunk)).toEqual(whole.chunk(chunk));
    }
    expect(chunk).toBe(shape.chunks);
    expect(chunk).toBeGreaterThan(4);
  });

  it.each<[string, Uint32Array<ArrayBuffer>]>([
    ['too short', new Uint32Array(8)],
    ['of zeros', new Uint32Array(400)],
    ['too long', Uint32Array.of(...printsOf(new PageShape(1), [7]).chunk(0), 0)],
  ])('are rejected if a stored chunk is %s', (_, chunk) => {
    const load = new LevelFilter<object>(new PageShape(1)).load([{}, {}], () => chunk);
    expect(() => [...load]).toThrow('the fingerprints of a run');
  });
});

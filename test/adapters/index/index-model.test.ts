import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { replayRecord } from '../../../src/codec/request-position.ts';
import { ALL_EXAMPLES, examples } from '../../support/examples.ts';
import { entry } from '../../support/memory-records.ts';
import { at, IndexDirectory, keyOf, marker, RUN, toTheEnd } from './index-directory.ts';
import { IndexModel } from './index-model.ts';

const IDS = 40;
/** The partition of a step. */
const partition = fc.nat(1);

const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      partition,
      apply: fc.array(fc.nat(IDS), { minLength: 1, maxLength: 30 }),
      behind: fc.nat(6),
      times: fc.integer({ min: 1, max: 10 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ partition, replay: fc.nat(50), late: fc.constantFrom(0, 0, 1) }) },
  { weight: 2, arbitrary: fc.record({ partition, expire: fc.double({ min: 0, max: 1.1, noNaN: true }) }) },
  { weight: 1, arbitrary: fc.record({ partition, wipe: fc.nat(20) }) },
  { weight: 1, arbitrary: fc.record({ partition, drop: fc.nat(12), reopen: fc.boolean() }) },
  { weight: 2, arbitrary: fc.constant({ reopen: true }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** An index on disk and its model, driven through the same steps. */
class Pair {
  readonly #directory: IndexDirectory;
  readonly #models = [new IndexModel(), new IndexModel()];
  #disk: SqliteIndex;
  met = 0;

  constructor(directory: IndexDirectory) {
    this.#directory = directory;
    this.#disk = directory.open();
  }

  play(next: Step): void {
    if ('apply' in next) {
      for (let times = 0; times < next.times; times += 1) this.#apply(next.partition, next.apply, next.behind);
    } else if ('replay' in next) {
      const { end } = this.#modelOf(next.partition);
      const records = [at(end, replayRecord(next.replay, Math.max(0, end - next.late)))];
      expect(this.#disk.apply(next.partition, records)).toEqual(this.#modelOf(next.partition).apply(records));
    } else if ('expire' in next) {
      this.#expire(next.partition, next.expire);
    } else if ('wipe' in next) {
      this.#disk.wipe(next.partition, next.wipe);
      this.#modelOf(next.partition).wipe(next.wipe);
    } else if ('drop' in next) {
      for (let steps = 0; steps <= next.drop && this.#disk.drop(next.partition); ) steps += 1;
      this.#models[next.partition] = new IndexModel();
      if (next.reopen) this.#reopen();
      else toTheEnd(() => this.#disk.load(next.partition));
    } else {
      this.#reopen();
    }
    this.#compare();
  }

  #apply(partition: number, ids: readonly number[], behind: number): void {
    const model = this.#modelOf(partition);
    const start = model.end;
    const end = Math.max(0, start - behind);
    const fields = { end, through: start };
    const records = ids.map((id, i) => {
      const drafted = id === IDS ? marker(start + 2, end) : entry(`id ${id}`, { ...fields, requestOffset: start + id });
      return at(start + i, drafted);
    });
    const firsts = new Set<number>();
    expect(this.#disk.apply(partition, records, firsts)).toEqual(model.apply(records));
    expect(firsts).toEqual(model.firsts(records));
  }

  #expire(partition: number, part: number): void {
    const model = this.#modelOf(partition);
    const low = Math.floor(model.origin + (model.end - model.origin) * part);
    this.#disk.expire(partition, low); // one step drops the entries; the rest only deletes
    const origin = this.#disk.origin(partition);
    expect(origin <= Math.max(low, model.origin) && origin >= model.origin).toBe(true);
    if (model.horizon === undefined) expect(origin).toBe(model.origin);
    model.expire(origin);
  }

  #reopen(): void {
    this.#directory.close(this.#disk);
    this.#disk = this.#directory.open();
  }

  #compare(): void {
    for (const [partition, model] of this.#models.entries()) {
      const keys = Array.from({ length: IDS }, (_, id) => keyOf(`id ${id}`));
      const places = keys.map((key) => this.#disk.placesOf(partition, key));
      expect(places).toEqual(keys.map((key) => model.placesOf(key)));
      this.met += places.flat().length;
      const { end, origin, through, horizon, answeredBelow, since, last } = model;
      expect({
        end: this.#disk.end(partition),
        origin: this.#disk.origin(partition),
        through: this.#disk.through(partition),
        horizon: this.#disk.horizon(partition),
        answeredBelow: this.#disk.answeredBelow(partition),
        since: this.#disk.since(partition),
        last: this.#disk.last(partition),
      }).toEqual({ end, origin, through, horizon, answeredBelow, since, last });
    }
  }

  #modelOf(partition: number): IndexModel {
    return this.#models[partition] as IndexModel;
  }
}

const RUNS = examples(15, 4);

it('an index matches its model, whatever is applied, expired, wiped, dropped and opened again', () => {
  let met = 0;
  let merged = 0;
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 60 }), (steps) => {
      const directory = new IndexDirectory();
      try {
        const pair = new Pair(directory);
        for (const next of steps) pair.play(next);
        met += pair.met;
        expect(directory.wiped).toEqual([]);
        directory.closeAll();
        const [levels] = directory.query(
          'SELECT max(level) AS highest FROM (SELECT * FROM run_0 UNION SELECT * FROM run_1)',
        );
        merged = Math.max(merged, Number(levels?.highest));
      } finally {
        directory.remove();
      }
    }),
    { numRuns: RUNS },
  );
  expect(met).toBeGreaterThan(0);
  // What few histories may miss.
  if (!ALL_EXAMPLES) return;
  expect(met).toBeGreaterThan(1_000 * RUN);
  expect(merged).toBeGreaterThanOrEqual(2);
});

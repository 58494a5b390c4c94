import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  BACKFILL_MS,
  cutRanges,
  type Generator,
  startGenerator,
  type Take,
  take,
  type Window,
} from '../../src/core/generator.ts';
import { decompose, type Layout } from '../../src/core/layout.ts';
import { ticks } from '../../src/core/units.ts';
import { anyLayout, seededRandom } from './arbitraries.ts';

interface Demand {
  readonly count: number;
  readonly window: Window;
}

/** A term at either end of a layout, and requests for batches while clock and ceiling take any values. */
const term = anyLayout.chain((layout) => {
  const perTick = layout.sequencesPerTick;
  const ask = fc.record({
    count: fc.oneof(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 4 * perTick })),
    now: fc.oneof(fc.integer({ min: -30, max: 60 }), fc.integer({ min: 0, max: 12 })),
    raise: fc.constantFrom(0, 0, 0, 10, 30),
    lift: fc.constantFrom(0, 0, 0, 0, 7),
  });
  return fc
    .record({
      from: fc.constantFrom(0, 1000, layout.endTicks - 30, layout.endTicks - 1),
      held: fc.integer({ min: 0, max: 20 }),
      worker: fc.integer({ min: 0, max: layout.maxWorker }),
      datacenter: fc.integer({ min: 0, max: layout.maxDatacenter }),
      asks: fc.array(ask, { minLength: 1, maxLength: 25 }),
      seed: fc.integer(),
    })
    .map(({ from, held, asks, ...rest }) => {
      let start = from;
      let to = from + held;
      return {
        ...rest,
        layout,
        from: ticks(from),
        asks: asks.map(({ count, now, raise, lift }): Demand => {
          start += lift;
          to += raise + lift;
          return { count, window: { nowTicks: ticks(from + now), from: ticks(start), to: ticks(to) } };
        }),
      };
    });
});

type Term = typeof term extends fc.Arbitrary<infer T> ? T : never;

interface Answer extends Demand {
  readonly before: Generator;
  readonly took: Take;
}

function play({ layout, datacenter, worker, from, asks, seed }: Term): Answer[] {
  const random = seededRandom(seed);
  let generator = startGenerator(layout, datacenter, worker, from);
  return asks.map((ask) => {
    const before = generator;
    const took = take(before, ask.count, ask.window, random);
    generator = took.generator;
    return { ...ask, before, took };
  });
}

function lastOf(layout: Layout, { first, count }: { first: bigint; count: number }): bigint {
  return first + BigInt(count - 1) * layout.step;
}

function idsOf(layout: Layout, { ranges }: Pick<Take, 'ranges'>): bigint[] {
  return ranges.flatMap(({ first, count }) => Array.from({ length: count }, (_, k) => first + BigInt(k) * layout.step));
}

function everyAnswer(check: (answer: Answer, its: Term) => void): void {
  fc.assert(
    fc.property(term, (its) => {
      for (const answer of play(its)) check(answer, its);
    }),
    { numRuns: 300 },
  );
}

describe('whatever clock and ceiling do, take', () => {
  it('allocates strictly rising IDs, so that none repeats', () => {
    fc.assert(
      fc.property(term, (its) => {
        const ranges = play(its).flatMap(({ took }) => took.ranges);
        let highest = -1n;
        for (const range of ranges) {
          expect(range.count).toBeGreaterThan(0);
          expect(range.first > highest).toBe(true);
          highest = lastOf(its.layout, range);
        }
      }),
      { numRuns: 300 },
    );
  });

  it('uses no future tick', () => {
    everyAnswer(({ took, window }, { layout }) => {
      for (const { first } of took.ranges) expect(decompose(layout, first).ticks).toBeLessThanOrEqual(window.nowTicks);
    });
  });

  it('uses no tick outside the reservation', () => {
    everyAnswer(({ took, window }, { layout }) => {
      for (const { first } of took.ranges) {
        expect(decompose(layout, first).ticks).toBeGreaterThanOrEqual(window.from);
        expect(decompose(layout, first).ticks).toBeLessThan(window.to);
      }
    });
  });

  it('uses no tick at the end of the layout or beyond, and allocates no ID from 2^63', () => {
    everyAnswer(({ took }, { layout }) => {
      for (const range of took.ranges) {
        const last = lastOf(layout, range);
        expect(last < 2n ** 63n).toBe(true);
        expect(decompose(layout, last).ticks).toBeLessThan(layout.endTicks);
      }
    });
  });

  it('uses no tick that started 10 ms ago or earlier, except the current one', () => {
    everyAnswer(({ took, window, before }, { layout }) => {
      for (const { first } of took.ranges) {
        const age = window.nowTicks - decompose(layout, first).ticks;
        expect(age === 0 || (age + 1) * layout.tickMs <= BACKFILL_MS, `${age} of ${before.nextTicks}`).toBe(true);
      }
    });
  });

  it('keeps each range within one tick and one worker', () => {
    everyAnswer(({ took }, { layout, datacenter, worker }) => {
      for (const range of took.ranges) {
        const [first, last] = [decompose(layout, range.first), decompose(layout, lastOf(layout, range))];
        expect(first).toMatchObject({ datacenter, worker });
        expect(last).toEqual({ ...first, sequence: first.sequence + range.count - 1 });
      }
    });
  });

  it('allocates what was requested, or counts what is missing and then has nothing left', () => {
    everyAnswer(({ took, count, window }) => {
      const given = took.ranges.reduce((sum, range) => sum + range.count, 0);
      expect(given + took.missing).toBe(count);
      if (took.missing === 0) {
        expect(took).not.toHaveProperty('waitUntilTicks');
        expect(took).not.toHaveProperty('exhausted');
      } else {
        expect(take(took.generator, 1, window, () => 0).ranges).toEqual([]);
      }
    });
  });

  it('names exactly the tick that serves next, or reports that there is none', () => {
    everyAnswer(({ took, window }, { layout }) => {
      if (took.missing === 0) return;
      const at = (nowTicks: number): Take => take(took.generator, 1, { ...window, nowTicks: ticks(nowTicks) }, () => 0);
      if (took.waitUntilTicks !== undefined) {
        expect(took.exhausted).toBeUndefined();
        expect(took.waitUntilTicks).toBeGreaterThan(window.nowTicks);
        expect(at(took.waitUntilTicks).missing).toBe(0);
        expect(at(took.waitUntilTicks - 1).missing).toBe(1);
        return;
      }
      expect(['reservation', 'layout']).toContain(took.exhausted);
      const later = Math.max(took.generator.nextTicks, window.nowTicks, window.from);
      for (const wait of [0, 1, 2, 40]) expect(at(later + wait).missing).toBe(1);
      const raised = { ...window, to: ticks(layout.endTicks + 1), nowTicks: ticks(later) };
      expect(take(took.generator, 1, raised, () => 0).missing).toBe(took.exhausted === 'layout' ? 1 : 0);
    });
  });

  it('allocates the same IDs to a batch split in two as to the whole', () => {
    fc.assert(
      fc.property(term, fc.double({ min: 0, max: 1, noNaN: true }), fc.nat(), (its, cut, seed) => {
        for (const { before, count, window } of play(its)) {
          if (count < 2) continue;
          const random = seededRandom(seed);
          const first = 1 + Math.floor(cut * (count - 2));
          const one = take(before, first, window, random);
          const two = take(one.generator, count - first, window, random);
          const whole = take(before, count, window, seededRandom(seed));
          expect([...idsOf(its.layout, one), ...idsOf(its.layout, two)]).toEqual(idsOf(its.layout, whole));
          expect(two.generator).toEqual(whole.generator);
        }
      }),
    );
  });

  it('leaves only higher IDs to the next holder, which starts at the ceiling', () => {
    fc.assert(
      fc.property(term, (its) => {
        const answers = play(its);
        const highest = answers.flatMap(({ took }) => took.ranges).at(-1);
        const to = answers.at(-1)?.window.to ?? its.from;
        if (highest === undefined || to >= its.layout.endTicks) return;
        const next = startGenerator(its.layout, its.datacenter, its.worker, to);
        const took = take(next, 1, { nowTicks: to, from: to, to: ticks(to + 1) }, () => 0);
        expect(took.ranges[0]?.first).toBeGreaterThan(lastOf(its.layout, highest));
      }),
    );
  });
});

describe('IDs that are taken together', () => {
  it('are cut for several requests into what each would have taken after the one before it', () => {
    const counts = fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(term, counts, ({ layout, datacenter, worker, from, seed }, its) => {
        const total = its.reduce((sum, count) => sum + count, 0);
        const window = { nowTicks: ticks(from + 9), from, to: ticks(from + 10) };
        const start = startGenerator(layout, datacenter, worker, from);
        const together = take(start, total, window, seededRandom(seed));
        fc.pre(together.missing === 0);
        const random = seededRandom(seed);
        let generator = start;
        const alone = its.map((count) => {
          const taken = take(generator, count, window, random);
          generator = taken.generator;
          return taken.ranges;
        });
        expect(cutRanges(together.ranges, its, layout.step)).toEqual(alone);
        expect(together.generator).toEqual(generator);
      }),
    );
  });

  it('are not cut for more requests than they are enough for', () => {
    expect(() => cutRanges([{ first: 5n, count: 3 }], [2, 2], 1n)).toThrow('1 of 2 IDs are missing');
  });
});

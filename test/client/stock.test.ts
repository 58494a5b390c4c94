import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Demand, IdStock } from '../../src/client/stock.ts';
import { examples } from '../support/examples.ts';

interface Held {
  readonly id: bigint;
  readonly bornMs: number;
}

const aStep = fc.oneof(
  fc.record({
    do: fc.constant('add' as const),
    counts: fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 4 }),
    step: fc.constantFrom(1n, 65_536n),
    lateMs: fc.constantFrom(0, 0, 20),
  }),
  fc.record({ do: fc.constant('next' as const), times: fc.integer({ min: 1, max: 12 }) }),
  fc.record({ do: fc.constant('take' as const), count: fc.integer({ min: 1, max: 25 }) }),
  fc.record({ do: fc.constant('try' as const), count: fc.integer({ min: 1, max: 25 }), least: fc.nat({ max: 9 }) }),
  fc.record({ do: fc.constant('low' as const), low: fc.nat({ max: 30 }) }),
  fc.record({ do: fc.constant('move' as const) }),
  fc.record({ do: fc.constant('drop' as const) }),
  fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(1, 30, 60) }),
);

type Step = typeof aStep extends fc.Arbitrary<infer T> ? T : never;

/** Plays the steps on a stock and on the simplest model of it, a list of all IDs. Returns how many IDs were too old. */
function play(steps: readonly Step[], maxAgeMs: number, maxIds: number): number {
  let nowMs = 0;
  let lows = 0;
  const stock = new IdStock({ onLow: () => (lows += 1), monotonicMs: () => nowMs, maxAgeMs, maxIds });
  let model: Held[] = [];
  let low = 0;
  let given = 0;
  let dropped = 0;
  let old = 0;
  let first = 1_000n;
  const isFresh = ({ bornMs }: Held) => bornMs >= nowMs - maxAgeMs;
  const noteDropped = () => {
    if (stock.dropped === dropped) return;
    const before = model.length;
    model = model.filter(isFresh);
    dropped += before - model.length;
    expect(stock.dropped).toBe(dropped);
  };
  const expectTaken = (count: number, take: () => bigint[]) => {
    const lowsBefore = lows;
    let taken: readonly bigint[] | undefined;
    try {
      taken = take();
    } catch (error) {
      expect(error).toMatchObject({ code: 'BUFFER_EMPTY' });
    }
    noteDropped();
    if (taken === undefined) {
      expect(model.every(isFresh)).toBe(true);
      expect(model.length).toBeLessThan(count);
      return;
    }
    const expected = model.splice(0, count);
    expect(taken).toEqual(expected.map(({ id }) => id));
    given += count;
    old += expected.filter((held) => !isFresh(held)).length;
    // A single ID may cross the mark unseen; the one behind it does not.
    if (count > 1 && model.length <= low) expect(lows).toBeGreaterThan(lowsBefore);
    if (lows > lowsBefore) expect(model.length).toBeLessThanOrEqual(low + (count === 1 ? 0 : count));
  };
  for (const step of steps) {
    switch (step.do) {
      case 'add': {
        const bornMs = nowMs - step.lateMs;
        const ranges = step.counts.map((count) => {
          const range = { first, count };
          for (let k = 0; k < count; k += 1) model.push({ id: first + BigInt(k) * step.step, bornMs });
          first += BigInt(count) * step.step + 5n;
          return range;
        });
        stock.add({ ranges, step: step.step, requestedAtMs: bornMs });
        dropped += model.splice(0, model.length - maxIds).length;
        break;
      }
      case 'next':
        for (let i = 0; i < step.times; i += 1) expectTaken(1, () => [stock.next()]);
        break;
      case 'take':
        expectTaken(step.count, () => stock.take(step.count));
        break;
      case 'try': {
        const { count, least } = step;
        const enough = model.filter(isFresh).length >= count + least;
        if (enough) expectTaken(count, () => stock.tryTake(count, least) ?? []);
        else expect(stock.tryTake(count, least)).toBeUndefined();
        noteDropped();
        break;
      }
      case 'low':
        low = step.low;
        stock.setLow(low);
        break;
      case 'move':
        for (const batch of stock.removeAll()) stock.add(batch);
        break;
      case 'pass':
        nowMs += step.ms;
        break;
      case 'drop':
        stock.dropOld();
        noteDropped();
        expect(model.every(isFresh)).toBe(true);
        break;
    }
    expect([stock.taken, stock.size, stock.dropped]).toEqual([given, model.length, dropped]);
    const times = model.map(({ bornMs }) => bornMs);
    expect(stock.oldestMs).toBe(Math.min(...times));
    const sinceMs = nowMs - 30;
    expect(stock.sizeSince(sinceMs)).toBe(times.filter((bornMs) => bornMs >= sinceMs).length);
  }
  return old;
}

const someSteps = fc.array(aStep, { maxLength: 60, size: 'max' });
const NEVER = Number.POSITIVE_INFINITY;

test('a stock returns each ID once, in order of arrival, under any operations', () => {
  fc.assert(
    fc.property(someSteps, (steps) => void play(steps, NEVER, NEVER)),
    { numRuns: examples(500) },
  );
});

test('a stock with limits of age and number counts what it drops, and not as taken', () => {
  fc.assert(
    fc.property(someSteps, (steps) => void play(steps, 50, 40)),
    { numRuns: examples(500) },
  );
});

test('a stock never returns a batch of too old IDs, nor a single one that was too old when its grant began', () => {
  fc.assert(
    fc.property(someSteps, (steps) => {
      // A check of the mark ends a grant.
      const checked = steps.flatMap((step): Step[] => (step.do === 'pass' ? [step, { do: 'low', low: 5 }] : [step]));
      expect(play(checked, 50, NEVER)).toBe(0);
    }),
    { numRuns: examples(500) },
  );
});

test('a grant is of 256 IDs: no more can be too old by the time for which the process stood still', () => {
  const ranges = [{ first: 0n, count: 1_000 }];
  let nowMs = 0;
  const stock = new IdStock({ onLow: () => undefined, monotonicMs: () => nowMs, maxAgeMs: 50, maxIds: NEVER });
  stock.add({ ranges, step: 1n, requestedAtMs: 0 });
  stock.next();
  nowMs = 60_000;
  for (let id = 1n; id < 256n; id += 1n) expect(stock.next()).toBe(id);
  expect(() => stock.next()).toThrow(expect.objectContaining({ code: 'BUFFER_EMPTY' }));
  expect(stock.dropped).toBe(744);
});

test('the low-water mark is reported at the first ID past it, not before', () => {
  let lows = 0;
  const stock = new IdStock({ onLow: () => (lows += 1), monotonicMs: () => 0, maxAgeMs: NEVER, maxIds: NEVER });
  stock.setLow(40);
  stock.add({ ranges: [{ first: 1n, count: 100 }], step: 1n, requestedAtMs: 0 });
  for (let i = 0; i < 60; i += 1) stock.next();
  expect(lows).toBe(0);
  stock.next();
  expect(lows).toBe(1);
});

const OPTIONS = { coverSeconds: 20, idsPerSecond: 100, idleIdsPerSecond: 100, maxBuffered: 5_000_000 };

test('at the start, the mark is the configured rate x seconds', () => {
  const demand = new Demand(OPTIONS, 0);
  expect([demand.low, demand.full]).toEqual([2_000, 4_000]);
});

test('the mark is what the last coverSeconds took, from their first second on', () => {
  const demand = new Demand(OPTIONS, 0);
  let taken = 0;
  for (let ms = 500; ms <= 20_000; ms += 500) {
    taken += 5_000;
    demand.note(ms, taken);
    expect(demand.low).toBe(Math.max(2_000, taken));
  }
  for (let ms = 20_500; ms <= 100_000; ms += 500) {
    taken += 5_000;
    demand.note(ms, taken);
  }
  expect(demand.rate).toBeCloseTo(10_000, -2);
});

test('one call is no rate, but two are', () => {
  const demand = new Demand(OPTIONS, 0);
  demand.took(100_000);
  demand.note(500, 100_000);
  expect([demand.rate, demand.low]).toEqual([100, 2_000]);
  demand.note(10_000, 100_040);
  expect(demand.rate).toBe(100);
  demand.took(90_000);
  demand.note(10_500, 190_040);
  expect(demand.rate).toBe(4_502); // 90,040 in 20 s
  demand.note(30_500, 190_040);
  expect(demand.rate).toBeLessThan(4_000);
});

test('calls that are further apart than coverSeconds are no rate, however large', () => {
  const demand = new Demand(OPTIONS, 0);
  for (let call = 1; call <= 10; call += 1) {
    demand.took(100_000);
    demand.note(call * 25_000, call * 100_000);
    expect(demand.rate).toBe(100);
  }
});

test('an unused rate halves in a minute, down to the configured one', () => {
  const demand = new Demand(OPTIONS, 0);
  demand.note(1_000, 2_000_000);
  expect(demand.rate).toBe(100_000);
  demand.note(61_000, 2_000_000);
  expect(demand.rate).toBeCloseTo(50_000);
  demand.note(3_601_000, 2_000_000);
  expect(demand.rate).toBe(100);
});

test('a minute without a call lets the least rate fall to that of an idle buffer, until the next call', () => {
  const demand = new Demand({ ...OPTIONS, idleIdsPerSecond: 10 }, 0);
  demand.note(59_999, 0);
  expect([demand.isIdle, demand.rate]).toEqual([false, 100]);
  demand.note(60_000, 0);
  demand.note(600_000, 0);
  expect([demand.isIdle, demand.rate, demand.low]).toEqual([true, 10, 200]);
  demand.note(600_500, 1);
  expect([demand.isIdle, demand.rate, demand.low]).toEqual([false, 100, 2_000]);
});

test('an idle buffer still has the most that was taken at once, or lacking', () => {
  for (const use of [(demand: Demand) => demand.note(500, 1_000), (demand: Demand) => demand.lacked(1_000)]) {
    const demand = new Demand({ ...OPTIONS, idleIdsPerSecond: 10 }, 0);
    use(demand);
    demand.note(1_000, 1_000);
    demand.note(3_600_000, 1_000);
    expect([demand.isIdle, demand.low]).toEqual([true, 1_000]);
  }
});

test('the mark also covers the latency of a reply, up to two seconds', () => {
  const demand = new Demand(OPTIONS, 0);
  demand.replied(500);
  expect(demand.low).toBe(2_050);
  demand.replied(60_000);
  expect(demand.low).toBe(2_200);
});

test('the mark is at most half of maxBuffered, and at least one', () => {
  fc.assert(
    fc.property(fc.nat({ max: 1e9 }), fc.integer({ min: 2, max: 10_000 }), (taken, maxBuffered) => {
      const demand = new Demand({ coverSeconds: 0.1, idsPerSecond: 0.001, idleIdsPerSecond: 0.001, maxBuffered }, 0);
      demand.note(1_000, taken);
      expect(demand.full).toBeLessThanOrEqual(maxBuffered);
      expect(demand.low).toBeGreaterThanOrEqual(1);
    }),
  );
});

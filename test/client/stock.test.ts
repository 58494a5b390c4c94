import fc from 'fast-check';
import { expect, test } from 'vitest';
import { IdStock } from '../../src/client/stock.ts';
import { IdallocError } from '../../src/errors.ts';
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
  }),
  fc.record({ do: fc.constant('next' as const), times: fc.integer({ min: 1, max: 12 }) }),
  fc.record({ do: fc.constant('take' as const), count: fc.integer({ min: 1, max: 25 }) }),
  fc.record({ do: fc.constant('reserved' as const), count: fc.integer({ min: 1, max: 25 }) }),
  fc.record({ do: fc.constant('low' as const), low: fc.integer({ min: 0, max: 30 }) }),
  fc.record({ do: fc.constant('withhold' as const), is: fc.boolean() }),
  fc.record({ do: fc.constant('drop' as const) }),
  fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(1, 30, 60) }),
);

const withheld = () => new IdallocError('BUFFER_EMPTY', 'for others');

type Step = typeof aStep extends fc.Arbitrary<infer T> ? T : never;

/** Plays the steps on a stock and on the simplest model of it, a list of all IDs. */
function play(steps: readonly Step[], maxAgeMs: number | undefined): void {
  let nowMs = 0;
  let lows = 0;
  const stock = new IdStock({ onLow: () => (lows += 1), monotonicMs: () => nowMs, maxAgeMs });
  let model: Held[] = [];
  let low = 0;
  let isWithheld = false;
  let given = 0;
  let first = 1_000n;
  const fresh = () => {
    if (maxAgeMs !== undefined) model = model.filter(({ bornMs }) => bornMs >= nowMs - maxAgeMs);
  };
  const expectTaken = (count: number, reserved: boolean, take: () => bigint[]) => {
    fresh();
    const lowsBefore = lows;
    if ((isWithheld && !reserved) || model.length < count) {
      expect(take).toThrow(expect.objectContaining({ code: 'BUFFER_EMPTY' }));
      return;
    }
    expect(take()).toEqual(model.splice(0, count).map(({ id }) => id));
    given += count;
    // A single ID may cross the mark unseen; the one behind it does not.
    if (count > 1 && model.length <= low) expect(lows).toBeGreaterThan(lowsBefore);
    if (lows > lowsBefore) expect(model.length).toBeLessThanOrEqual(low + (count === 1 ? 0 : count));
  };
  for (const step of steps) {
    switch (step.do) {
      case 'add': {
        const ranges = step.counts.map((count) => {
          const range = { first, count };
          for (let k = 0; k < count; k += 1) model.push({ id: first + BigInt(k) * step.step, bornMs: nowMs });
          first += BigInt(count) * step.step + 5n;
          return range;
        });
        stock.add({ ranges, step: step.step, requestedAtMs: nowMs });
        break;
      }
      case 'next':
        for (let i = 0; i < step.times; i += 1) expectTaken(1, false, () => [stock.next()]);
        break;
      case 'take':
        expectTaken(step.count, false, () => stock.take(step.count));
        break;
      case 'reserved':
        expectTaken(step.count, true, () => stock.takeReserved(step.count));
        break;
      case 'low':
        low = step.low;
        stock.setLow(low);
        break;
      case 'withhold':
        isWithheld = step.is;
        stock.withhold(step.is ? withheld : undefined);
        break;
      case 'pass':
        nowMs += step.ms;
        break;
      case 'drop':
        stock.dropOld();
        fresh();
        expect(stock.size).toBe(model.length);
        break;
    }
    expect(stock.taken).toBe(given);
    expect(stock.size).toBeGreaterThanOrEqual(model.length);
  }
}

test('a stock returns each ID once, in order of arrival, under any operations', () => {
  fc.assert(
    fc.property(fc.array(aStep, { maxLength: 60, size: 'max' }), (steps) => play(steps, undefined)),
    { numRuns: examples(500) },
  );
});

test('a stock with an age limit never returns an older ID, and does not count dropped IDs as taken', () => {
  fc.assert(
    fc.property(fc.array(aStep, { maxLength: 60, size: 'max' }), (steps) => play(steps, 50)),
    { numRuns: examples(500) },
  );
});

test('the low-water mark is reported at the first ID past it, not before', () => {
  let lows = 0;
  const stock = new IdStock({ onLow: () => (lows += 1), monotonicMs: () => 0 });
  stock.setLow(40);
  stock.add({ ranges: [{ first: 1n, count: 100 }], step: 1n, requestedAtMs: 0 });
  for (let i = 0; i < 60; i += 1) stock.next();
  expect(lows).toBe(0);
  stock.next();
  expect(lows).toBe(1);
});

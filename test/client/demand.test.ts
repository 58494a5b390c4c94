import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Demand } from '../../src/client/demand.ts';

const OPTIONS = { coverSeconds: 20, idsPerSecond: 100, maxBuffered: 5_000_000 };

test('at the start, the mark is the configured rate x seconds', () => {
  const demand = new Demand(OPTIONS, 0);
  expect([demand.low, demand.full]).toEqual([2_000, 4_000]);
});

test('a higher rate raises the mark within its first second, and a burst counts as a second of use', () => {
  const demand = new Demand(OPTIONS, 0);
  demand.note(100, 5_000);
  expect(demand.rate).toBe(5_000);
  demand.note(2_000, 20_000);
  expect([demand.rate, demand.low]).toEqual([10_000, 200_000]);
});

test('an unused rate halves in a minute, down to the configured one', () => {
  const demand = new Demand(OPTIONS, 0);
  demand.note(1_000, 100_000);
  demand.note(61_000, 100_000);
  expect(demand.rate).toBeCloseTo(50_000);
  demand.note(3_601_000, 100_000);
  expect(demand.rate).toBe(100);
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
      const demand = new Demand({ coverSeconds: 0.1, idsPerSecond: 0.001, maxBuffered }, 0);
      demand.note(1_000, taken);
      expect(demand.full).toBeLessThanOrEqual(maxBuffered);
      expect(demand.low).toBeGreaterThanOrEqual(1);
    }),
  );
});

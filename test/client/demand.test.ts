import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Demand } from '../../src/client/demand.ts';

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

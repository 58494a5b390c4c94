import { describe, expect, it } from 'vitest';
import { startGenerator, take, type Window } from '../../src/core/generator.ts';
import { compose, decompose, toTicks } from '../../src/core/layout.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { ticks, wallMs } from '../../src/core/units.ts';

const standard = presetLayout('default');
const never = (): number => {
  throw new Error('this layout draws no random numbers');
};

describe('the generator', () => {
  const reservation = { from: ticks(0), to: ticks(1_000_000) };
  const start = startGenerator(standard, 4, 18, ticks(0));
  const at = (now: number): Window => ({ ...reservation, nowTicks: ticks(now) });

  it('starts a fresh worker at the golden vector', () => {
    const now = toTicks(standard, wallMs(1_780_416_300_000));
    const window = { from: now, to: ticks(now + 1), nowTicks: now };
    const took = take(startGenerator(standard, 4, 18, now), 1, window, never);
    expect(took.ranges).toEqual([{ first: 55_325_805_773_398_016n, count: 1 }]);
  });

  it('allocates 100,000 IDs as 25 ranges, the first ten ticks immediately', () => {
    let took = take(start, 100_000, at(500), never);
    expect(took.ranges).toHaveLength(10);
    const ranges = [...took.ranges];
    while (took.missing > 0) {
      took = take(took.generator, took.missing, at(took.waitUntilTicks ?? Number.NaN), never);
      ranges.push(...took.ranges);
    }
    expect(ranges).toHaveLength(25);
    expect(ranges.reduce((sum, { count }) => sum + count, 0)).toBe(100_000);
  });

  it('continues at sequence 0 of the next tick when one overflows', () => {
    const full = take(start, 4096, { ...at(500), from: ticks(500) }, never);
    expect(full.missing).toBe(0);
    const more = take(full.generator, 1, { ...at(500), from: ticks(500) }, never);
    expect(more).toMatchObject({ ranges: [], missing: 1, waitUntilTicks: 501 });
    const later = take(more.generator, 1, at(501), never);
    expect(decompose(standard, later.ranges[0]?.first ?? 0n)).toMatchObject({ ticks: 501, sequence: 0 });
  });

  it('uses ticks that a late timer skipped, of the last 10 ms at most', () => {
    const first = take(start, 1, at(500), never).generator;
    const soon = take(first, 5 * 4096, at(495), never);
    const late = take(first, 100_000, at(520), never);
    expect(soon.ranges.map(({ first: id }) => decompose(standard, id).ticks)).toEqual([491, 492, 493, 494, 495]);
    expect(late.ranges.map(({ first: id }) => decompose(standard, id).ticks)).toEqual([
      511, 512, 513, 514, 515, 516, 517, 518, 519, 520,
    ]);
  });

  it('uses only the current tick where a tick is 10 ms or longer', () => {
    for (const name of ['sonyflake', 'baidu'] as const) {
      const of = presetLayout(name, { epochMs: 0 });
      const took = take(startGenerator(of, 0, 1, ticks(0)), 1_000_000, at(500), never);
      expect(took.ranges.map(({ first }) => decompose(of, first).ticks)).toEqual([500]);
    }
  });

  it("strides by the layout's step: Sonyflake's neighbours are 2^16 apart", () => {
    const of = presetLayout('sonyflake');
    const took = take(startGenerator(of, 0, 40_000, ticks(0)), 256, at(500), never);
    expect(took.ranges).toEqual([{ first: (500n << 24n) | 40_000n, count: 256 }]);
    const rest = take(startGenerator(of, 0, 40_000, ticks(0)), 3, at(500), never).generator;
    expect(take(rest, 1, at(500), never).ranges).toEqual([{ first: (500n << 24n) | (3n << 16n) | 40_000n, count: 1 }]);
  });

  it('draws one random sequence start for each tick that it enters, and none within a tick', () => {
    const of = presetLayout('region');
    const drawn = [0.35, 0.99, 0.05];
    let draws = 0;
    const random = (): number => drawn[draws++] ?? Number.NaN;
    const window = { from: ticks(500), to: ticks(900), nowTicks: ticks(500) };
    const one = take(startGenerator(of, 1, 2, ticks(500)), 10, window, random);
    const two = take(one.generator, 10, window, random);
    expect(draws).toBe(1);
    const all = take(two.generator, 5000, { ...window, nowTicks: ticks(502) }, random);
    const starts = [one, two, all].flatMap(({ ranges }) => ranges.map(({ first }) => decompose(of, first).sequence));
    expect(starts).toEqual([3, 13, 23, 9, 0]);
    expect(draws).toBe(3);
  });

  it('reports the end of the reservation or of the layout', () => {
    const short = { from: ticks(0), to: ticks(3), nowTicks: ticks(8) };
    expect(take(start, 1, short, never)).toMatchObject({ missing: 0 });
    const used = take(start, 3 * 4096, short, never);
    expect(used.missing).toBe(0);
    expect(take(used.generator, 1, short, never)).toMatchObject({ ranges: [], missing: 1, exhausted: 'reservation' });

    const end = standard.endTicks;
    const beyond = { from: ticks(end - 1), to: ticks(end + 10), nowTicks: ticks(end + 5) };
    const last = take(start, 5000, beyond, never);
    expect(last).toMatchObject({ missing: 904, exhausted: 'layout' });
    const first = compose(standard, { ticks: ticks(end - 1), datacenter: 4, worker: 18, sequence: 0 });
    expect(last.ranges).toEqual([{ first, count: 4096 }]);
  });

  it('waits for its reservation to start, and for a clock that went back', () => {
    const ahead = { from: ticks(700), to: ticks(900), nowTicks: ticks(500) };
    expect(take(start, 1, ahead, never)).toMatchObject({ ranges: [], missing: 1, waitUntilTicks: 700 });
    const used = take(start, 1, at(500), never).generator;
    const full = take(used, 10 * 4096 - 1, at(500), never).generator;
    expect(take(full, 1, at(494), never)).toMatchObject({ ranges: [], missing: 1, waitUntilTicks: 501 });
  });

  it('rejects invalid identities, counts and windows', () => {
    expect(() => startGenerator(standard, 32, 0, ticks(0))).toThrow(RangeError);
    expect(() => startGenerator(standard, 0, 32, ticks(0))).toThrow(RangeError);
    expect(() => startGenerator(standard, 0, 0, ticks(-1))).toThrow(RangeError);
    for (const count of [0, -1, 1.5, Number.NaN]) {
      expect(() => take(start, count, at(500), never)).toThrow(RangeError);
    }
    for (const wrong of [
      { nowTicks: ticks(Number.NaN) },
      { to: ticks(Number.POSITIVE_INFINITY) },
      { from: ticks(0.5) },
    ]) {
      expect(() => take(start, 1, { ...at(500), ...wrong }, never)).toThrow(RangeError);
    }
  });
});

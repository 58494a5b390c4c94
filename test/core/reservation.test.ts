import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { tickStartMs, toTicks } from '../../src/core/layout.ts';
import { presetLayout } from '../../src/core/presets.ts';
import {
  authorityMs,
  ceilingWaitMs,
  checkTiming,
  DEFAULT_TIMING,
  type LeaseTiming,
  MAX_CEILING_WAIT_MS,
  nextCeiling,
  timingFor,
} from '../../src/core/reservation.ts';
import { monoMs, type Reading, ticks, wallMs } from '../../src/core/units.ts';
import { anyLayout } from './arbitraries.ts';

const layout = presetLayout('default');
const sonyflake = presetLayout('sonyflake');
const NOW = wallMs(1_780_416_300_000);
const at = (wall: number, mono: number): Reading => ({ wall: wallMs(NOW + wall), mono: monoMs(mono) });

describe('the own deadline', () => {
  it('is 15 s after the last keep-alive was sent, to the millisecond', () => {
    expect(authorityMs(DEFAULT_TIMING, at(0, 0), at(14_999, 14_999))).toBe(1);
    expect(authorityMs(DEFAULT_TIMING, at(0, 0), at(15_000, 15_000))).toBe(0);
    expect(authorityMs(DEFAULT_TIMING, at(0, 0), at(15_001, 15_001))).toBe(-1);
  });

  it('comes a margin before the end of a shorter lease', () => {
    expect(authorityMs({ ...DEFAULT_TIMING, ttlMs: 12_000 }, at(0, 0), at(0, 0))).toBe(7000);
  });

  it('counts by the clock that advanced more, so no step of either delays it', () => {
    fc.assert(
      fc.property(fc.integer({ min: -20_000, max: 20_000 }), fc.nat({ max: 20_000 }), (wall, mono) => {
        expect(authorityMs(DEFAULT_TIMING, at(0, 0), at(wall, mono))).toBe(15_000 - Math.max(wall, mono));
      }),
    );
  });
});

describe('a ceiling', () => {
  it('is 25 s after the last keep-alive was sent', () => {
    expect(nextCeiling(layout, NOW, 25_000, ticks(0))).toBe(toTicks(layout, wallMs(NOW + 25_000)));
  });

  it('only rises', () => {
    const stored = toTicks(layout, wallMs(NOW + 25_000));
    expect(nextCeiling(layout, NOW, 25_000, stored)).toBeUndefined();
    expect(nextCeiling(layout, wallMs(NOW - 5000), 25_000, stored)).toBeUndefined();
    expect(nextCeiling(layout, wallMs(NOW + 1), 25_000, stored)).toBe(stored + 1);
  });

  it('is rounded down to a whole tick, so that a successor never waits for the rest of one', () => {
    const ceiling = nextCeiling(sonyflake, wallMs(NOW + 9), 25_000, ticks(0));
    expect(ceiling).toBe(toTicks(sonyflake, wallMs(NOW + 25_000)));
  });

  it('rises by whole ticks, never past the layout, and never past the time reserved', () => {
    fc.assert(
      fc.property(anyLayout, fc.nat({ max: 1e12 }), fc.nat({ max: 30_000 }), fc.nat(), (of, after, reserve, held) => {
        const sent = wallMs(of.epochMs + after);
        const ceiling = nextCeiling(of, sent, reserve, ticks(held));
        if (ceiling === undefined) return;
        expect(ceiling).toBeGreaterThan(held);
        expect(ceiling).toBeLessThanOrEqual(of.endTicks);
        expect(tickStartMs(of, ceiling)).toBeLessThanOrEqual(sent + reserve);
      }),
    );
  });

  it('stops at the end of the layout', () => {
    const lastMs = tickStartMs(layout, ticks(layout.endTicks - 1));
    expect(nextCeiling(layout, lastMs, 25_000, ticks(0))).toBe(layout.endTicks);
    expect(nextCeiling(layout, lastMs, 25_000, layout.endTicks)).toBeUndefined();
  });

  it('ahead of the clock is waited for until its tick starts', () => {
    const ceiling = toTicks(sonyflake, wallMs(NOW + 20));
    expect(ceilingWaitMs(sonyflake, ceiling, wallMs(NOW + 1))).toBe(19);
    expect(ceilingWaitMs(sonyflake, ceiling, wallMs(NOW + 20))).toBe(0);
    expect(ceilingWaitMs(sonyflake, ceiling, wallMs(NOW + 500))).toBe(0);
  });
});

describe('a timing', () => {
  const faultsWith = (change: Partial<LeaseTiming>): string =>
    checkTiming({ ...DEFAULT_TIMING, ...change })
      .map(({ field, problem }) => `${field} ${problem}`)
      .join('; ');

  it('is valid by default', () => {
    expect(checkTiming(DEFAULT_TIMING)).toEqual([]);
  });

  it('follows validly from every time to live that can be set', () => {
    for (let seconds = 2; seconds <= 600; seconds += 1) expect(checkTiming(timingFor(seconds * 1_000))).toEqual([]);
  });

  it('must have whole milliseconds above 0', () => {
    expect(faultsWith({ ttlMs: Number.NaN, marginMs: 0, reserveMs: 1.5 })).toMatch(/ttlMs.*reserveMs.*marginMs/);
  });

  it('reports each rule that it breaks', () => {
    expect(faultsWith({ ttlMs: 30_500 })).toBe('ttlMs must be whole seconds, not 30500 ms');
    expect(faultsWith({ heartbeatMs: 15_000 })).toMatch(
      'heartbeatMs must be below refuseAfterMs (15000 ms), not 15000 ms',
    );
    expect(faultsWith({ refuseAfterMs: 30_000 })).toMatch('refuseAfterMs must be below ttlMs (30000 ms), not 30000 ms');
    expect(faultsWith({ reserveMs: 25_001 })).toBe(
      'reserveMs must be at most ttlMs (30000 ms) minus marginMs (5000 ms), not 25001 ms',
    );
    expect(faultsWith({ reserveMs: 24_999 })).toBe(
      'reserveMs must be at least heartbeatMs (10000 ms) plus refuseAfterMs (15000 ms), not 24999 ms',
    );
    expect(faultsWith({ ttlMs: 60_000, reserveMs: 30_001 })).toBe(
      'reserveMs must be at most 35000 ms minus marginMs (5000 ms), not 30001 ms',
    );
    expect(faultsWith({ marginMs: 5_001 })).toMatch(/^reserveMs must be at most .* minus marginMs \(5001 ms\)/);
    expect(checkTiming({ ...DEFAULT_TIMING, ttlMs: 12_500, heartbeatMs: 20_000 })).toHaveLength(5);
  });

  it('is reported with the names that the caller gives its fields', () => {
    const named = (field: keyof LeaseTiming) => `the ${field.replace('Ms', '')}`;
    expect(checkTiming({ ...DEFAULT_TIMING, reserveMs: 25_001 }, named)).toEqual([
      { field: 'reserveMs', problem: 'must be at most the ttl minus the margin, not 25001 ms' },
    ]);
  });

  it('that is valid keeps every guarantee of the rules', () => {
    const whole = (max: number) => fc.integer({ min: 1, max });
    const timing = fc.record({
      ttlMs: whole(40).map((s) => s * 1000),
      heartbeatMs: whole(15_000),
      refuseAfterMs: whole(20_000),
      reserveMs: whole(40_000),
      marginMs: whole(10_000),
    });
    const around = fc.tuple(timing, fc.constantFrom(0, 0, 0, 1, -1)).map(([its, slip]) => ({
      ...its,
      reserveMs: Math.max(1, Math.min(its.ttlMs - its.marginMs, its.heartbeatMs + its.refuseAfterMs) + slip),
    }));
    let fine = 0;
    fc.assert(
      fc.property(around, (its) => {
        if (checkTiming(its).length > 0) return;
        fine += 1;
        const authority = authorityMs(its, at(0, 0), at(0, 0));
        const ceilingMs = tickStartMs(layout, nextCeiling(layout, NOW, its.reserveMs, ticks(0)) ?? ticks(-1)) - NOW;
        // A heartbeat is due while there is authority, which ends before the ceiling that the previous heartbeat
        // reserved.
        expect(its.heartbeatMs).toBeLessThan(authority);
        expect(ceilingMs).toBeGreaterThanOrEqual(its.heartbeatMs + authority);
        // A successor whose clock is behind by the margin finds the ceiling of a crashed worker in its past.
        expect(ceilingWaitMs(layout, ticks(ceilingMs), wallMs(layout.epochMs + its.ttlMs - its.marginMs))).toBe(0);
        // The ceiling of a worker ID that was released early is waited for.
        expect(ceilingMs + its.marginMs).toBeLessThanOrEqual(MAX_CEILING_WAIT_MS);
      }),
      { numRuns: 2000 },
    );
    expect(fine).toBeGreaterThan(20);
  });
});

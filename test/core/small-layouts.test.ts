import { describe, expect, it } from 'vitest';
import { startGenerator, take } from '../../src/core/generator.ts';
import { decompose, tickStartMs } from '../../src/core/layout.ts';
import { customLayout } from '../../src/core/layout-choice.ts';
import { ceilingWaitMs, nextCeiling } from '../../src/core/reservation.ts';
import { ticks, wallMs } from '../../src/core/units.ts';

/** The least that a layout may have: two IDs of two workers in each second. */
const EPOCH_MS = 1_000_000;
const tiny = customLayout({ fields: 'timestamp:16,worker:1,sequence:1', tickMs: 1_000, epochMs: EPOCH_MS });

describe('the smallest layout', () => {
  it('yields two IDs in a second, and no larger batch', () => {
    expect(tiny).toMatchObject({ maxCount: 2, maxWorker: 1, fitsNumber: true });
    expect(customLayout({ ...tiny, fields: [...tiny.fields], sequenceStartBelow: 2 }).maxCount).toBe(1);
  });

  it('uses up the current second, then waits for the next one', () => {
    const window = { nowTicks: ticks(5), from: ticks(0), to: ticks(60) };
    const one = take(startGenerator(tiny, 0, 1, ticks(0)), 1, window, () => 0);
    const two = take(one.generator, 2, window, () => 0);
    expect(two).toMatchObject({ missing: 1, waitUntilTicks: 6 });
    const rest = take(two.generator, 1, { ...window, nowTicks: ticks(6) }, () => 0);
    const parts = [one, two, rest].flatMap(({ ranges }) => ranges.map(({ first }) => decompose(tiny, first)));
    expect(parts.map(({ ticks: tick, worker, sequence }) => [tick, worker, sequence])).toEqual([
      [5, 1, 0],
      [5, 1, 1],
      [6, 1, 0],
    ]);
  });

  it('has a ceiling at a whole second, and the next term waits for that second', () => {
    const sent = wallMs(EPOCH_MS + 10_400);
    const ceiling = nextCeiling(tiny, sent, 5_000, ticks(0));
    expect(ceiling).toBe(15);
    expect(ceilingWaitMs(tiny, ticks(15), sent)).toBe(4_600);
    expect(nextCeiling(tiny, wallMs(sent + 500), 5_000, ticks(15))).toBeUndefined();
    expect(nextCeiling(tiny, wallMs(sent + 600), 5_000, ticks(15))).toBe(16);
  });

  it('ends with its last second, above which there is no ceiling', () => {
    const end = tickStartMs(tiny, tiny.endTicks);
    expect(nextCeiling(tiny, wallMs(end - 1), 25_000, ticks(0))).toBe(2 ** 16);
    const window = { nowTicks: tiny.endTicks, from: ticks(0), to: tiny.endTicks };
    expect(take(startGenerator(tiny, 0, 0, ticks(0)), 1, window, () => 0)).toMatchObject({ exhausted: 'layout' });
  });
});

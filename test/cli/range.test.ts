import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { idSpan } from '../../src/cli/range.ts';
import { compose, type Layout, toTicks } from '../../src/core/layout.ts';
import { PRESETS, type PresetName, presetLayout } from '../../src/core/presets.ts';
import { wallMs } from '../../src/core/units.ts';
import { cli } from './harness.ts';

const EPOCH_MS = Date.UTC(2026, 0, 1);
const LAYOUTS: readonly Layout[] = (Object.keys(PRESETS) as PresetName[]).map((name) => {
  return presetLayout(name, { epochMs: EPOCH_MS });
});

describe('the IDs of a span', () => {
  test('hold every ID of the span and none of another tick, in any layout', () => {
    const time = fc.integer({ min: EPOCH_MS, max: EPOCH_MS + 10 ** 11 });
    const unit = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(fc.constantFrom(...LAYOUTS), time, time, time, unit, (layout, a, b, at, where) => {
        fc.pre(a !== b);
        const [from, to] = [Math.min(a, b), Math.max(a, b)];
        const { first, last } = idSpan(layout, from, to);
        const pick = (most: number) => Math.floor(where * (most + 1));
        const id = compose(layout, {
          ticks: toTicks(layout, wallMs(at)),
          datacenter: pick(layout.maxDatacenter),
          worker: pick(layout.maxWorker),
          sequence: pick(layout.sequencesPerTick - 1),
        });
        const inside = id >= first && id <= last;
        if (at >= from && at < to) expect(inside).toBe(true);
        if (at + layout.tickMs <= from || at - layout.tickMs >= to) expect(inside).toBe(false);
      }),
    );
  });

  test('of adjacent spans share nothing and leave nothing out', () => {
    const [layout] = LAYOUTS as [Layout];
    const [one, two] = [idSpan(layout, EPOCH_MS + 5, EPOCH_MS + 9), idSpan(layout, EPOCH_MS + 9, EPOCH_MS + 10)];
    expect(two.first).toBe(one.last + 1n);
  });

  test('are cut at the beginning and end of the layout', () => {
    for (const layout of LAYOUTS) {
      const { first, last } = idSpan(layout, 0, 8_640_000_000_000_000);
      expect({ first, last: last < 2n ** 63n }).toEqual({ first: 0n, last: true });
    }
  });

  test('are a RangeError for an empty span, and outside the time of the layout', () => {
    const [layout] = LAYOUTS as [Layout];
    expect(() => idSpan(layout, EPOCH_MS + 1, EPOCH_MS + 1)).toThrow(/empty/);
    expect(() => idSpan(layout, 0, EPOCH_MS)).toThrow(/from 2026-01-01/);
  });
});

describe('idalloc range', () => {
  test('prints bounds that hold the golden vector', async () => {
    const { code, out } = await cli(['range', '--from', '2026-06-02T18:05:00+02:00', '--to', '2026-06-02T16:05:01Z']);
    expect(code).toBe(0);
    const [, first, last] = /BETWEEN (\d+) AND (\d+)/.exec(out) ?? [];
    expect(first).toBe(String(55325805773398016n & ~0x3fffffn));
    expect(BigInt(last ?? 0) - BigInt(first ?? 0)).toBe((1000n << 22n) - 1n);
  });

  test.each([[], ['--to', 'now']])('accepts ages, counted back from now, and ends now with %j', async (...to) => {
    const { out } = await cli(['range', '--json', '--from', '1h', ...to]);
    expect(JSON.parse(out)).toMatchObject({
      from_ms: Date.UTC(2026, 5, 2, 15, 5),
      to_ms: Date.UTC(2026, 5, 2, 16, 5),
      first: expect.stringMatching(/^\d+$/),
    });
  });

  test.each(['2026-06-02T16:05', '2026-02-30', '2026-02-30T00:00Z', '2026-6-2', 'yesterday', '', '1w', '1', '-5m'])(
    "refuses '%s', which is not a single moment",
    async (text) => {
      expect(await cli(['range', '--from', text, '--to', 'now'])).toMatchObject({ code: 2, out: '' });
    },
  );
});

import fc from 'fast-check';
import { defineLayout, type FieldRole, type IdParts, type Layout } from '../../src/core/layout.ts';
import { PRESETS, type PresetName, presetLayout } from '../../src/core/presets.ts';
import { ticks } from '../../src/core/units.ts';

const BAIDU_EPOCH_MS = Date.UTC(2026, 0, 1);
const EXTRAS = ['datacenter', 'worker', 'sequence'] as const satisfies readonly FieldRole[];

/** Every preset; baidu, which has no default epoch, with one chosen here. */
export const presetLayouts: readonly Layout[] = (Object.keys(PRESETS) as PresetName[]).map((name) =>
  presetLayout(name, name === 'baidu' ? { epochMs: BAIDU_EPOCH_MS } : {}),
);

/** Random layouts: any widths, any order below the timestamp, any tick, any sequence start. */
const inventedLayout: fc.Arbitrary<Layout> = fc
  .record({
    order: fc.shuffledSubarray([...EXTRAS], { minLength: 2 }).filter((roles) => {
      return roles.includes('worker') && roles.includes('sequence');
    }),
    timestamp: fc.integer({ min: 16, max: 40 }),
    widths: fc.array(fc.integer({ min: 1, max: 8 }), { minLength: 3, maxLength: 3 }),
    tickMs: fc.constantFrom(1, 2, 3, 4, 7, 10, 64, 1000),
    epochMs: fc.integer({ min: 0, max: 1_800_000_000_000 }),
    start: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
  })
  .map(({ order, timestamp, widths, tickMs, epochMs, start }) => {
    const below = order.map((role, at) => ({ role, bits: widths[at] ?? 1, label: role }));
    const sequenceBits = below.find(({ role }) => role === 'sequence')?.bits ?? 1;
    return defineLayout({
      name: 'invented',
      fields: [{ role: 'timestamp', bits: timestamp, label: 'timestamp' }, ...below],
      tickMs,
      epochMs,
      sequenceStartBelow: 1 + Math.floor(start * 2 ** sequenceBits),
    });
  });

/** A preset or an invented layout. */
export const anyLayout: fc.Arbitrary<Layout> = fc.oneof(fc.constantFrom(...presetLayouts), inventedLayout);

/** Parts that fit a layout, its first and last values among them. */
export function partsOf(layout: Layout): fc.Arbitrary<IdParts> {
  const upTo = (most: number) => fc.oneof(fc.constantFrom(0, most), fc.integer({ min: 0, max: most }));
  return fc.record({
    ticks: upTo(layout.endTicks - 1).map(ticks),
    datacenter: upTo(layout.maxDatacenter),
    worker: upTo(layout.maxWorker),
    sequence: upTo(layout.sequencesPerTick - 1),
  });
}

/** A deterministic source of random numbers: the same seed gives the same numbers. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

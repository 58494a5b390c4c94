import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { batchDigest, batchViolations, mergeRanges, packRanges, unpackRanges } from '../../../src/cli/audit/ids.ts';
import { collapseIds, expandIds, type IdBatch } from '../../../src/codec/id-batch.ts';
import { decodeIdReply, encodeIdReply } from '../../../src/codec/id-reply.ts';
import { startGenerator, take } from '../../../src/core/generator.ts';
import { layoutFinder } from '../../../src/core/layout-choice.ts';
import { PRESETS, type PresetName, presetLayout } from '../../../src/core/presets.ts';
import { ticks } from '../../../src/core/units.ts';
import { batchAt, LAYOUT } from './batches.ts';

describe('the evidence of a batch', () => {
  test.each(Object.keys(PRESETS) as PresetName[])('matches what the generator allocates in %s', (name) => {
    const layout = presetLayout(name, { epochMs: 0 });
    const now = ticks(100_000);
    const window = { nowTicks: now, from: ticks(0), to: ticks(200_000) };
    const { ranges } = take(startGenerator(layout, 0, 3, ticks(0)), layout.maxCount, window, () => 0.5);
    const evidence = { datacenterId: 0, workerId: 3, fence: 1n, epochMs: 0, layoutFingerprint: layout.fingerprint };
    const batch = { ...evidence, ranges, step: layout.step, generatedAtMs: Number(now) * layout.tickMs };
    expect(layoutFinder()(batch)?.fingerprint).toBe(layout.fingerprint);
    expect(batchViolations(batch, layout)).toEqual([]);
  });

  test.each(Object.keys(PRESETS) as PresetName[])(
    'matches a reply that lists single IDs of several ticks in %s',
    (name) => {
      const layout = presetLayout(name, { epochMs: 0 });
      let generator = startGenerator(layout, 0, 3, ticks(0));
      const ranges = [100_000, 100_001].flatMap((now) => {
        const window = { nowTicks: ticks(now), from: ticks(0), to: ticks(200_000) };
        const taken = take(generator, layout.sequencesPerTick, window, () => 0.5);
        generator = taken.generator;
        return taken.ranges;
      });
      expect(ranges.length).toBeGreaterThan(1);
      const evidence = { datacenterId: 0, workerId: 3, fence: 1n, epochMs: 0, layoutFingerprint: layout.fingerprint };
      const batch = { ...evidence, ranges, step: layout.step, generatedAtMs: 100_001 * layout.tickMs };
      const reply = decodeIdReply(encodeIdReply({ correlationId: Buffer.from('a'), batch }, 'IDS'));
      if (!('batch' in reply)) throw new Error('it has a batch');
      expect(batchViolations(reply.batch, layout)).toEqual([]);
    },
  );

  const good = batchAt(1_000_000, 10);
  const shifted = (by: bigint) => good.ranges.map(({ first, count }) => ({ first: first + by, count }));
  test.each<[string, Partial<IdBatch>, RegExp]>([
    ["another's worker ID", { workerId: 17 }, /worker 18, the batch of worker 17/],
    ["another's datacenter", { datacenterId: 5 }, /datacenter 4,/],
    ['another step', { step: 2n }, /step is 2/],
    ['IDs of the future', { generatedAtMs: good.generatedAtMs - 1 }, /after generated_at/],
    ['IDs of long ago', { generatedAtMs: good.generatedAtMs + 61_000 }, /more than a minute before/],
    ['ranges that fall', { ranges: [...shifted(100n), ...shifted(0n)] }, /do not increase/],
    ['ranges that overlap', { ranges: [...shifted(0n), ...shifted(9n)] }, /do not increase/],
    ['a range that leaves its tick', { ranges: shifted(4_090n) }, /leaves its tick|worker 19/],
    ['an ID after the last one', { ranges: [{ first: 2n ** 63n - 2n, count: 5 }] }, /not an ID of its layout/],
  ])('contradicts %s', (_, change, message) => {
    expect(batchViolations({ ...good, ...change }, LAYOUT).join('; ')).toMatch(message);
  });

  test('returns no layout for an unknown fingerprint', () => {
    expect(layoutFinder()({ ...good, layoutFingerprint: '0'.repeat(16) })).toBeUndefined();
    expect(layoutFinder()({ ...good, epochMs: -1 })).toBeUndefined();
  });
});

describe('ranges', () => {
  const ranges = fc.array(fc.tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 5 })), { minLength: 1 });
  const step = fc.bigInt({ min: 1n, max: 9n });

  test('merge to the fewest that hold the same IDs', () => {
    fc.assert(
      fc.property(ranges, step, (drafts, by) => {
        let first = 0n;
        const some = drafts.map(([gap, count]) => {
          const range = { first, count };
          first += BigInt(count - 1 + gap) * by;
          return range;
        });
        const merged = mergeRanges(some, by);
        expect(merged).toEqual(collapseIds(expandIds({ ranges: some, step: by }), by));
        expect(unpackRanges(packRanges(merged, by))).toEqual({ step: by, ranges: merged });
      }),
    );
  });

  test.each<[string, Partial<IdBatch>]>([
    ['fence', { fence: 8n }],
    ['worker', { workerId: 1 }],
    ['datacenter', { datacenterId: 1 }],
    ['epoch', { epochMs: 1 }],
    ['time', { generatedAtMs: 1 }],
    ['layout', { layoutFingerprint: 'f'.repeat(16) }],
  ])('with another %s are another batch', (_, change) => {
    const batch = batchAt(10);
    const packed = packRanges(batch.ranges, batch.step);
    expect(batchDigest({ ...batch, ...change }, packed).equals(batchDigest(batch, packed))).toBe(false);
    expect(batchDigest(batch, packed).equals(batchDigest(batchAt(10), packed))).toBe(true);
  });
});

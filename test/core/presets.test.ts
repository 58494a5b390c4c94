import { describe, expect, it } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { startGenerator, take } from '../../src/core/generator.ts';
import { compose, decompose, type FieldRole, tickStartMs, toTicks } from '../../src/core/layout.ts';
import { PRESETS, type PresetName, presetLayout } from '../../src/core/presets.ts';
import { ticks, wallMs } from '../../src/core/units.ts';
import { presetLayouts } from './arbitraries.ts';

/** Widths from the top, tick, epoch, stride, sign, largest batch, as the published schemes have them. */
const PUBLISHED = {
  default: ['41/5/5/12', 1, 1_767_225_600_000, 1n, true, 100_000],
  'js-safe': ['41/5/7', 1, 1_767_225_600_000, 1n, true, 100_000],
  'twitter-2010': ['41/5/5/12', 1, 1_288_834_974_657, 1n, true, 100_000],
  bwmarrin: ['41/10/12', 1, 1_288_834_974_657, 1n, true, 100_000],
  sonyflake: ['39/8/16', 10, 1_409_529_600_000, 65_536n, true, 25_600],
  instagram: ['41/13/10', 1, 1_314_220_021_721, 1n, false, 100_000],
  discord: ['42/5/5/12', 1, 1_420_070_400_000, 1n, false, 100_000],
  region: ['41/3/10/10', 1, 1_288_834_974_657, 1n, false, 100_000],
  baidu: ['28/22/13', 1000, 1_767_225_600_000, 1n, true, 8192],
} as const satisfies Record<PresetName, unknown>;

describe('a preset', () => {
  it('exists for each published layout, with its widths, tick, epoch, stride and sign', () => {
    const found = presetLayouts.map((of) => {
      const widths = of.fields.map(({ bits }) => bits).join('/');
      return [of.name, [widths, of.tickMs, of.epochMs, of.step, of.signBit, of.maxCount]];
    });
    expect(Object.fromEntries(found)).toEqual(PUBLISHED);
  });

  it("calls its fields what its source calls them: Discord's worker is fixed, its process leased", () => {
    const labels = (name: PresetName): Partial<Record<FieldRole, string>> =>
      Object.fromEntries(PRESETS[name].fields.map(({ role, label }) => [role, label]));
    expect(labels('discord')).toMatchObject({ datacenter: 'worker', worker: 'process' });
    expect(labels('instagram')).toMatchObject({ worker: 'shard' });
    expect(labels('sonyflake')).toMatchObject({ worker: 'machine' });
    expect(labels('region')).toMatchObject({ datacenter: 'region' });
  });

  it('without a sign bit ends at 2^63, before its field does', () => {
    const ends = Object.fromEntries(presetLayouts.map((of) => [of.name, Math.log2(of.endTicks)]));
    expect(ends).toMatchObject({ instagram: 40, region: 40, discord: 41, default: 41, sonyflake: 39, baidu: 28 });
  });

  it('decodes a published ID of its service', () => {
    // The example of Discord's reference: 2016-04-30T11:18:25.796Z, worker 1, process 0, increment 7.
    const discord = presetLayout('discord');
    const seen = decompose(discord, 175_928_847_299_117_063n);
    expect(seen).toMatchObject({ datacenter: 1, worker: 0, sequence: 7 });
    expect(new Date(tickStartMs(discord, seen.ticks)).toISOString()).toBe('2016-04-30T11:18:25.796Z');
  });

  it('of Sonyflake puts consecutive sequence numbers 2^16 apart', () => {
    const of = presetLayout('sonyflake');
    const at = (sequence: number): bigint => compose(of, { ticks: ticks(7), datacenter: 0, worker: 3, sequence });
    expect(at(1) - at(0)).toBe(65_536n);
    expect(at(0)).toBe((7n << 24n) | 3n);
  });

  it('fits the 53 bits of a JavaScript number up to its last ID only in js-safe', () => {
    expect(presetLayouts.filter(({ fitsNumber }) => fitsNumber).map(({ name }) => name)).toEqual(['js-safe']);
    const { endTicks, timestampShift } = presetLayout('js-safe');
    expect((BigInt(endTicks) << timestampShift) - 1n).toBe(BigInt(Number.MAX_SAFE_INTEGER));
  });

  it('of js-safe loses no ID to rounding; in default, 1,875 of 2,000 IDs of November 2026 become another number', () => {
    const changed = (['default', 'js-safe'] as const).map((name) => {
      const layout = presetLayout(name);
      const at = toTicks(layout, wallMs(Date.UTC(2026, 10, 22)));
      const { ranges } = take(
        startGenerator(layout, 0, 3, at),
        2_000,
        { nowTicks: ticks(at + 20), from: at, to: ticks(at + 30) },
        () => 0,
      );
      const ids = expandIds({ ranges, step: layout.step });
      expect(ids).toHaveLength(name === 'default' ? 2_000 : 1_280);
      return ids.filter((id) => BigInt(JSON.parse(String(id)) as number) !== id).length;
    });
    expect(changed).toEqual([1_875, 0]);
  });

  it('of Baidu requires an epoch', () => {
    expect(() => presetLayout('baidu')).toThrow(/epoch/);
    expect(presetLayout('baidu', { epochMs: 1_735_689_600_000 }).epochMs).toBe(1_735_689_600_000);
  });

  it('of bwmarrin accepts other bits and another epoch; the timestamp stays below the sign bit', () => {
    const of = presetLayout('bwmarrin', { workerBits: 6, sequenceBits: 14, epochMs: 1_600_000_000_000 });
    expect(of.fields.map(({ bits }) => bits)).toEqual([43, 6, 14]);
    expect(of).toMatchObject({ maxWorker: 63, sequencesPerTick: 16_384, epochMs: 1_600_000_000_000, signBit: true });
    expect(presetLayout('bwmarrin', { workerBits: 4, sequenceBits: 4 }).positions.timestamp).toMatchObject({
      bits: 48,
      shift: 8,
    });
  });

  it('of bwmarrin has at most 22 shared bits', () => {
    expect(() => presetLayout('bwmarrin', { workerBits: 11 })).toThrow(/23 bits/);
    expect(() => presetLayout('bwmarrin', { workerBits: 0 })).toThrow(/node/);
  });

  it('reports all problems of its overrides together', () => {
    expect(() => presetLayout('baidu', { workerBits: 3 })).toThrow(/bwmarrin only.*epoch/);
    expect(() => presetLayout('default', { sequenceBits: 3, epochMs: 0.5 })).toThrow(/bwmarrin only.*epochMs is 0.5/);
  });
});

import { describe, expect, it } from 'vitest';
import type { MemberSettings } from '../../../src/kafka/loops/member-options.ts';
import { Rejoining } from '../../../src/kafka/loops/rejoining.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

const AFTER_MS = 5_000;

function rejoining() {
  const runtime = new VirtualRuntime();
  const begunMs: number[] = [];
  const schedule = new Rejoining(runtime, AFTER_MS, () => begunMs.push(runtime.monotonicMs()));
  return { schedule, begunMs, pass: (ms: number) => runtime.until(runtime.sleep(ms)) };
}

describe('a wish to join again', () => {
  it('waits until the generation has lasted for a while', async () => {
    const { schedule, begunMs, pass } = rejoining();
    await pass(100);
    schedule.joined();
    schedule.request();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([100 + AFTER_MS]);
  });

  it('counts from the last generation, when another one has begun meanwhile', async () => {
    const { schedule, begunMs, pass } = rejoining();
    schedule.joined();
    schedule.request();
    await pass(3_000);
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([3_000 + AFTER_MS]);
  });

  it('is fulfilled when the copies are asked for, and only then', async () => {
    const { schedule, begunMs, pass } = rejoining();
    const settings: MemberSettings = { groupId: 'g', topic: 't', partitions: 1, copies: () => new Map() };
    schedule.request();
    await pass(1);
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toHaveLength(2);
    schedule.watching(settings).copies?.();
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toHaveLength(2);
  });

  it('ends with the membership', async () => {
    const { schedule, begunMs, pass } = rejoining();
    schedule.request();
    schedule.end();
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([]);
  });
});

import { describe, expect, it } from 'vitest';
import type { MemberSettings } from '../../../src/kafka/loops/member-options.ts';
import { Rejoining } from '../../../src/kafka/loops/rejoining.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

const AFTER_MS = 5_000;

function rejoining() {
  const runtime = new VirtualRuntime();
  const begunMs: number[] = [];
  const wishes = new Rejoining(runtime, AFTER_MS, () => begunMs.push(runtime.monotonicMs()));
  return { wishes, begunMs, pass: (ms: number) => runtime.until(runtime.sleep(ms)) };
}

describe('a wish to join again', () => {
  it('waits until the generation has lasted for a while', async () => {
    const { wishes, begunMs, pass } = rejoining();
    await pass(100);
    wishes.joined();
    wishes.wish();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([100 + AFTER_MS]);
  });

  it('counts from the last generation, when another one has begun meanwhile', async () => {
    const { wishes, begunMs, pass } = rejoining();
    wishes.joined();
    wishes.wish();
    await pass(3_000);
    wishes.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([3_000 + AFTER_MS]);
  });

  it('is fulfilled when the copies are asked for, and only then', async () => {
    const { wishes, begunMs, pass } = rejoining();
    const settings: MemberSettings = { groupId: 'g', topic: 't', partitions: 1, copies: () => new Map() };
    wishes.wish();
    await pass(1);
    wishes.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toHaveLength(2);
    wishes.watching(settings).copies?.();
    wishes.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toHaveLength(2);
  });

  it('ends with the membership', async () => {
    const { wishes, begunMs, pass } = rejoining();
    wishes.wish();
    wishes.end();
    wishes.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([]);
  });
});

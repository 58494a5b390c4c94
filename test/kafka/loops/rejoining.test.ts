import { describe, expect, it } from 'vitest';
import { Rejoining } from '../../../src/kafka/loops/rejoining.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

const AFTER_MS = 5_000;

function rejoining() {
  const runtime = new VirtualRuntime();
  const begunMs: number[] = [];
  const schedule = new Rejoining(runtime, AFTER_MS, () => begunMs.push(runtime.monotonicMs()));
  return { schedule, begunMs, pass: (ms: number) => runtime.until(runtime.sleep(ms)) };
}

describe('a request to rejoin', () => {
  it('waits until the generation has lasted for its minimum time', async () => {
    const { schedule, begunMs, pass } = rejoining();
    await pass(100);
    schedule.joined();
    schedule.request();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([100 + AFTER_MS]);
  });

  it('counts from the latest generation', async () => {
    const { schedule, begunMs, pass } = rejoining();
    schedule.joined();
    schedule.request();
    await pass(3_000);
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([3_000 + AFTER_MS]);
  });

  it('is fulfilled when the report is read, and only then', async () => {
    const { schedule, begunMs, pass } = rejoining();
    schedule.request();
    await pass(1);
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toHaveLength(2);
    schedule.watching(() => 'report')();
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

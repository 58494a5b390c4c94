import { describe, expect, it } from 'vitest';
import { Backoff, retrying } from '../../src/async/retrying.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

const PASSING = new Error('passing');
const LASTING = new Error('lasting');
const isTransient = (error: unknown) => error === PASSING;

describe('retrying', () => {
  it('continues while faults are transient, with growing waits, and ends with the first that is not', async () => {
    const runtime = new VirtualRuntime();
    const tries: number[] = [];
    const work = retrying(runtime, { timeoutMs: 10_000, isTransient }, async () => {
      tries.push(runtime.monotonicMs());
      throw tries.length < 5 ? PASSING : LASTING;
    });
    await expect(runtime.until(work)).rejects.toBe(LASTING);
    expect(tries).toEqual([0, 50, 150, 350, 750]);
  });

  it('ends in time with the fault of the last attempt, and passes the time left to each', async () => {
    const runtime = new VirtualRuntime();
    const lefts: number[] = [];
    const work = retrying(runtime, { timeoutMs: 1_500, isTransient }, async (leftMs) => {
      lefts.push(leftMs);
      throw PASSING;
    });
    await expect(runtime.until(work)).rejects.toBe(PASSING);
    expect(runtime.monotonicMs()).toBe(750);
    expect(lefts).toEqual([1_500, 1_450, 1_350, 1_150, 750]);
  });

  it('makes a last attempt with just the least time left', async () => {
    const runtime = new VirtualRuntime();
    const lefts: number[] = [];
    const work = retrying(runtime, { timeoutMs: 350, isTransient }, async (leftMs) => {
      lefts.push(leftMs);
      throw PASSING;
    });
    await expect(runtime.until(work)).rejects.toBe(PASSING);
    expect(lefts).toEqual([350, 300]);
  });

  it('ends a wait when the signal aborts', async () => {
    const runtime = new VirtualRuntime();
    const stop = new AbortController();
    const retries = { timeoutMs: 10_000, waits: { minMs: 5_000, maxMs: 5_000 }, isTransient, signal: stop.signal };
    const work = retrying(runtime, retries, async () => {
      if (stop.signal.aborted) return 'stopped';
      queueMicrotask(() => stop.abort());
      throw PASSING;
    });
    expect(await runtime.until(work)).toBe('stopped');
    expect(runtime.monotonicMs()).toBe(0);
  });
});

const WAITS = { minMs: 50, maxMs: 500 };

describe('a backoff', () => {
  it('doubles each wait up to the limit, and begins again after a reset', () => {
    const backoff = new Backoff(WAITS);
    expect(Array.from({ length: 6 }, () => backoff.nextMs())).toEqual([50, 100, 200, 400, 500, 500]);
    expect(backoff.failures).toBe(6);
    backoff.reset();
    expect(backoff.failures).toBe(0);
    expect(backoff.nextMs()).toBe(50);
  });

  it('draws each wait from its upper half', () => {
    const [least, most] = [new Backoff(WAITS, () => 0), new Backoff(WAITS, () => 0.999)];
    expect([least.nextMs(), least.nextMs()]).toEqual([25, 50]);
    expect(most.nextMs()).toBeCloseTo(49.975);
  });

  it('stays finite after any number of failures', () => {
    const backoff = new Backoff({ minMs: 1, maxMs: Number.POSITIVE_INFINITY });
    for (let failures = 0; failures < 2_000; failures += 1) backoff.nextMs();
    expect(backoff.nextMs()).toBe(2 ** 20);
  });
});

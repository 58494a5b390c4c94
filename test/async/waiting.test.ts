import { describe, expect, it } from 'vitest';
import { aborted, atMost, every, timeLimit } from '../../src/async/waiting.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

describe('work with a time limit', () => {
  it('settles as the work does, and leaves no timer', async () => {
    const runtime = new VirtualRuntime();
    expect(await atMost(runtime, 1_000, async () => 'done')).toBe('done');
    await expect(atMost(runtime, 1_000, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect([runtime.pending, runtime.monotonicMs()]).toEqual([0, 0]);
  });

  it('is given up after the limit, and its signal aborts', async () => {
    const runtime = new VirtualRuntime();
    let signal: AbortSignal | undefined;
    const work = atMost(runtime, 1_000, (over) => {
      signal = over;
      return new Promise<never>(() => undefined);
    });
    expect(await runtime.until(work)).toBeUndefined();
    expect(runtime.monotonicMs()).toBe(1_000);
    expect(signal?.aborted).toBe(true);
  });
});

describe('a time limit', () => {
  const limit = (limitMs: number) => {
    const runtime = new VirtualRuntime();
    const overMs: number[] = [];
    const timer = timeLimit(runtime, limitMs, () => overMs.push(runtime.monotonicMs()));
    return { runtime, overMs, timer };
  };

  it('is over at its time, unless it is cancelled', async () => {
    const { runtime, overMs } = limit(1_000);
    await runtime.pass(5_000);
    expect(overMs).toEqual([1_000]);
    const cancelled = limit(1_000);
    cancelled.timer.cancel();
    await cancelled.runtime.pass(5_000);
    expect(cancelled.overMs).toEqual([]);
  });

  it.each([
    ['30 ms: 100 ms', 30, 100],
    ['1.5 s: 1.5 s', 1_500, 1_500],
    ['an hour: 2 s', 3_600_000, 2_000],
  ])('is extended when the event loop was late by %s', async (_, lateMs, moreMs) => {
    const { runtime, overMs, timer } = limit(1_000);
    runtime.nowMs += 1_000 + lateMs;
    await runtime.pass(5_000);
    expect(overMs).toEqual([1_000 + lateMs + moreMs]);
    timer.cancel();
    expect(runtime.pending).toBe(0);
  });

  it('is extended by 2 s in all, however often the event loop stands still, and can be cancelled meanwhile', async () => {
    const { runtime, overMs } = limit(1_000);
    for (const standsStillMs of [1_500, 2_000, 5_000, 5_000]) {
      runtime.nowMs += standsStillMs;
      await runtime.pass(0);
    }
    expect(overMs).toHaveLength(1);
    const cancelled = limit(1_000);
    cancelled.runtime.nowMs += 9_000;
    await cancelled.runtime.pass(500);
    cancelled.timer.cancel();
    await cancelled.runtime.pass(9_000);
    expect([cancelled.overMs, cancelled.runtime.pending]).toEqual([[], 0]);
  });
});

describe('waiting for a signal', () => {
  it('ends when the signal aborts, and immediately if it has aborted already', async () => {
    const stop = new AbortController();
    const early = aborted(stop.signal);
    expect(await Promise.race([early.then(() => 'aborted'), Promise.resolve('waiting')])).toBe('waiting');
    stop.abort();
    await early;
    await aborted(stop.signal);
  });
});

it('work is repeated, each time a pause after it has ended, until it is disposed', async () => {
  const runtime = new VirtualRuntime();
  const pass = (ms: number) => runtime.until(runtime.sleep(ms));
  const begun: number[] = [];
  const repeated = every(runtime, 100, async () => {
    begun.push(runtime.monotonicMs());
    await runtime.sleep(50);
  });
  await pass(410);
  expect(begun).toEqual([100, 250, 400]);
  repeated[Symbol.dispose](); // while the work is in progress
  await pass(1_000);
  expect([begun.length, runtime.pending]).toEqual([3, 0]);
});

it('work that is disposed before its first time never runs', async () => {
  const runtime = new VirtualRuntime();
  every(runtime, 100, () => expect.unreachable())[Symbol.dispose]();
  expect(runtime.pending).toBe(0);
});

import { describe, expect, test } from 'vitest';
import { presetLayout } from '../../src/core/presets.ts';
import { wallMs } from '../../src/core/units.ts';
import { type Allocated, AllocationQueue, Issuer } from '../../src/http/issuer.ts';

/** A source of IDs that answers when the test says so, and records the most calls that it had at once. */
class HeldSource {
  readonly asked: { readonly count: number; readonly answer: PromiseWithResolvers<void> }[] = [];

  allocate = async ([count = 0]: readonly number[]): Promise<readonly Allocated[]> => {
    const answer = Promise.withResolvers<void>();
    this.asked.push({ count, answer });
    await answer.promise;
    return [{ ranges: [{ first: 0n, count }], generatedAt: wallMs(0) }];
  };

  async isAsked(times: number): Promise<void> {
    while (this.asked.length < times) await new Promise((resolve) => setImmediate(resolve));
  }

  async release(nth: number): Promise<void> {
    await this.isAsked(nth + 1);
    this.asked[nth]?.answer.resolve();
  }
}

function stage(maxWaitingIds = 2_000) {
  const source = new HeldSource();
  const clock = { nowMs: 0 };
  const queue = new AllocationQueue({
    source,
    maxWaitingIds,
    isLarge: (count) => count > 50_000,
    monotonicMs: () => clock.nowMs,
  });
  return { source, clock, queue };
}

describe('the queue', () => {
  test('passes one request at a time to the allocator, in order', async () => {
    const { source, queue } = stage();
    const taken = [1, 2, 3].map((count) => queue.take('a', count));
    for (const nth of [0, 1, 2]) {
      await source.release(nth);
      expect((await taken[nth])?.ranges[0]?.count).toBe(nth + 1);
      expect(source.asked.length).toBeLessThanOrEqual(nth + 2);
    }
    expect(source.asked.map(({ count }) => count)).toEqual([1, 2, 3]);
  });

  test('rejects with OVERLOADED a caller with half of the IDs, and accepts its requests again later', async () => {
    const { source, queue } = stage(200);
    const first = queue.take('a', 60);
    const second = queue.take('a', 40);
    await expect(queue.take('a', 1)).rejects.toMatchObject({ code: 'OVERLOADED' });
    await source.release(0);
    await first;
    const third = queue.take('a', 60);
    await source.release(1);
    await source.release(2);
    await Promise.all([second, third]);
  });

  test('accepts a single request above its limit of IDs', async () => {
    const { source, queue } = stage(200);
    const large = queue.take('a', 5_000);
    await source.release(0);
    expect((await large).ranges[0]?.count).toBe(5_000);
  });

  test('rejects with OVERLOADED a caller with half of the requests', async () => {
    const { source, queue } = stage(1_000_000);
    const waiting = Array.from({ length: 512 }, () => queue.take('a', 1));
    await expect(queue.take('a', 1)).rejects.toMatchObject({ code: 'OVERLOADED' });
    for (let nth = 0; nth < waiting.length; nth += 1) await source.release(nth);
    await Promise.all(waiting);
  });

  test('rejects a request that waited too long, without allocating for it', async () => {
    const { source, clock, queue } = stage();
    const first = queue.take('a', 1);
    const late = queue.take('a', 2);
    const refused = expect(late).rejects.toMatchObject({ code: 'OVERLOADED' });
    await source.isAsked(1);
    clock.nowMs = 2_001;
    await source.release(0);
    await first;
    await refused;
    const next = queue.take('a', 3);
    await source.release(1);
    await next;
    expect(source.asked.map(({ count }) => count)).toEqual([1, 3]);
  });

  test('continues after an error of the allocator', async () => {
    const { source, queue } = stage();
    const first = queue.take('a', 1);
    const refused = expect(first).rejects.toThrow('no');
    const second = queue.take('a', 2);
    await source.isAsked(1);
    source.asked[0]?.answer.reject(new Error('no'));
    await refused;
    await source.release(1);
    expect((await second).ranges[0]?.count).toBe(2);
  });

  test('serves one caller beside 41 large requests of another during the one in progress, and refuses the last of those', async () => {
    const { source, queue } = stage(2 * 4_096_000);
    const all = Array.from({ length: 40 }, () => queue.take('a', 100_000));
    const refused = { code: 'OVERLOADED', message: expect.stringMatching(/, 40 for 4000000 of this caller:/) };
    await expect(queue.take('a', 100_000)).rejects.toMatchObject(refused);
    const other = queue.take('b', 1);
    await source.release(1);
    expect((await other).ranges[0]?.count).toBe(1);
    expect(source.asked.length).toBe(2);
    await source.release(0);
    for (let nth = 2; nth < 41; nth += 1) await source.release(nth);
    await Promise.all(all);
    expect(source.asked.map(({ count }) => count)).toEqual([100_000, 1, ...new Array(39).fill(100_000)]);
  });

  test('gives callers equal numbers of IDs, whatever the size of their requests', async () => {
    const { source, queue } = stage(10_000_000);
    const first = queue.take('c', 1);
    const large = Array.from({ length: 3 }, () => queue.take('a', 40_000));
    const small = Array.from({ length: 30 }, () => queue.take('b', 4_000));
    for (let nth = 0; nth < 34; nth += 1) await source.release(nth);
    await Promise.all([first, ...large, ...small]);
    const sums = { large: 0, small: 0 };
    for (const { count } of source.asked.slice(1)) {
      if (count === 40_000) sums.large += count;
      else sums.small += count;
      expect(Math.abs(sums.large - sums.small)).toBeLessThanOrEqual(40_000 + 10_000);
    }
    expect(sums).toEqual({ large: 120_000, small: 120_000 });
  });

  test('has room for one request of every caller, however many IDs another one has', async () => {
    const { source, queue } = stage(200);
    const large = queue.take('a', 5_000);
    const small = queue.take('b', 1);
    await expect(queue.take('b', 1)).rejects.toMatchObject({ code: 'OVERLOADED' });
    await source.release(0);
    await source.release(1);
    await Promise.all([large, small]);
  });

  test('has room for 1,024 requests, and rejects the first one of another caller above them', async () => {
    const { source, queue } = stage(1_000_000);
    const waiting = Array.from({ length: 1_024 }, (_, caller) => queue.take(`${caller}`, 1));
    await expect(queue.take('late', 1)).rejects.toMatchObject({ code: 'OVERLOADED' });
    for (let nth = 0; nth < waiting.length; nth += 1) await source.release(nth);
    await Promise.all(waiting);
  });
});

test.each([
  ['default', 4_096_000, 8_192],
  ['sonyflake', 25_600, 128],
] as const)(
  'in layout %s a caller that is alone may have %i IDs waiting, as many as the layout has in a second',
  async (name, most, count) => {
    const source = new HeldSource();
    const options = { layout: presetLayout(name), source, gateReason: () => undefined, monotonicMs: () => 0 };
    const issuer = new Issuer({ ...options, issued: () => undefined });
    const waiting = Array.from({ length: Math.floor(most / count) }, () => issuer.issue('a', count));
    await expect(issuer.issue('a', count)).rejects.toMatchObject({ status: 503, code: 'OVERLOADED' });
    for (let nth = 0; nth < waiting.length; nth += 1) await source.release(nth);
    await Promise.all(waiting);
  },
);

import { describe, expect, test, vi } from 'vitest';
import { IdempotencyCache } from '../../src/http/idempotency.ts';

function stage(maxWeight = 1_000) {
  const clock = { nowMs: 0 };
  const cache = new IdempotencyCache<number>({ monotonicMs: () => clock.nowMs, weigh: (value) => value, maxWeight });
  return { clock, cache };
}

describe('a key', () => {
  test('returns the same value for ten minutes', async () => {
    const { clock, cache } = stage();
    const make = vi.fn(async () => 1);
    expect(cache.once('k', 'a', make).replayed).toBe(false);
    clock.nowMs = 599_999;
    const again = cache.once('k', 'a', make);
    expect([again.replayed, await again.value]).toEqual([true, 1]);
    clock.nowMs = 600_000;
    expect(cache.once('k', 'a', make).replayed).toBe(false);
    expect(make).toHaveBeenCalledTimes(2);
  });

  test('used by concurrent requests computes one value', async () => {
    const { cache } = stage();
    const computed = Promise.withResolvers<number>();
    const first = cache.once('k', 'a', () => computed.promise);
    const second = cache.once('k', 'a', () => Promise.reject(new Error('computed twice')));
    computed.resolve(7);
    expect(await Promise.all([first.value, second.value])).toEqual([7, 7]);
    expect(second.replayed).toBe(true);
  });

  test('is a CONFLICT for another request, also while the first is in progress', () => {
    const { cache } = stage();
    void cache.once('k', 'a', () => new Promise(() => undefined));
    expect(() => cache.once('k', 'b', async () => 1)).toThrow(
      expect.objectContaining({ status: 422, code: 'CONFLICT' }),
    );
  });

  test('whose request failed can be used again', async () => {
    const { cache } = stage();
    await expect(cache.once('k', 'a', () => Promise.reject(new Error('no'))).value).rejects.toThrow('no');
    const again = cache.once('k', 'a', async () => 2);
    expect([again.replayed, await again.value]).toEqual([false, 2]);
  });
});

describe('the cache', () => {
  test('is limited by the weight of its values, and evicts the oldest', async () => {
    const { cache } = stage(100);
    const make = (value: number) => async () => value;
    for (const key of ['a', 'b', 'c']) await cache.once(key, key, make(30)).value;
    await cache.once('d', 'd', make(30)).value;
    expect(cache.once('d', 'd', make(30)).replayed).toBe(true);
    expect(cache.once('c', 'c', make(30)).replayed).toBe(true);
    expect(cache.once('a', 'a', make(30)).replayed).toBe(false);
  });

  test('stays within its limit over many keys', async () => {
    const { cache } = stage(50);
    for (let key = 0; key < 1_000; key += 1) await cache.once(`${key}`, 'r', async () => 1).value;
    let kept = 0;
    while (cache.once(`${999 - kept}`, 'r', async () => 1).replayed) kept += 1;
    expect(kept).toBe(25); // each weighs 1 itself and 1 by its value
  });
});

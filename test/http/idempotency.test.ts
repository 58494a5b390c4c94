import { describe, expect, test, vi } from 'vitest';
import { IdempotencyCache } from '../../src/http/idempotency.ts';

function stage(maxWeight = 1_000) {
  const clock = { nowMs: 0 };
  const cache = new IdempotencyCache<number>({
    monotonicMs: () => clock.nowMs,
    weigh: (value) => value,
    maxWeight,
    guaranteedWeight: 8,
  });
  return { clock, cache };
}

describe('a key', () => {
  test('returns the same value for ten minutes', async () => {
    const { clock, cache } = stage();
    const make = vi.fn(async () => 1);
    expect(cache.once('me', 'k', 'a', make).replayed).toBe(false);
    clock.nowMs = 599_999;
    const again = cache.once('me', 'k', 'a', make);
    expect([again.replayed, await again.value]).toEqual([true, 1]);
    clock.nowMs = 600_000;
    expect(cache.once('me', 'k', 'a', make).replayed).toBe(false);
    expect(make).toHaveBeenCalledTimes(2);
  });

  test('used by concurrent requests computes one value', async () => {
    const { cache } = stage();
    const computed = Promise.withResolvers<number>();
    const first = cache.once('me', 'k', 'a', () => computed.promise);
    const second = cache.once('me', 'k', 'a', () => Promise.reject(new Error('computed twice')));
    computed.resolve(7);
    expect(await Promise.all([first.value, second.value])).toEqual([7, 7]);
    expect(second.replayed).toBe(true);
  });

  test('is a CONFLICT for another request, also while the first is in progress', () => {
    const { cache } = stage();
    void cache.once('me', 'k', 'a', () => new Promise(() => undefined));
    expect(() => cache.once('me', 'k', 'b', async () => 1)).toThrow(
      expect.objectContaining({ status: 422, code: 'CONFLICT' }),
    );
  });

  test('whose request failed can be used again', async () => {
    const { cache } = stage();
    await expect(cache.once('me', 'k', 'a', () => Promise.reject(new Error('no'))).value).rejects.toThrow('no');
    const again = cache.once('me', 'k', 'a', async () => 2);
    expect([again.replayed, await again.value]).toEqual([false, 2]);
  });
});

describe('a caller', () => {
  const fill = async ({ cache }: ReturnType<typeof stage>, caller: string, most = 10_000) => {
    for (let nth = 0; nth < most; nth += 1) {
      try {
        await cache.once(caller, `${nth}`, 'r', async () => 1).value; // each weighs 1 itself and 1 by its value
      } catch (error) {
        expect(error).toMatchObject({ status: 429 });
        return nth;
      }
    }
    return most;
  };
  const isKnown = ({ cache }: ReturnType<typeof stage>, caller: string, key: string) =>
    cache.once(caller, key, 'r', async () => 1).replayed;

  test('whose share is full gets no new key, and keeps those that it has', async () => {
    const world = stage();
    expect(await fill(world, 'me')).toBe(250);
    for (let nth = 0; nth < 250; nth += 1) expect(isKnown(world, 'me', `${nth}`)).toBe(true);
  });

  test("can't evict another's keys, nor keep it from new ones", async () => {
    const world = stage();
    await world.cache.once('victim', 'order-4711', 'r', async () => 1).value;
    await fill(world, 'mallory');
    expect(isKnown(world, 'victim', 'order-4711')).toBe(true);
    expect(await fill(world, 'victim', 100)).toBe(100);
  });

  test('has a guaranteed part beside many that have filled their shares', async () => {
    const world = stage();
    for (let nth = 0; nth < 20; nth += 1) await fill(world, `caller ${nth}`);
    expect(await fill(world, 'late', 4)).toBe(4);
  });

  test('learns when its oldest key expires, and gets a new one then', async () => {
    const world = stage();
    const { cache, clock } = world;
    await fill(world, 'other', 1);
    clock.nowMs = 200_000;
    const count = await fill(world, 'me');
    clock.nowMs = 700_500;
    const refused = () => cache.once('me', 'new', 'r', async () => 1);
    await fill(world, 'other');
    expect(refused).toThrow(expect.objectContaining({ status: 429, headers: { 'retry-after': '100' } }));
    clock.nowMs = 800_000;
    expect(refused().replayed).toBe(false);
    expect(count).toBeGreaterThan(0);
  });

  test('does not use up its share by failures', async () => {
    const { cache } = stage(10);
    for (let nth = 0; nth < 100; nth += 1) {
      await expect(cache.once('me', `${nth}`, 'r', () => Promise.reject(new Error('no'))).value).rejects.toThrow('no');
    }
    expect(cache.once('me', 'k', 'r', async () => 1).replayed).toBe(false);
  });

  test('uses up its share by the weight of values', async () => {
    const { cache } = stage(100);
    await cache.once('me', 'large', 'r', async () => 90).value;
    expect(() => cache.once('me', 'k', 'r', async () => 1)).toThrow(expect.objectContaining({ status: 429 }));
  });
});

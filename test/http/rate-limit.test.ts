import { expect, test } from 'vitest';
import { RateLimit } from '../../src/http/callers.ts';
import { Problem } from '../../src/http/problem.ts';

function stage(perSecond = 100) {
  const world = { nowMs: 7_000 };
  const limit = new RateLimit(perSecond, () => world.nowMs);
  /** Seconds to wait, or 0 if the IDs were granted. */
  const take = (caller: string, count: number): number => {
    try {
      limit.take(caller, count);
      return 0;
    } catch (error) {
      if (error instanceof Problem && error.status === 429) return Number(error.headers['retry-after']);
      throw error;
    }
  };
  return { world, limit, take };
}

test('a caller gets a burst of one second, and then the same rate', () => {
  const { world, take } = stage();
  expect([take('a', 60), take('a', 40), take('a', 1)]).toEqual([0, 0, 1]);
  world.nowMs += 500;
  expect([take('a', 51), take('a', 50), take('a', 1)]).toEqual([1, 0, 1]);
  world.nowMs += 3_600_000;
  expect([take('a', 100), take('a', 1)]).toEqual([0, 1]);
});

test('each caller has its own limit', () => {
  const { take } = stage();
  expect([take('a', 100), take('b', 100), take('a', 1)]).toEqual([0, 0, 1]);
});

test('a request above the burst needs a full bucket, and leaves a debt', () => {
  const { world, take } = stage();
  expect([take('a', 1), take('a', 1_000)]).toEqual([0, 1]);
  world.nowMs += 10;
  expect([take('a', 1_000), take('a', 1), take('a', 100)]).toEqual([0, 10, 10]);
  world.nowMs += 9_000;
  expect(take('a', 1)).toBe(1);
  world.nowMs += 10;
  expect(take('a', 1)).toBe(0);
});

test('returned IDs do not count, and never exceed the burst', () => {
  const { limit, take } = stage();
  expect(take('a', 100)).toBe(0);
  limit.giveBack('a', 100);
  limit.giveBack('a', 100);
  expect([take('a', 100), take('a', 1)]).toEqual([0, 1]);
});

test('with very many callers, only the most recent are remembered', () => {
  const { take } = stage();
  take('first', 100);
  for (let i = 0; i < 1_023; i += 1) take(`caller ${i}`, 100);
  expect(take('first', 1)).toBe(1);
  take('one more', 1);
  expect([take('caller 0', 1), take('first', 1)]).toEqual([0, 1]);
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TokenBucket } from '../../src/async/token-bucket.ts';

/** A bucket of 100 a second, and whether it lets something pass after a pause. */
function world(share = 1) {
  const bucket = new TokenBucket(100);
  let nowMs = 5_000;
  return (wanted: number, afterMs = 0) => {
    nowMs += afterMs;
    if (bucket.waitMs(wanted, { nowMs, share }) > 0) return false;
    bucket.take(wanted);
    return true;
  };
}

describe('a token bucket', () => {
  it('after an overdraft of any size lets smaller amounts pass as if it were just empty', () => {
    const passes = world();
    expect(passes(100_000)).toBe(true);
    expect([passes(1), passes(1, 10), passes(1), passes(99, 990)]).toEqual([false, true, false, true]);
    expect([passes(100, 999), passes(100, 1)]).toEqual([false, true]); // all that it can hold
  });

  it('repays an overdraft only with what it can not hold, and lets the next one wait for that', () => {
    const passes = world();
    expect(passes(500)).toBe(true); // 100 held, 400 overdrawn
    expect([passes(101, 4_990), passes(101, 10)]).toEqual([false, true]);
    expect([passes(50, 1_000), passes(101, 500), passes(101, 10)]).toEqual([true, false, true]);
  });

  it('never gives more than its rate, one second of it and the last overdraft', () => {
    const step = fc.record({ wanted: fc.integer({ min: 1, max: 2_000 }), afterMs: fc.integer({ min: 0, max: 5_000 }) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100 }), fc.constantFrom(0.1, 1), (steps, share) => {
        const passes = world(share);
        let [taken, largest, elapsedMs] = [0, 0, 0];
        for (const { wanted, afterMs } of steps) {
          elapsedMs += afterMs;
          if (!passes(wanted, afterMs)) continue;
          taken += wanted;
          largest = Math.max(largest, wanted);
          expect(taken).toBeLessThanOrEqual((100 * share * elapsedMs) / 1_000 + 100 * share + largest + 1e-6);
        }
      }),
    );
  });

  it('makes everything that follows wait for a debt', () => {
    const bucket = new TokenBucket(100);
    expect(bucket.waitMs(1_000, { nowMs: 0 })).toBe(0);
    bucket.owe(1_000);
    expect([bucket.waitMs(1, { nowMs: 0 }), bucket.waitMs(1, { nowMs: 9_010 })]).toEqual([9_010, 0]);
  });

  it('holds no more than its burst, also of what is given back', () => {
    const bucket = new TokenBucket(10, 3);
    const taken = () => {
      let count = 0;
      for (; bucket.waitMs(1, { nowMs: 0 }) === 0; count += 1) bucket.take(1);
      return count;
    };
    expect(taken()).toBe(3);
    bucket.giveBack(5);
    expect(taken()).toBe(3);
  });

  it('without a rate lets everything pass, and is never used', () => {
    const bucket = new TokenBucket();
    bucket.take(1e9);
    expect([bucket.waitMs(1e9, { nowMs: 0 }), bucket.used({ nowMs: 0 })]).toEqual([0, 0]);
  });
});

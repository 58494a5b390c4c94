import { describe, expect, it } from 'vitest';
import { Throttle } from '../../src/async/throttle.ts';

describe('a throttle', () => {
  it('lets the first event of each kind pass, and the next one an interval later', () => {
    let nowMs = 5;
    const throttle = new Throttle({ monotonicMs: () => nowMs }, 1_000);
    expect([throttle.passes('a'), throttle.passes('a'), throttle.passes('b')]).toEqual([true, false, true]);
    nowMs = 1_004;
    expect(throttle.passes('a')).toBe(false);
    nowMs = 1_005;
    expect([throttle.passes('a'), throttle.passes('a')]).toEqual([true, false]);
  });

  it('counts the interval from the last event that passed, not from one that was held back', () => {
    let nowMs = 0;
    const throttle = new Throttle({ monotonicMs: () => nowMs }, 1_000);
    throttle.passes();
    nowMs = 900;
    expect(throttle.passes()).toBe(false);
    nowMs = 1_000;
    expect(throttle.passes()).toBe(true);
  });

  it('remembers 100 kinds, and forgets all of them when there are more', () => {
    const throttle = new Throttle({ monotonicMs: () => 0 }, 1_000);
    for (let kind = 0; kind < 100; kind += 1) expect(throttle.passes(String(kind))).toBe(true);
    expect(throttle.passes('0')).toBe(false);
    expect(throttle.passes('100')).toBe(true);
    expect(throttle.passes('0')).toBe(true);
  });
});

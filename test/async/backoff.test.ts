import { describe, expect, it } from 'vitest';
import { Backoff } from '../../src/async/backoff.ts';

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

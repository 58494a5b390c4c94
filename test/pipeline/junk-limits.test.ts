import { describe, expect, it } from 'vitest';
import { JunkLimits } from '../../src/pipeline/junk-limits.ts';

function limitsAt(rate: { perSecond: number; burst: number }) {
  const clock = { nowMs: 5.3 };
  return { clock, limits: new JunkLimits(rate, { monotonicMs: () => clock.nowMs }) };
}

/** How many of 5,000 attempts succeed. */
function taken(take: () => boolean): number {
  return Array.from({ length: 5_000 }, take).filter(Boolean).length;
}

describe('bad records', () => {
  it('get a burst of letters, then the rate, for each code and partition', () => {
    const { clock, limits } = limitsAt({ perSecond: 10, burst: 1_000 });
    expect(taken(() => limits.takeLetter(0, 'INVALID_COUNT'))).toBe(1_000);
    expect(taken(() => limits.takeLetter(1, 'INVALID_COUNT'))).toBe(1_000);
    expect(taken(() => limits.takeLetter(0, 'MALFORMED_REQUEST'))).toBe(1_000);
    clock.nowMs += 2_001;
    expect(taken(() => limits.takeLetter(0, 'INVALID_COUNT'))).toBe(20);
    clock.nowMs += 1_000_000;
    expect(taken(() => limits.takeLetter(0, 'INVALID_COUNT'))).toBe(1_000);
  });

  it('of one sender do not use up the error replies on the topics of others', () => {
    const { limits } = limitsAt({ perSecond: 10, burst: 3 });
    expect(taken(() => limits.takeReply('id.replies.bad'))).toBe(3);
    expect(limits.takeReply('id.replies.good')).toBe(true);
  });

  it('that name ever other topics are limited together, until the first topics are no longer limited', () => {
    const { clock, limits } = limitsAt({ perSecond: 1, burst: 1 });
    const named = (prefix: string) => Array.from({ length: 20_000 }, (_, i) => limits.takeReply(prefix + i));
    expect(named('a').filter(Boolean)).toHaveLength(10_000);
    clock.nowMs += 1_000;
    expect(named('b').filter(Boolean)).toHaveLength(10_000);
  });
});

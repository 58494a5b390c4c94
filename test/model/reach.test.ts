import { describe, expect, it } from 'vitest';
import { examplesOf } from '../support/examples.ts';
import { DATED, FORGED, ONE, QUICK, RULE, TIME_ALONE } from './reach.ts';
import { explore, type Result } from './reach-search.ts';
import type { Rule, World } from './rule.ts';
import { summary } from './search.ts';

const LIMITS = { states: 3_000_000 };

/** The shortest sequence of steps to a second batch within the bounds; undefined if there is none. */
function violation(rule: Rule, world: World): readonly string[] | undefined {
  return explore(rule, world, LIMITS).violation;
}

const explored = new Map<string, Result>();

/** All states within the bounds; explored once, whichever test asks first. */
function all(rule: Rule, world: World): Result {
  const key = JSON.stringify([rule, world]);
  const result = explored.get(key) ?? explore(rule, world, LIMITS);
  explored.set(key, result);
  return result;
}

describe('one correlation ID has one batch, whatever is lost, with', () => {
  it.each(examplesOf(QUICK, 4))('%s', (_, rule, world) => {
    const result = all(rule, world);
    expect(result.violation, summary(result)).toBeUndefined();
    const { served, servedFromEmptyLog, servedAfterLoss, forgottenRightly, forgottenInVain } = result.counts;
    expect(forgottenInVain, summary(result)).toBe(0);
    expect(Math.min(served, servedFromEmptyLog, servedAfterLoss, forgottenRightly), summary(result)).toBeGreaterThan(0);
  });

  it('forged origins, except for the forged ID itself', () => {
    const { counts, violation } = all(RULE, FORGED);
    expect(violation).toBeUndefined();
    expect(counts.forgedTwice).toBeGreaterThan(0);
  });
});

describe('the margin', () => {
  it('must be above the skew of the clocks', () => {
    expect(violation({ ...TIME_ALONE, margin: 0 }, ONE)).toBeDefined();
    expect(violation({ ...TIME_ALONE, margin: 1 }, ONE)).toBeDefined();
    expect(violation({ ...TIME_ALONE, margin: 2 }, { ...ONE, skew: 2 })).toBeDefined();
  });

  it('must be above the skew and the excess of origins together', () => {
    expect(violation({ ...TIME_ALONE, margin: 2 }, { ...ONE, until: 2, excess: 1 })).toBeDefined();
  });

  it('must be above twice the skew and the excess if a minimum age of trimmed entries is assumed', () => {
    expect(violation({ ...DATED, margin: 2, trimmedAge: 2 }, { ...ONE, until: 2, retention: 2 })).toBeDefined();
    const late: World = { ...ONE, until: 3, retention: 3, excess: 1 };
    expect(violation({ ...DATED, margin: 3 }, late)).toBeDefined();
    expect(violation({ ...DATED, margin: 4 }, late)).toBeUndefined();
  });
});

describe('a second batch is found', () => {
  const twoWorkers: World = { ...ONE, workers: 2, strays: 1 };
  const broken: readonly (readonly [string, Rule, World])[] = [
    ['when T is the append time of the record itself', { ...RULE, timeOf: 'record' }, ONE],
    ['when a resend does not carry its origin', { ...RULE, resend: 'nothing' }, ONE],
    ['when only offsets are checked', { ...RULE, byTime: 'never' }, ONE],
    ['when a lost index counts as complete', { ...RULE, afterLoss: 'for ever' }, ONE],
    ['when expiry of entries does not raise S', { ...RULE, expiryRaises: false }, ONE],
    ['when a record is decided in place', { ...RULE, elsewhere: 'decide' }, ONE],
    ['when a loser counts whose winner may be gone', { ...TIME_ALONE, losersForgotten: false }, twoWorkers],
    ['when a T from the future counts as recent', { ...RULE, futureForgotten: false }, { ...ONE, wrongBy: 6 }],
    ['when a broker is far behind, and a marker is the oldest entry', RULE, { ...ONE, wrongBy: -6 }],
    ['when entries are trimmed younger than assumed', DATED, { ...ONE, until: 3, retention: 2 }],
    [
      'when an age is taken from an entry older than what the index expired',
      { ...DATED, margin: 1, trimmedAge: 1, trimmedAgeApplies: 'always' },
      { ...ONE, until: 2, skew: 0, retention: 1, entries: 4 },
    ],
  ];
  it.each(broken)('%s', (_, rule, world) => {
    expect(violation(rule, world)?.at(-1)).toMatch(/gets batch/);
  });
});

describe('the first entry after a restore', () => {
  it('lets more requests be served if a minimum age of trimmed entries is assumed', () => {
    const { trimmedAge: _, ...plain } = DATED;
    const world = { ...ONE, until: 4, retention: 3 };
    const served = (rule: Rule) => all(rule, world).counts.servedAfterLoss;
    expect(served(DATED)).toBeGreaterThan(served(plain));
  });
});

describe('the oldest entry', () => {
  it('need not be anchored to show from when on everything is known', () => {
    const oldest = all({ ...RULE, sinceFalls: 'never' }, ONE);
    const anchored = all({ ...RULE, sinceFalls: 'never', since: 'anchored' }, ONE);
    expect([anchored.violation, oldest.violation]).toEqual([undefined, undefined]);
    const inVain = ({ counts }: Result) => counts.forgottenInDoubt + counts.forgottenByOffset;
    expect(inVain(oldest)).toBeLessThan(inVain(anchored));
  });
});

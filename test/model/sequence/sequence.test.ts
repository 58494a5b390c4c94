import { describe, expect, it } from 'vitest';
import { at, summary } from '../search.ts';
import { REQUESTS, worldOf } from './bounds.ts';
import { draftsOf, judge } from './decide.ts';
import { read } from './knowledge.ts';
import { initialState } from './moves.ts';
import { MUTANTS } from './mutants.ts';
import { RULE } from './rule.ts';
import { exploreExample } from './run.ts';
import { KIND } from './state.ts';
import { landed } from './truth.ts';
import { QUICK } from './worlds.ts';

const LIMITS = { states: 500_000 };

describe('numbers are gapless, a key has one decision, and a row says what the log says, with', () => {
  it.each(QUICK.map((example) => [example.name, example] as const))('%s', (_, example) => {
    const { result, continued } = exploreExample(example, LIMITS);
    expect(result.violation, summary(result)).toBeUndefined();
    for (const name of example.sees) expect(result.counts[name], `${name}: ${summary(result)}`).toBeGreaterThan(0);
    expect(result.counts.forgottenInVain, summary(result)).toBe(0);
    if (example.isAnswered) expect(continued).toBeGreaterThan(0);
  });
});

describe('harm is found when', () => {
  it.each(MUTANTS.map((mutant) => [mutant.name, mutant] as const))('%s', (_, mutant) => {
    const { result } = exploreExample(mutant, LIMITS);
    expect(result.violation?.at(-1), summary(result)).toContain(mutant.harm);
  });
});

describe('two owners in step', () => {
  it('make each other void for as long as they stay so, and one that pauses lets the other through', () => {
    const world = worldOf({ requests: REQUESTS.two, hasPairs: false });
    let state = initialState(world);
    const ends = [0, 1].map(() => at(state.workers, 0).index);
    const drafts = [0, 1].map((w) => draftsOf(RULE, world, state, at(ends, w), [w]));
    const isVoid: boolean[] = [];
    const land = (w: number) => {
      const [arrived] = landed(RULE, world, state, at(drafts, w));
      state = arrived ?? state;
      ends[w] = read(RULE, world, at(ends, w), state.entries);
      const verdict = judge(RULE, world, state, at(ends, w), w);
      isVoid.push(verdict === 'draft');
      // Drafted at once: the other's append arrives before this one.
      if (verdict === 'draft') drafts[w] = draftsOf(RULE, world, state, at(ends, w), [w]);
    };
    // A late record of an earlier owner comes first, so that neither lies in place.
    state = { ...state, entries: [...state.entries, { ...at(state.entries, 0), kind: KIND.marker }] };
    for (let round = 0; round < 10; round++) land(round % 2);
    expect(isVoid).toEqual(Array(10).fill(true));
    land(1);
    expect(isVoid.at(-1)).toBe(false);
  });
});

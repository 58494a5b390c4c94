import { describe, expect, it } from 'vitest';
import { summary } from '../search.ts';
import { MUTANTS } from './mutants.ts';
import { isRight } from './product.ts';
import { exploreExample } from './run.ts';
import { DEEP, QUICK } from './worlds.ts';

const LIMITS = { states: 100_000 };

describe('numbers are given once and none is skipped, and one owner alone answers everything, with', () => {
  it.each(QUICK.map((example) => [example.name, example] as const))('%s', (_, example) => {
    const { result, continued } = exploreExample(example, LIMITS);
    expect(result.violation, summary(result)).toBeUndefined();
    for (const name of example.sees) expect(result.counts[name], `${name}: ${summary(result)}`).toBeGreaterThan(0);
    if (example.isAnswered) expect(continued).toBeGreaterThan(0);
  });
});

it("every world in which the rule holds takes its steps from the product's rule", () => {
  const others = [...QUICK, ...DEEP].filter(({ rule }) => !isRight(rule)).map(({ name }) => name);
  expect(others).toEqual([]);
});

describe('harm is found when', () => {
  it.each(MUTANTS.filter(({ isDeep }) => isDeep !== true).map((mutant) => [mutant.name, mutant] as const))(
    '%s',
    (_, mutant) => {
      const { result } = exploreExample(mutant, LIMITS);
      expect(result.violation?.at(-1), summary(result)).toContain(mutant.harm);
    },
  );
});

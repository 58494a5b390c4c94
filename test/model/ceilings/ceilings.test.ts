import { describe, expect, it } from 'vitest';
import { summary } from '../search.ts';
import { exploreCeilings } from './run.ts';
import { MUTANTS, QUICK } from './worlds.ts';

const LIMITS = { states: 100_000 };

describe('no tick is used twice, and a rebuild begins above all that is used, with', () => {
  it.each(QUICK.map((example) => [example.name, example] as const))('%s', (_, example) => {
    const result = exploreCeilings(example, LIMITS);
    expect(result.violation, summary(result)).toBeUndefined();
    for (const name of example.sees) expect(result.counts[name], `${name}: ${summary(result)}`).toBeGreaterThan(0);
  });
});

describe('harm is found when', () => {
  it.each(MUTANTS.filter(({ isDeep }) => isDeep !== true).map((mutant) => [mutant.name, mutant] as const))(
    '%s',
    (_, mutant) => {
      const result = exploreCeilings(mutant, LIMITS);
      expect(result.violation?.at(-1), summary(result)).toContain(mutant.harm);
    },
  );
});

import { expect, test } from 'vitest';
import { fittedExponent, growthOf } from './growth-rate.ts';

test.each([
  ['constant', [5, 5, 5], 0, false],
  ['linear', [1, 10, 100], 1, false],
  ['linear above a constant part', [1_001, 1_010, 1_100], 0.04, false],
  ['quadratic', [1, 100, 10_000], 2, true],
  ['quadratic above a constant part', [1_001, 1_100, 11_000], 1, false],
  ['a step that is steeper than linear', [10, 10, 200], 1.3, true],
  ['falling', [9, 3, 1], -0.48, false],
] as const)('a cost that is %s is told', (_, costs, exponent, isTooSteep) => {
  const growth = growthOf(
    costs.map((cost, i) => [10 ** i, cost] as const),
    1,
  );
  expect(growth.exponent).toBeCloseTo(exponent, 1);
  expect(growth.isTooSteep).toBe(isTooSteep);
});

test('sizes that are close to each other show no growth, nor does one alone', () => {
  expect(
    growthOf(
      [
        [1, 5],
        [3, 50],
      ],
      0,
    ),
  ).toEqual({ exponent: 0, isTooSteep: false });
  expect(growthOf([[1, 5]], 0)).toEqual({ exponent: 0, isTooSteep: false });
});

test.each([
  ['constant', [5, 5, 5, 5], 0],
  ['linear', [1, 10, 100, 1_000], 1],
  ['a square root', [1, 10 ** 0.5, 10, 10 ** 1.5], 0.5],
  ['constant but for chance', [5, 6, 5, 6], 0.016],
] as const)('the exponent that fits a cost that is %s is told', (_, costs, exponent) => {
  expect(fittedExponent(costs.map((cost, i) => [10 ** i, cost] as const))).toBeCloseTo(exponent, 3);
});

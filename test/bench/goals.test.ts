import { describe, expect, test } from 'vitest';
import { judged } from './goals.ts';

const used = (cpu_us: number, requests_per_s: number) => ({ cpu_us, requests_per_s });
const cost = { figure: 'cost', to: 'copy', of: 'cpu_us', goal: 0.35 } as const;
const rate = { figure: 'rate', to: 'copy', of: 'requests_per_s', goal: 2 } as const;

describe('the goals of a worker at saturation', () => {
  test('are reached, missed, or inside the spread of the ratios', () => {
    const reachedOf = (workers: readonly number[]) => {
      const rounds = workers.map((cpu) => ({ worker: used(cpu, 1_000 / cpu), copy: used(10, 100) }));
      return judged(rounds, [cost, rate]).map(({ reached }) => reached);
    };
    expect(reachedOf([3, 3.1, 3.05])).toEqual(['reached', 'reached']);
    expect(reachedOf([6, 6.1, 6.05])).toEqual(['missed', 'missed']);
    expect(reachedOf([3.4, 3.6, 3.5])).toEqual(['cannot tell', 'reached']);
    expect(reachedOf([3])).toEqual(['cannot tell', 'cannot tell']);
  });

  test('have the ratio of each round, not that of the means', () => {
    const rounds = [
      { worker: used(2, 400), copy: used(4, 100) },
      { worker: used(20, 40), copy: used(40, 10) },
    ];
    expect(judged(rounds, [cost, rate])).toMatchObject([
      { ratio: 0.5, low: 0.5, high: 0.5, pairs: 2 },
      { ratio: 4, low: 4, high: 4, pairs: 2 },
    ]);
  });

  test('are left out where a round lacks a contender', () => {
    const rounds = [{ worker: used(2, 400), copy: used(4, 100) }, { worker: used(2, 400) }];
    expect(judged(rounds, [cost])).toEqual([]);
    expect(judged([{ worker: used(Number.NaN, 400), copy: used(4, 100) }], [cost, rate])).toMatchObject([
      { figure: 'rate' },
    ]);
  });

  test("without another contender it is the worker's own figure", () => {
    const own = { figure: 'own', of: 'cpu_us', goal: 8 } as const;
    expect(judged([{ worker: used(4, 1) }, { worker: used(9, 1) }], [own])).toMatchObject([{ ratio: 6, goal: 8 }]);
  });
});

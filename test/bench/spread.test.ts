import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compared, type Pair } from './comparison.ts';
import { isLoss, MOST_PAIRS, spreadOf, verdictOf } from './spread.ts';

const ratios = fc.array(fc.double({ min: 0.01, max: 100, noNaN: true }), { minLength: 2, maxLength: MOST_PAIRS });

describe('the spread of ratios', () => {
  test('is the t-interval of their logarithms, as a table of Student gives it', () => {
    // The logarithms are -0.1, 0 and 0.1: mean 0, standard deviation 0.1; t is 9.925 at two degrees of freedom.
    const { ratio, low, high, pairs } = spreadOf([-0.1, 0, 0.1].map(Math.exp));
    const half = (9.925 * 0.1) / Math.sqrt(3);
    expect(pairs).toBe(3);
    expect(ratio).toBeCloseTo(1, 12);
    expect(Math.log(low)).toBeCloseTo(-half, 12);
    expect(Math.log(high)).toBeCloseTo(half, 12);
  });

  test('has no width if all pairs are equal', () => {
    expect(spreadOf([0.5, 0.5, 0.5])).toMatchObject({ ratio: 0.5, low: 0.5, high: 0.5 });
  });

  test('is unbounded with one pair, so that one pair tells nothing', () => {
    const one = spreadOf([0.1]);
    expect(one).toMatchObject({ low: 0, high: Number.POSITIVE_INFINITY });
    expect(one.ratio).toBeCloseTo(0.1, 12);
    expect(verdictOf(one)).toBe('cannot tell');
    expect(isLoss(one, 0.9)).toBe(false);
  });

  test('contains the mean, does not depend on the order, and turns around with the trees', () => {
    fc.assert(
      fc.property(ratios, (some) => {
        const { ratio, low, high } = spreadOf(some);
        expect(low).toBeLessThanOrEqual(ratio);
        expect(high).toBeGreaterThanOrEqual(ratio);
        const sorted = spreadOf(some.toSorted((one, other) => one - other));
        expect(Math.log(sorted.high)).toBeCloseTo(Math.log(high), 6);
        const turned = spreadOf(some.map((one) => 1 / one));
        expect(Math.log(turned.low)).toBeCloseTo(-Math.log(high), 6);
        expect(Math.log(turned.ratio)).toBeCloseTo(-Math.log(ratio), 6);
      }),
    );
  });

  test('holds the true ratio in about 99 of 100 cases', () => {
    let seed = 1;
    const uniform = () => {
      seed = (seed * 48_271) % 2_147_483_647; // Lehmer's generator: the same numbers in each run
      return seed / 2_147_483_647;
    };
    const normal = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
    const cases = 5_000;
    let held = 0;
    for (let i = 0; i < cases; i += 1) {
      const { low, high } = spreadOf(Array.from({ length: 5 }, () => Math.exp(0.2 * normal())));
      if (low <= 1 && high >= 1) held += 1;
    }
    expect(held / cases).toBeGreaterThan(0.985);
    expect(held / cases).toBeLessThan(0.995);
  });

  test.for([[[]], [[1, 0]], [[1, -1]], [[1, Number.NaN]], [[1, Number.POSITIVE_INFINITY]]])('refuses %j', ([some]) => {
    expect(() => spreadOf(some ?? [])).toThrow(RangeError);
  });

  test('refuses more pairs than its table has', () => {
    expect(() => spreadOf(Array.from({ length: MOST_PAIRS + 1 }, () => 1))).toThrow(/1 to 21 pairs/);
  });
});

describe('the verdict', () => {
  test.for<[string, string, boolean, readonly number[]]>([
    ['better', 'a gain in every pair', false, [1.2, 1.21, 1.19, 1.2]],
    ['worse', 'a small loss in every pair', false, [0.95, 0.96, 0.94, 0.95]],
    ['worse', 'a loss of a fifth in every pair', true, [0.8, 0.81, 0.79, 0.8]],
    ['cannot tell', 'a loss of a fifth that varies as much', false, [0.8, 1, 0.6, 0.8]],
    ['cannot tell', 'pairs around 1', false, [0.98, 1.02, 1, 1.01]],
  ])('is "%s" for %s', ([verdict, , loss, some]) => {
    expect(verdictOf(spreadOf(some))).toBe(verdict);
    expect(isLoss(spreadOf(some), 0.9)).toBe(loss);
  });
});

describe('the comparison of two trees', () => {
  const pairs = (figure: string, here: number, there: number): Pair[] =>
    [1, 1.01, 0.99].map((noise): Pair => [{ [figure]: here * noise }, { [figure]: there * noise }]);

  test('is above 1 where this tree serves more', () => {
    const [found] = compared(pairs('throughput requests_per_s', 200, 100));
    expect(found).toMatchObject({ here: 200, there: 100, verdict: 'better', isLoss: false });
    expect(found?.ratio).toBeCloseTo(2, 9);
  });

  test.for(['throughput cpu_us', 'latency at 1000/s p99_ms', 'idle core_percent', 'index disk_bytes_per_entry'])(
    'is below 1 where %s is higher',
    (figure) => {
      const [found] = compared(pairs(figure, 200, 100), 0.9);
      expect(found?.ratio).toBeCloseTo(0.5, 9);
      expect(found).toMatchObject({ verdict: 'worse', isLoss: true });
    },
  );

  test('takes each figure from the rounds that have it', () => {
    const both = [...pairs('throughput requests_per_s', 1, 1), ...pairs('idle core_percent', 1, 1)];
    expect(compared(both).map(({ figure, pairs: count }) => [figure, count])).toEqual([
      ['throughput requests_per_s', 3],
      ['idle core_percent', 3],
    ]);
  });
});

/** What pairs of measurements show: the ratio, and the interval in which it lies. */
export interface Spread {
  /** The geometric mean of the ratios of the pairs. */
  readonly ratio: number;
  readonly low: number;
  /** Infinity with fewer than two pairs. */
  readonly high: number;
  readonly pairs: number;
}

/** `cannot tell`: the interval contains 1. */
export type Verdict = 'better' | 'worse' | 'cannot tell';

/** How the interval is computed, for whoever reads the figures. */
export const METHOD =
  '99 % t-interval of the logarithms of the ratios of pairs (Georges, Buytaert and Eeckhout, OOPSLA 2007; Kalibera and Jones, ISMM 2013)';

/** Student's t for 99 % on both sides together, by degrees of freedom from 1 on. */
// biome-ignore format: a table
const T_99 = [
  63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.25, 3.169,
  3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845,
];
/** More pairs than this hardly narrow the interval. */
export const MOST_PAIRS = T_99.length + 1;

/**
 * The spread of the ratios of pairs, which were measured one after the other, so that other load on the machine affects
 * both alike. Ratios multiply, so the mean is geometric: 2 and 0.5 cancel out.
 *
 * @throws RangeError without a ratio, with more than MOST_PAIRS, and for one that is not a positive number.
 */
export function spreadOf(ratios: readonly number[]): Spread {
  const wrong = ratios.find((ratio) => !(ratio > 0 && ratio < Number.POSITIVE_INFINITY));
  if (wrong !== undefined) throw new RangeError(`${wrong} is no ratio of two measurements: both must be above 0`);
  const pairs = ratios.length;
  if (pairs < 1 || pairs > MOST_PAIRS) throw new RangeError(`1 to ${MOST_PAIRS} pairs are needed, not ${pairs}`);
  const logs = ratios.map(Math.log);
  const mean = logs.reduce((sum, log) => sum + log, 0) / pairs;
  const t = T_99[pairs - 2];
  if (t === undefined) return { ratio: Math.exp(mean), low: 0, high: Number.POSITIVE_INFINITY, pairs };
  const variance = logs.reduce((sum, log) => sum + (log - mean) ** 2, 0) / (pairs - 1);
  const half = t * Math.sqrt(variance / pairs);
  return { ratio: Math.exp(mean), low: Math.exp(mean - half), high: Math.exp(mean + half), pairs };
}

/** What the interval shows. Above 1 is better. */
export function verdictOf({ low, high }: Spread): Verdict {
  if (low > 1) return 'better';
  return high < 1 ? 'worse' : 'cannot tell';
}

/** True if even the upper end of the interval is below `least`: a loss that the spread does not explain. */
export function isLoss({ high }: Spread, least: number): boolean {
  return high < least;
}

/** A bound of an interval, for people; few or very different pairs have intervals that say nothing. */
export function boundText(bound: number): string {
  return bound < 100 ? bound.toFixed(2) : '100+';
}

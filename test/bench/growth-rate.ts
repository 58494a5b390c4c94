/** How a cost grows with a size. */
export interface Growth {
  /** The steepest exponent between two sizes: 0 is constant, 1 linear, 2 quadratic. */
  readonly exponent: number;
  /** Steeper than it may be. */
  readonly isTooSteep: boolean;
}

/** Runs of the same size differ by so much. */
const TOLERANCE = 0.1;
/** Between sizes that are closer, a small difference makes a large exponent. */
const APART = 4;

/**
 * The growth of a cost, which may have an exponent of `most`, from points of increasing size. The steepest step counts,
 * since a constant part hides growth at small sizes.
 */
export function growthOf(points: readonly (readonly [size: number, cost: number])[], most: number): Growth {
  const steps = points.flatMap(([before, less], i) =>
    points
      .slice(i + 1)
      .filter(([size]) => size >= APART * before)
      .map(([size, cost]) => Math.log(cost / less) / Math.log(size / before)),
  );
  const exponent = steps.length === 0 ? 0 : Math.max(...steps);
  return { exponent, isTooSteep: exponent > most + TOLERANCE };
}

/**
 * The exponent that fits all points best, from two points on. Where single points differ by chance, it says more than
 * the steepest step.
 */
export function fittedExponent(points: readonly (readonly [size: number, cost: number])[]): number {
  const logs = points.map(([size, cost]) => [Math.log(size), Math.log(cost)] as const);
  const mean = (at: 0 | 1) => logs.reduce((sum, point) => sum + point[at], 0) / logs.length;
  const [meanSize, meanCost] = [mean(0), mean(1)];
  const spread = logs.reduce((sum, [size]) => sum + (size - meanSize) ** 2, 0);
  return logs.reduce((sum, [size, cost]) => sum + (size - meanSize) * (cost - meanCost), 0) / spread;
}

import { seeded } from './seeded.ts';

/**
 * How many examples a test takes that spends more than about a second on them. `npm test` takes a share, other ones for
 * each commit; the long suite takes all. Whatever imports this file is run again by the long suite:
 * `IDALLOC_EXAMPLES=all vitest related --run --project unit test/support/examples.ts`.
 */

/** One of so many examples is taken in a short run. */
const SHARE = 10;

/** Whether all examples are taken: IDALLOC_EXAMPLES=all. */
export const ALL_EXAMPLES = process.env.IDALLOC_EXAMPLES === 'all';

/** The number of examples to take of `all`: a tenth in a short run, but at least `least`. */
export function examples(all: number, least = 10): number {
  return ALL_EXAMPLES ? all : Math.min(all, Math.max(least, Math.ceil(all / SHARE)));
}

/**
 * The examples to take of a list, in its order: consecutive ones from a place that depends on the seed of the run in a
 * short one. A test names the example that it fails with, so that `IDALLOC_EXAMPLES=all vitest run FILE -t NAME`
 * repeats it.
 */
export function examplesOf<T>(all: readonly T[], least = 10): readonly T[] {
  const from = ALL_EXAMPLES ? 0 : seeded('examples').below(all.length);
  const count = examples(all.length, least);
  return all.filter((_, i) => (i - from + all.length) % all.length < count);
}

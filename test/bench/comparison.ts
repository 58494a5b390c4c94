import { isLoss, type Spread, spreadOf, type Verdict, verdictOf } from './spread.ts';
import { median } from './stage.ts';
import { type Figures, isCost } from './tree-benches.ts';

/** One figure of two trees. */
export interface Compared extends Spread {
  readonly figure: string;
  /** The medians of the rounds. */
  readonly here: number;
  readonly there: number;
  readonly verdict: Verdict;
  /** Below the least ratio that was asked for, and the spread does not explain it. */
  readonly isLoss: boolean;
}

/** The figures of a round: those of this tree, and those of the other. */
export type Pair = readonly [here: Figures, there: Figures];

/**
 * Every figure that the pairs have, in the order in which they have them. A ratio above 1 says that this tree is
 * better.
 */
export function compared(pairs: readonly Pair[], failBelow = 0): readonly Compared[] {
  const names = [...new Set(pairs.flatMap(([here]) => Object.keys(here)))];
  return names.map((figure) => {
    const both = pairs.flatMap(([here, there]) => {
      const [one, other] = [here[figure], there[figure]];
      return one === undefined || other === undefined ? [] : [[one, other] as const];
    });
    const spread = spreadOf(both.map(([one, other]) => (isCost(figure) ? other / one : one / other)));
    return {
      figure,
      here: median(both.map(([one]) => one)),
      there: median(both.map(([, other]) => other)),
      ...spread,
      verdict: verdictOf(spread),
      isLoss: isLoss(spread, failBelow),
    };
  });
}

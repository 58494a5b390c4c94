import { GOAL_WORKER_US } from '../../ops/capacity/goals.ts';
import { type Spread, spreadOf } from './spread.ts';

/** What one contender used in one round. */
interface Used {
  readonly requests_per_s: number;
  /** Processor time for each request, in microseconds. */
  readonly cpu_us: number;
}

/** A figure of a worker at saturation, or its ratio to another contender's, and what it is to be. */
interface Goal {
  readonly figure: string;
  /** Undefined: the worker's figure itself. */
  readonly to?: string;
  readonly of: keyof Used;
  readonly goal: number;
}

/** With requests of one ID. Of the rate more is better, of the processor time less. */
const GOALS: readonly Goal[] = [
  { figure: 'processor time, µs', of: 'cpu_us', goal: GOAL_WORKER_US },
  { figure: "processor time to the copy loop's", to: 'copy', of: 'cpu_us', goal: 0.35 },
  { figure: "requests/s to the copy loop's", to: 'copy', of: 'requests_per_s', goal: 2 },
  { figure: "requests/s to the wire loop's", to: 'wire', of: 'requests_per_s', goal: 0.6 },
  { figure: "requests/s to the Java loop's", to: 'java', of: 'requests_per_s', goal: 1.3 },
];

/** `cannot tell`: the interval contains the goal. */
type Reached = 'reached' | 'missed' | 'cannot tell';

export interface Judged extends Spread {
  readonly figure: string;
  readonly goal: number;
  readonly isCost: boolean;
  readonly reached: Reached;
}

/** The goals of which all rounds have the figures. `rounds`: by the names of the contenders. */
export function judged(rounds: readonly Readonly<Record<string, Used>>[], goals = GOALS): readonly Judged[] {
  return goals.flatMap(({ figure, to, of, goal }) => {
    const values = rounds.map((round) => {
      const [own, other] = [round.worker?.[of] ?? Number.NaN, to === undefined ? 1 : (round[to]?.[of] ?? Number.NaN)];
      return own / other;
    });
    if (values.length === 0 || values.some((value) => !(value > 0))) return [];
    const [spread, isCost] = [spreadOf(values), of === 'cpu_us'];
    return [{ figure, goal, isCost, ...spread, reached: reachedOf(spread, goal, isCost) }];
  });
}

function reachedOf({ low, high }: Spread, goal: number, isCost: boolean): Reached {
  if (isCost ? high <= goal : low >= goal) return 'reached';
  return (isCost ? low > goal : high < goal) ? 'missed' : 'cannot tell';
}

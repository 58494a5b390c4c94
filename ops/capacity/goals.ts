import { table } from '../dev/markdown.ts';
import type { CapacityData } from './data.ts';
import type { Parts } from './page.ts';

/** What a request of one ID is to take a busy worker, in µs of processor time. */
export const GOAL_WORKER_US = 8;
/** From when a request is due until its reply is read, at a tenth of the highest rate. */
const GOAL_AT_A_TENTH = { p50Ms: 5, p99Ms: 20 };

const few = (value: number) => Number(value.toPrecision(3)).toLocaleString('en');

/** The parts of the page that has the goals: what the run shows, beside them. */
export function goalsOf({ date, counts, ways, workers, latency }: CapacityData): Parts {
  // Three parts of a run measure this case.
  const us = [counts[0], ways[0], workers[0]].flatMap((one) => (one === undefined ? [] : [one.workerUs]));
  const tenth = latency.points.find(({ share }) => share === 0.1);
  if (us.length === 0 || tenth === undefined) throw new RangeError('the run lacks a figure that has a goal');
  const [least, most] = [Math.min(...us), Math.max(...us)].map(few);
  const goal = `${GOAL_AT_A_TENTH.p50Ms} and ${GOAL_AT_A_TENTH.p99Ms} ms`;
  return {
    goals: table(
      [`of a worker, on ${date}`, 'seen', 'goal'],
      [
        [
          'processor time of a request',
          least === most ? `${least} µs` : `${least} to ${most} µs`,
          `${GOAL_WORKER_US} µs`,
        ],
        ['at a tenth of the highest rate, p50 and p99', `${few(tenth.p50Ms)} and ${few(tenth.p99Ms)} ms`, goal],
      ],
    ),
  };
}

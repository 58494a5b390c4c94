import type { Request, World } from './rule.ts';
import { NONE } from './state.ts';

/** How worlds are written: what they have beside the smallest one. */

export type Bounds = Partial<Omit<World, 'keys'>>;

function request(correlationId: number, count = 1, change: Partial<Request> = {}): Request {
  return { sequence: 0, correlationId, count, isLater: false, ...change };
}

/** Requests of one sequence, unless they say otherwise. */
export const REQUESTS = {
  one: [request(0, 2)],
  two: [request(0), request(1, 2)],
  three: [request(0), request(1, 2), request(2)],
  equal: [request(0), request(0), request(1)],
  conflict: [request(0), request(1, 2), request(0, 2, { isLater: true })],
  resent: [request(0), request(1), request(0, 1, { isLater: true })],
  besideIds: [request(0, 1, { sequence: NONE }), request(0), request(1, 2)],
  /** Both sequences have a request with the same correlation ID. */
  ofTwo: [request(0), request(0, 2, { sequence: 1 }), request(1)],
} as const;

/** Retention may remove anything, and workers may lose their indexes. */
export const TRIMMED: Bounds = { isTrimmed: true, losesIndexes: true, isStated: true };

/** Two workers, one sequence, and one append that may come late, unless the bounds say otherwise. */
export function worldOf(bounds: Bounds): World {
  const world = {
    requests: REQUESTS.two,
    sequences: 1,
    workers: 2,
    entries: 4,
    strays: 1,
    isGradual: false,
    hasPairs: true,
    isTrimmed: false,
    losesIndexes: false,
    hasOlder: false,
    isStated: false,
    isRenewed: false,
    orders: [],
    hasRefusals: false,
    hasWindows: false,
    ...bounds,
  };
  const { requests } = world;
  const keys = requests.map(({ sequence, correlationId }) =>
    requests.findIndex((other) => other.sequence === sequence && other.correlationId === correlationId),
  );
  return { ...world, keys };
}

import type { World } from './rule.ts';

/** How worlds are written: what they have beside the smallest one. */

export type Bounds = Partial<Omit<World, 'keys' | 'requests'>> & {
  /** Of each key: its sequence, and how many numbers it asks for. */
  readonly keys?: readonly (readonly [sequence: number, count: number])[];
  /** Records of the request topic: a key, or a key that is sent again without a date. */
  readonly sent?: readonly (number | { readonly again: number })[];
};

export const KEYS = {
  two: [
    [0, 1],
    [0, 1],
  ],
  three: [
    [0, 1],
    [0, 1],
    [0, 1],
  ],
  counts: [
    [0, 2],
    [0, 1],
  ],
  ofTwo: [
    [0, 1],
    [1, 1],
  ],
  ofTwoMore: [
    [0, 1],
    [1, 1],
    [0, 1],
  ],
} as const;

/** Two workers, one sequence that is created, two keys; nothing is lost, nothing late. */
export function worldOf({ keys = KEYS.two, sent = keys.map((_, key) => key), ...bounds }: Bounds): World {
  return {
    sequences: 1,
    keys: keys.map(([sequence, count]) => ({ sequence, count })),
    requests: sent.map((record, offset) => {
      const isUndated = typeof record !== 'number';
      const key = isUndated ? record.again : record;
      return { key, since: isUndated ? offset : sent.indexOf(record), isUndated };
    }),
    isGradual: true,
    workers: 2,
    entries: 4,
    draft: 1,
    strays: 0,
    lates: 0,
    foreign: 0,
    prefix: 0,
    orders: [],
    losses: 0,
    keeps: 0,
    isCopied: false,
    wipes: 0,
    isApart: false,
    isQuiet: false,
    trims: 0,
    isRestated: false,
    hasRefusals: false,
    isUpgraded: false,
    hasOlder: false,
    ...bounds,
  };
}

/** All requests are there from the start: what arrives when matters only to the horizon of a loss. */
export const ALL: Bounds = { isGradual: false };
export const ETCD: Bounds = { ...ALL, wipes: 1 };
export const ONE: Bounds = { keys: [[0, 1]], entries: 4 };

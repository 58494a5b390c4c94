import { ALL, type Bounds, ETCD, KEYS, ONE, TAIL, worldOf } from './bounds.ts';
import { RULE, type Rule, type World } from './rule.ts';
import type { Case } from './worker.ts';

/** A world in which the rule holds. */
export interface Example {
  readonly name: string;
  readonly rule: Rule;
  readonly world: World;
  /** Cases that must occur, or nothing was tested. */
  readonly sees: readonly Case[];
  /** Whether it is checked as well that one owner alone answers everything. */
  readonly isAnswered: boolean;
}

function example(name: string, bounds: Bounds, sees: readonly Case[]): Example {
  return { name, rule: RULE, world: worldOf(bounds), sees, isAnswered: true };
}

/** Without the check of answers, in worlds where that would take longest. */
function safe(name: string, bounds: Bounds, sees: readonly Case[]): Example {
  return { ...example(name, bounds, sees), isAnswered: false };
}

const LOST: readonly Case[] = ['loss', 'pending', 'forgotten', 'replied'];
const ORDERED: Bounds = { ...ONE, orders: ['close'] };
const APART: Bounds = { ...ALL, losses: 1, wipes: 1, isApart: true, isQuiet: true };

/** What `npm test` explores. */
export const QUICK: readonly Example[] = [
  example('nothing is lost; late appends', { ...ALL, strays: 1 }, ['replied', 'pending']),
  example('nothing is lost; late swaps', { ...ALL, lates: 1 }, ['replied', 'pending']),
  example('cuts: three keys, two in a draft', { ...ALL, keys: KEYS.three, draft: 2 }, ['pending']),
  example('the log loses its tail', { ...TAIL, entries: 3 }, LOST),
  example('the log loses its tail; resends without a date', { ...TAIL, keys: [[0, 1]], sent: [0, { again: 0 }], entries: 3 }, LOST),
  example('several numbers in steps; the log loses its tail', { ...TAIL, ...ALL, keys: [[0, 2]], orders: ['step 2'], entries: 3 }, ['ordered', ...LOST]),
  example('a sequence is created and the log loses that', { ...TAIL, ...ALL, ...ONE, orders: ['create'], entries: 2 }, ['ordered']),
  example('a sequence is closed; the log loses its tail', { ...TAIL, ...ALL, ...ORDERED, entries: 3 }, ['ordered', ...LOST]),
  example('a sequence is restarted; the log loses its tail', { ...TAIL, ...ALL, ...ONE, orders: ['restart'], entries: 3 }, ['ordered', ...LOST]),
  example('a sequence is closed; etcd loses the head', { ...ETCD, ...ORDERED, entries: 3 }, ['ordered', 'repair']),
  example('two sequences in one head; the log loses its tail', { ...TAIL, ...ALL, sequences: 2, keys: KEYS.ofTwo, entries: 4, draft: 2 }, LOST),
  example('retention trims the log', { ...ALL, ...ONE, trims: 3, entries: 3 }, ['loss', 'again', 'forgotten']),
  example('the log is replaced by a copy', { ...ALL, ...TAIL, isCopied: true, entries: 3 }, LOST),
  example('etcd loses the head', { ...ETCD, entries: 3 }, ['repair', 'stopped']),
  example('each loses, never what the other lost', { ...APART, entries: 3 }, ['repair', 'loss']),
  example('requests are refused for good', { ...ALL, workers: 1, hasRefusals: true, lates: 1, strays: 1 }, ['replied']),
  example('after the version before', { ...ALL, isUpgraded: true, strays: 1 }, ['again', 'repair', 'replied']),
];

/** Minutes. */
export const DEEP: readonly Example[] = [
];

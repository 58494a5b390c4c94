import { ALL, type Bounds, ETCD, KEYS, ONE, worldOf } from './bounds.ts';
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

function example(name: string, bounds: Bounds, sees: readonly Case[], change: Partial<Rule> = {}): Example {
  return { name, rule: { ...RULE, ...change }, world: worldOf(bounds), sees, isAnswered: true };
}

/** Without the check of answers, in worlds where that would take longest. */
function safe(name: string, bounds: Bounds, sees: readonly Case[]): Example {
  return { ...example(name, bounds, sees), isAnswered: false };
}

const LOSES: readonly Case[] = ['loss', 'pending', 'forgotten', 'replied'];
const ORDERS: readonly Case[] = ['ordered', ...LOSES];
const TAIL: Bounds = { ...ALL, losses: 1, entries: 3 };
const ALONE: Bounds = { ...TAIL, workers: 1, entries: 4 };
const APART: Bounds = { ...ALL, losses: 1, wipes: 1, isApart: true, isQuiet: true };
const TRIMMED: Bounds = { ...ALL, trims: 3, isRestated: true, entries: 3 };
const PAIRS: Bounds = { ...TAIL, sequences: 2, keys: KEYS.ofTwo, draft: 2, entries: 4 };
const RESENT: Bounds = { sent: [0, 1, { again: 0 }], keeps: 1 };

/** What `npm test` explores. */
export const QUICK: readonly Example[] = [
  example('nothing is lost; appends that come late and twice', { ...ALL, strays: 1 }, ['replied', 'pending']),
  example('nothing is lost; swaps that come late', { ...ALL, lates: 1 }, ['replied', 'pending']),
  example('cuts: three keys, two in a draft', { ...ALL, keys: KEYS.three, draft: 2 }, ['replied', 'pending']),
  safe('the log loses its tail, two owners', TAIL, LOSES),
  example('the log loses its tail', ALONE, LOSES),
  example('the log loses its tail; late appends', { ...ALONE, strays: 1, entries: 3 }, LOSES),
  example('the log loses its tail; a leader that tells an old end', { ...ALONE, entries: 3 }, LOSES, { endLag: 1 }),
  example('the log loses its tail; a resend without a date', { ...ALONE, ...RESENT, entries: 3 }, LOSES),
  example(
    'several numbers, another step; the log loses its tail',
    { ...ALONE, keys: KEYS.counts, orders: ['step 2'] },
    ORDERS,
  ),
  example('a sequence is created; the log loses its tail', { ...TAIL, ...ONE, orders: ['create'], entries: 2 }, [
    'ordered',
  ]),
  example('a sequence is closed; the log loses its tail', { ...ALONE, orders: ['close'] }, ORDERS),
  example('a sequence is restarted; the log loses its tail', { ...ALONE, orders: ['restart'] }, ORDERS),
  example('a sequence is closed; etcd loses the head', { ...ETCD, ...ONE, orders: ['close'], entries: 3 }, [
    'ordered',
    'repair',
    'stopped',
  ]),
  example(
    'two sequences in one head; the log loses its tail',
    { ...ALONE, sequences: 2, keys: KEYS.ofTwo, draft: 2 },
    LOSES,
  ),
  example('retention takes what it likes', { ...TRIMMED, ...ONE, workers: 1 }, ['loss', 'again', 'forgotten']),
  example('the log is replaced by a copy', { ...ALONE, isCopied: true }, LOSES),
  example('etcd loses the head', { ...ETCD, entries: 3 }, ['repair', 'stopped', 'replied']),
  safe('retention, and etcd loses the head', { ...ETCD, trims: 1, isRestated: true, workers: 1, entries: 3 }, [
    'repair',
    'again',
    'stopped',
    'replied',
  ]),
  example('each loses, never what the other lost', { ...APART, workers: 1, entries: 3 }, ['repair', 'loss', 'replied']),
  example('requests are refused for good', { ...ALL, workers: 1, hasRefusals: true, lates: 1, strays: 1 }, ['replied']),
  example('after the version before', { ...ALL, isUpgraded: true, entries: 3 }, ['again', 'repair', 'replied']),
];

/** Minutes. */
export const DEEP: readonly Example[] = [
  example('the log loses its tail, two owners: who answers', TAIL, LOSES),
  safe('the log loses its tail, two owners; late appends', { ...TAIL, strays: 1 }, LOSES),
  safe('the log loses its tail, two owners; late swaps', { ...TAIL, lates: 1 }, LOSES),
  safe('the log loses its tail, two owners; records of others', { ...TAIL, foreign: 1 }, LOSES),
  safe('the log loses its tail twice, two owners', { ...TAIL, losses: 2 }, LOSES),
  safe('a sequence is closed; the log loses its tail, two owners', { ...TAIL, orders: ['close'] }, ORDERS),
  safe('a sequence is restarted; the log loses its tail, two owners', { ...TAIL, orders: ['restart'] }, ORDERS),
  safe('two orders; the log loses its tail', { ...ALONE, ...ONE, orders: ['step 2', 'close'], strays: 1 }, ORDERS),
  safe('a closed sequence is created again', { ...ALONE, ...ONE, orders: ['create', 'close', 'create'] }, ORDERS),
  safe('several numbers, another step, two owners', { ...TAIL, keys: KEYS.counts, orders: ['step 2'] }, ORDERS),
  safe('two sequences in one head; etcd loses it', { ...ETCD, sequences: 2, keys: KEYS.ofTwo }, ['repair']),
  safe('two sequences, two in a draft; the log loses its tail, two owners', PAIRS, LOSES),
  safe('retention takes what it likes, two owners', { ...TRIMMED, ...ONE }, ['loss', 'again']),
  safe('retention, and the log loses its tail', { ...ALONE, trims: 2, isRestated: true, entries: 3 }, [
    'loss',
    'again',
  ]),
  safe('the log is replaced by a copy; late appends', { ...ALONE, isCopied: true, strays: 1, entries: 3 }, LOSES),
  safe('retention, and etcd loses the head, two owners', { ...ETCD, trims: 1, isRestated: true, entries: 3 }, [
    'repair',
    'stopped',
  ]),
  safe('etcd loses the head; late swaps', { ...ETCD, lates: 1, entries: 3 }, ['repair', 'stopped']),
  safe('etcd loses the head; late appends', { ...ETCD, strays: 1, entries: 3 }, ['repair', 'stopped']),
  safe('etcd loses the head twice', { ...ETCD, wipes: 2, entries: 3 }, ['repair', 'stopped']),
  safe('a sequence is restarted; etcd loses the head', { ...ETCD, orders: ['restart'], entries: 3 }, [
    'ordered',
    'repair',
  ]),
  safe('each loses, never what the other lost, two owners', { ...APART, entries: 3 }, ['repair', 'loss', 'replied']),
  example('after the version before; late swaps', { ...ALL, isUpgraded: true, lates: 1, entries: 3 }, [
    'again',
    'repair',
  ]),
];

import { type Bounds, REQUESTS, TRIMMED, worldOf } from './bounds.ts';
import { RULE, type Rule, type World } from './rule.ts';
import type { Case } from './worker.ts';

/** A world in which the rule holds. */
export interface Example {
  readonly name: string;
  readonly rule: Rule;
  readonly world: World;
  /** Cases that must occur, or nothing was tested. */
  readonly sees: readonly Case[];
  /** Whether answers are checked as well: from each state on, one owner answers everything. */
  readonly isAnswered?: boolean;
}

const OVERLAP: Bounds = { entries: 4 };
const SINGLES: Bounds = { ...OVERLAP, hasPairs: false };
const TRIM: Bounds = { ...TRIMMED, hasPairs: false };
const ONE_OWNER: Bounds = { ...TRIM, workers: 1 };

function example(name: string, bounds: Bounds, sees: readonly Case[], change: Partial<Rule> = {}): Example {
  return { name, rule: { ...RULE, ...change }, world: worldOf(bounds), sees };
}

function answered(name: string, bounds: Bounds, sees: readonly Case[]): Example {
  return { ...example(name, bounds, sees), isAnswered: true };
}

/** What `npm test` explores. */
export const QUICK: readonly Example[] = [
  answered('two owners, appends that come late and twice', { ...OVERLAP, requests: REQUESTS.three }, [
    'void',
    'replied',
  ]),
  answered('one key in several requests', { ...OVERLAP, requests: REQUESTS.equal }, ['void', 'replied']),
  answered('one key with two counts', { ...OVERLAP, requests: REQUESTS.conflict }, ['void', 'conflict']),
  answered('IDs beside a sequence', { ...OVERLAP, requests: REQUESTS.besideIds }, ['void', 'replied']),
  answered('two sequences', { ...SINGLES, sequences: 2, requests: REQUESTS.ofTwo, entries: 5 }, ['void', 'replied']),
  answered('a restart under load', { ...SINGLES, orders: ['restart'] }, ['void']),
  answered('another step', { ...SINGLES, orders: ['step 2'] }, ['void']),
  answered('a largest number', { ...SINGLES, orders: ['max'] }, ['void', 'SEQUENCE_EXHAUSTED']),
  answered('a sequence that is closed', { ...SINGLES, orders: ['close'] }, ['void', 'SEQUENCE_CLOSED']),
  answered('two orders at once', { ...SINGLES, strays: 2, requests: REQUESTS.one, orders: ['step 2', 'close'] }, [
    'SEQUENCE_CLOSED',
  ]),
  answered('statements of workers', { ...SINGLES, isStated: true }, ['void']),
  answered('a trimmed log and lost indexes', { ...ONE_OWNER, isGradual: true, entries: 4 }, [
    'repliedAfterLoss',
    'draftedAfterLoss',
    'FORGOTTEN',
    'UNKNOWN_SEQUENCE',
  ]),
  example('a trimmed log, two owners', { ...TRIM, requests: REQUESTS.one, entries: 3 }, [
    'repliedAfterLoss',
    'FORGOTTEN',
  ]),
  example('renewals', { ...ONE_OWNER, requests: REQUESTS.resent, isRenewed: true, strays: 0, entries: 4 }, [
    'repliedFromRenewal',
    'FORGOTTEN',
  ]),
  answered(
    'a sequence created again',
    { ...ONE_OWNER, strays: 1, entries: 3, isGradual: true, orders: ['create again'] },
    ['UNKNOWN_SEQUENCE', 'draftedAfterLoss'],
  ),
  example('indexes from earlier', { ...SINGLES, workers: 1, hasOlder: true }, ['void', 'replied']),
  example('what one owner refused', { ...SINGLES, workers: 1, hasRefusals: true, losesIndexes: true, entries: 4 }, [
    'void',
  ]),
  example('windows of time', { ...SINGLES, workers: 1, hasWindows: true }, ['void']),
];

/** Minutes, and some gigabytes. */
export const DEEP: readonly Example[] = [
  example('two owners, appends that come late and twice, more records', { requests: REQUESTS.three, entries: 5 }, [
    'void',
  ]),
  example('one key with two counts, more records', { requests: REQUESTS.conflict, entries: 5 }, ['void', 'conflict']),
  example('IDs beside a sequence, more records', { requests: REQUESTS.besideIds, entries: 5 }, ['void']),
  example('two sequences, pairs', { sequences: 2, requests: REQUESTS.ofTwo, entries: 6 }, ['void']),
  example('two sequences, trimmed', { ...ONE_OWNER, sequences: 2, requests: REQUESTS.ofTwo, entries: 5 }, ['void']),
  example('a trimmed log, two owners, more records', { ...TRIM, requests: REQUESTS.one, entries: 4 }, ['FORGOTTEN']),
  example('a trimmed log, two owners, two requests', { ...TRIM, entries: 4 }, ['FORGOTTEN', 'UNKNOWN_SEQUENCE']),
  example('a trimmed log, two owners, pairs', { ...TRIMMED, entries: 4 }, ['FORGOTTEN']),
  example('renewals, two owners', { ...TRIM, requests: REQUESTS.resent, isRenewed: true, strays: 0, entries: 4 }, [
    'repliedFromRenewal',
  ]),
  example('restarts, two owners, trimmed', { ...TRIM, requests: REQUESTS.one, entries: 4, orders: ['restart'] }, [
    'void',
  ]),
  example('a step and a close, trimmed', { ...ONE_OWNER, strays: 1, entries: 4, orders: ['step 2', 'close'] }, [
    'void',
  ]),
  example(
    'a sequence created again, two owners',
    { ...TRIM, requests: REQUESTS.one, entries: 4, orders: ['create again'] },
    [],
  ),
  example('indexes from earlier, two owners', { ...SINGLES, hasOlder: true, isStated: true }, ['void']),
  example('indexes from earlier, trimmed', { ...TRIM, requests: REQUESTS.one, entries: 3, hasOlder: true }, []),
  example(
    'what one owner refused, more late appends',
    { ...SINGLES, workers: 1, hasRefusals: true, losesIndexes: true, strays: 2, entries: 5 },
    ['void'],
  ),
  example('windows of time, two owners, trimmed', { ...TRIM, requests: REQUESTS.one, hasWindows: true, entries: 4 }, [
    'void',
  ]),
  example('rejected: the total of the winners, nothing trimmed', { requests: REQUESTS.three, entries: 5 }, [], {
    counting: 'total',
  }),
  example('rejected: the total, with doubt', { ...TRIM, strays: 0, entries: 4 }, [], {
    counting: 'total',
  }),
  example('rejected: predecessors, with doubt', { ...TRIM, strays: 0, entries: 4 }, [], {
    counting: 'chained',
  }),
];

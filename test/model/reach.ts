/**
 * The model of the rule by which a correlation ID has one batch over all partitions, also when the ledger has lost what
 * it decided (docs/internals/reach-by-time.md).
 *
 * It allows more than a cluster does: any record may be read again at any time (offsets are reset to any place, members
 * overlap); any append may be stamped by any broker's clock (leaders move); each of a worker's partitions may lose its
 * index separately; entries are trimmed one by one.
 */
import type { Rule, World } from './rule.ts';

/** The real rule, with the smallest margin above what it must cover, here a skew of one tick. */
export const RULE: Rule = {
  margin: 2,
  since: 'oldest',
  trimmedAgeApplies: 'once',
  byTime: 'copies',
  byOffset: true,
  timeOf: 'origin',
  resend: 'origin',
  elsewhere: 'forward',
  afterLoss: 'unknown',
  expiryRaises: true,
  futureForgotten: true,
  entryTime: 'of both',
  sinceFalls: 'with anchors',
  losersForgotten: true,
};

/** T is checked for all requests, and offsets are not: this has far fewer states. */
export const TIME_ALONE: Rule = { ...RULE, byTime: 'all', byOffset: false };
/** T and offsets are checked for all requests. */
const BOTH: Rule = { ...RULE, byTime: 'all' };

/** Nothing younger than the margin is trimmed. */
export const DATED: Rule = { ...TIME_ALONE, margin: 3, trimmedAge: 3 };

/** One correlation ID, and markers, at one worker. */
export const ONE: World = {
  homes: [0],
  until: 1,
  skew: 1,
  excess: 0,
  records: 2,
  entries: 3,
  strays: 0,
  workers: 1,
};

/** Two correlation IDs, of which the records of one carry forged origins. */
export const FORGED: World = { ...ONE, entries: 2, homes: [0, 0], forged: 1 };

type Case = readonly [name: string, rule: Rule, world: World];

/** What `npm test` explores. */
export const QUICK: readonly Case[] = [
  ['one worker', RULE, ONE],
  ['one worker, by both', BOTH, ONE],
  ['one worker, by time alone, appends that come late', TIME_ALONE, { ...ONE, strays: 1 }],
  ['two workers, by time alone', { ...TIME_ALONE, margin: 1 }, { ...ONE, skew: 0, workers: 2 }],
  ['clocks that are two apart', { ...TIME_ALONE, margin: 3 }, { ...ONE, until: 2, skew: 2 }],
  ['origins that are one too late', { ...TIME_ALONE, margin: 3 }, { ...ONE, until: 2, excess: 1 }],
  ['a ledger that keeps its entries for a while', DATED, { ...ONE, until: 4, retention: 3 }],
  ['two IDs, one with forged origins', RULE, FORGED],
  ['a broker that is far ahead for one append', RULE, { ...ONE, wrongBy: 6 }],
];

/** Minutes, and some gigabytes. */
export const DEEP: readonly Case[] = [
  ['a broker that is far ahead, appends that come late', TIME_ALONE, { ...ONE, wrongBy: 6, strays: 1 }],
  ['one worker, more entries', TIME_ALONE, { ...ONE, until: 3, entries: 4 }],
  ['two workers, appends that come late', TIME_ALONE, { ...ONE, until: 2, strays: 1, workers: 2 }],
  ['two workers, by offset as well', RULE, { ...ONE, entries: 2, strays: 1, workers: 2 }],
  ['two workers, a ledger that keeps its entries', DATED, { ...ONE, until: 4, retention: 3, workers: 2 }],
  [
    'two workers, clocks and origins',
    { ...TIME_ALONE, margin: 4 },
    { ...ONE, until: 2, skew: 2, excess: 1, workers: 2 },
  ],
  ['two IDs with one home', RULE, { ...ONE, records: 3, homes: [0, 0] }],
  ['two IDs, two homes', TIME_ALONE, { ...ONE, entries: 2, homes: [0, 1] }],
  ['two IDs, one with forged origins', TIME_ALONE, { ...ONE, records: 4, homes: [0, 0], forged: 1 }],
];

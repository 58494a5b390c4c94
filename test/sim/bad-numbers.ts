import type { CheckName } from './checker.ts';
import {
  batchOf,
  entryOf,
  good,
  learnedNumbersOf,
  numbersOf,
  numbersReplyOf,
  numbersRequest,
  opened,
  replyOf,
  request,
  statementOf,
} from './good-history.ts';
import type { History } from './history.ts';

const HOME = numbersOf().partition;
/** The ledger loses the numbers of a good history. */
const loss = { order: 32, partition: HOME, from: 21, end: 22 } as const;
const closed = { edition: 2, first: 3, next: 3, closed: true } as const;
/** Another request for numbers. */
const other = { ...numbersRequest, tag: 'r10', offset: 4, correlationId: 't' };
const twice = [numbersReplyOf(1), numbersReplyOf(1, { offset: 4, key: 't', sent: 44, landed: 45 })];

type Numbers =
  | 'gapless'
  | 'loss stated'
  | 'numbers decided once'
  | 'numbers given once'
  | 'numbers replied'
  | 'surviving numbers once'
  | 'surviving numbers replied'
  | 'surviving replies'
  | 'fleet knew'
  | 'swapped first'
  | 'lost forgotten';

/** Incorrect histories of sequences, and of what survives a loss. */
export const BAD_NUMBERS: Readonly<Record<Numbers & CheckName, Readonly<Record<string, Partial<History>>>>> = {
  gapless: {
    'a number is left out': {
      numbers: [numbersOf(), numbersOf({ order: 32, offset: 22, first: 4, correlationId: 't' })],
    },
    'a number is given out again': {
      numbers: [numbersOf(), numbersOf({ order: 32, offset: 22, first: 2, correlationId: 't' })],
    },
    'numbers are given out before the sequence is stated': { statements: [statementOf({ order: 40, offset: 25 })] },
    'numbers go on after the end': { statements: [statementOf({ max: 1 })] },
    'numbers go on after the sequence is closed': { statements: [statementOf({ closed: true })] },
    'a number is left out after the ledger lost its tail': {
      losses: [loss],
      numbers: [numbersOf(), numbersOf({ order: 33, first: 5, correlationId: 't' })],
    },
    'a number is given out again that the ledger lost': {
      losses: [loss],
      numbers: [numbersOf(), numbersOf({ order: 33, first: 1, correlationId: 't' })],
    },
    'numbers go on after a close that the ledger lost': {
      losses: [{ ...loss, order: 33, from: 22 }],
      statements: [statementOf(), statementOf({ ...closed, order: 32, offset: 22 })],
      numbers: [numbersOf(), numbersOf({ order: 34, offset: 22, first: 3, correlationId: 't' })],
    },
    'a loss skips what was not given out': {
      losses: [loss],
      statements: [statementOf(), statementOf({ order: 33, offset: 21, next: 4, isLoss: true })],
    },
    'an order skips what it does not know': {
      statements: [statementOf(), statementOf({ ...closed, first: 4, next: 4, order: 33, offset: 22 })],
    },
    'a statement sets the sequence back': {
      statements: [statementOf(), statementOf({ order: 40, offset: 25, edition: 2, first: 2, next: 2 })],
    },
    'the sequence is served in another partition': {
      numbers: [numbersOf({ partition: 1 - numbersOf().partition })],
    },
  },
  'numbers decided once': {
    'a correlation ID has two records that count': {
      numbers: [numbersOf(), numbersOf({ order: 32, offset: 22, first: 3 })],
    },
    'a request gets other numbers after the ledger lost its own': {
      losses: [loss],
      numbers: [numbersOf(), numbersOf({ order: 33, offset: 22, first: 3 })],
    },
    'its first record is gone, but a renewal is not': {
      numbers: [
        numbersOf(),
        numbersOf({ order: 32, offset: 22, at: -1 }),
        numbersOf({ order: 34, offset: 23, first: 3 }),
      ],
      trims: [{ order: 33, partition: numbersOf().partition, low: 22 }],
    },
    'its first record is gone, but a second one is not': {
      numbers: [
        numbersOf(),
        numbersOf({ order: 33, offset: 22, first: 3 }),
        numbersOf({ order: 34, offset: 23, first: 5 }),
      ],
      trims: [{ order: 32, partition: HOME, low: 22 }],
    },
    'it gets numbers again that it had before others': {
      numbers: [
        numbersOf(),
        numbersOf({ order: 33, offset: 22, first: 3 }),
        numbersOf({ order: 34, offset: 23, first: 1 }),
      ],
      trims: [{ order: 32, partition: HOME, low: 22 }],
    },
  },
  'numbers given once': {
    'a number is in replies to two requests, after the ledger lost its record': {
      requests: [numbersRequest, other],
      numbers: [numbersOf(), numbersOf({ order: 33, offset: 21, correlationId: 't', requestOffset: 4 })],
      losses: [loss],
      replies: [numbersReplyOf(1), numbersReplyOf(1, { offset: 4, key: 't', sent: 40, landed: 41 })],
    },
    'a worker gives out numbers that its copy knew before it was emptied': {
      learnedNumbers: [learnedNumbersOf()],
      copies: [{ ...opened, order: 18, partition: numbersOf().partition, what: 'emptied' }],
    },
    'a worker gives out numbers that its copy knew at the look-up': {
      learnedNumbers: [learnedNumbersOf({ offset: 20 })],
    },
  },
  'numbers replied': {
    'other numbers were sent': { replies: [numbersReplyOf(2)] },
    'void numbers were sent': { numbers: [numbersOf({ at: 20 })] },
    'they were sent before they were decided': { replies: [numbersReplyOf(1, { sent: 30 })] },
    'a known request was refused': { replies: [numbersReplyOf('UNKNOWN_SEQUENCE')] },
    'IDs were sent': { replies: [replyOf(batchOf(300n), { partition: numbersRequest.partition, offset: 3 })] },
    'CONFLICT without another request': { replies: [numbersReplyOf('CONFLICT')] },
  },
  'loss stated': {
    'numbers go on behind others that the ledger lost': {
      losses: [loss],
      numbers: [numbersOf(), numbersOf({ order: 33, offset: 21, first: 3, correlationId: 't' })],
      replies: [numbersReplyOf(3, { offset: 4, key: 't', sent: 40 })],
    },
    'the loss that is stated is a smaller one': {
      losses: [loss],
      numbers: [numbersOf(), numbersOf({ order: 33, offset: 21, first: 3, correlationId: 't' })],
      statements: [statementOf(), statementOf({ order: 34, offset: 22, next: 2, isLoss: true })],
      replies: [numbersReplyOf(3, { offset: 4, key: 't', sent: 40 })],
    },
  },
  'surviving numbers once': {
    'a number is in two records': {
      numbers: [numbersOf(), numbersOf({ order: 32, offset: 22, first: 2, correlationId: 't' })],
    },
  },
  'surviving numbers replied': {
    'a key got two replies': {
      numbers: [numbersOf(), numbersOf({ order: 32, offset: 22, first: 3 })],
      replies: [numbersReplyOf(1), numbersReplyOf(3)],
    },
    'nothing was decided': { replies: [numbersReplyOf(2)] },
  },
  'surviving replies': {
    'a batch was sent though the ledger had an earlier one': {
      entries: [entryOf(), entryOf({ order: 12, offset: 6, end: 6, batch: batchOf(200n) })],
      replies: [replyOf(batchOf(200n))],
    },
  },
  'fleet knew': {
    'a number is given out again after its loss was stated': {
      requests: [request, numbersRequest, other],
      statements: [statementOf(), statementOf({ order: 40, offset: 21, next: 3, isLoss: true })],
      replies: twice,
    },
  },
  'lost forgotten': {
    'a request is decided again though etcd knew that the ledger had gone further': {
      heads: [{ order: 11, partition: 0, what: 'end', end: 6, through: 0 }],
      losses: [{ order: 12, partition: 0, from: 5, end: 6 }],
      entries: [entryOf(), entryOf({ order: 14, sent: 13, batch: batchOf(200n) })],
    },
  },
  'swapped first': {
    'etcd did not have the numbers': { heads: [] },
    'etcd got them after they were sent': { heads: good().heads.map((head) => ({ ...head, order: 30 })) },
    'etcd had others': { numbers: [numbersOf({ first: 3 })] },
  },
};

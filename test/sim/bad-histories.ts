import { BAD_NUMBERS } from './bad-numbers.ts';
import type { CheckName } from './checker.ts';
import {
  batchOf,
  copyOfUnanswered,
  DECIDED_MS,
  entryOf,
  grantOf,
  issuedOf,
  letterOf,
  numbersRequest,
  opened,
  replyOf,
  request,
  takeOver,
  unansweredTopics,
} from './good-history.ts';
import type { AnsweredStated, History } from './history.ts';
import { FIRST, homeOf } from './pairs.ts';
import { COARSE, LEDGER, RENEW_AFTER_MS } from './setting.ts';

/** A record of the ledger that no worker wrote. */
const FOREIGN = { topic: LEDGER, partition: 0, offset: 0, key: null, value: Buffer.of(0), headers: {}, timestampMs: 0 };

/** All requests of a partition below 2 were answered, a command says. */
const statedOf = (fields: Partial<AnsweredStated> = {}): AnsweredStated => {
  return { order: 3, partition: 0, offset: 2, below: 2, process: 'operator.1', ...fields };
};

/** Incorrect histories, by the check that must find them and by what is wrong. */
export const BAD: Readonly<Record<CheckName, Readonly<Record<string, Partial<History>>>>> = {
  audited: {
    'a record of the ledger is none': {
      topics: { records: [FOREIGN], logs: { ledger: [{ topic: LEDGER, partition: 0, from: 0, to: 1 }] }, nowMs: 0 },
    },
    'a request has no answer': { topics: unansweredTopics() },
    'a request has no answer, though the copy that was forwarded is there': {
      topics: unansweredTopics(),
      requests: [copyOfUnanswered],
    },
    'a request has no answer, though only one of its copies is lost': {
      topics: unansweredTopics(),
      requests: [copyOfUnanswered, { ...copyOfUnanswered, order: 3, offset: 1 }],
      requestLosses: [{ order: 2, partition: 0, from: 0, end: 1, seen: undefined }],
    },
  },
  unique: {
    'two allocations share an ID': {
      issued: [issuedOf(), issuedOf({ order: 6, first: 101n, last: 105n })],
    },
    'two replies contain one ID': {
      replies: [replyOf(batchOf(100n)), replyOf(batchOf(101n), { key: 'd', offset: 1 })],
    },
    'a reply and a response over HTTP contain one ID': {
      overHttp: [{ process: 'm1.1', ranges: [{ first: 101n, count: 3 }], isClosed: false }],
    },
    'two allocations share an ID, of which others lie between': {
      layout: COARSE,
      issued: [
        issuedOf({ first: 1_024n, last: 1_024n + COARSE.step }),
        issuedOf({ order: 6, first: 1_024n + COARSE.step, last: 1_024n + 2n * COARSE.step }),
      ],
    },
  },
  covered: {
    'a tick at the ceiling was issued': { issued: [issuedOf({ tick: 60 })] },
    'a tick was issued without a ceiling': { issued: [issuedOf({ ceiling: undefined })] },
  },
  disjoint: {
    'a ceiling fell': { ceilings: [{ workerId: 1, before: 60, after: 59, aheadMs: 0 }] },
    'a ceiling was deleted': { ceilings: [{ workerId: 1, before: 60, after: undefined, aheadMs: 0 }] },
    'two processes had one term': { grants: [grantOf(), grantOf({ process: 'm1.1' })] },
    'a term started below the end of the previous one': {
      grants: [grantOf(), grantOf({ fence: 11n, from: 59, to: 80 })],
    },
  },
  'near the present': {
    'a ceiling lies far ahead': { ceilings: [{ workerId: 1, before: 40, after: 60, aheadMs: 11_501 }] },
  },
  'compared clocks': {
    'a clock that was behind for too long was used': { mostOffMs: 2_000, grants: [grantOf({ offMs: -2_001 })] },
  },
  'rebuilt over all': {
    'a reservation that a rebuild had not read was used afterwards': {
      rebuilds: [{ order: 5, floor: 80, known: new Map([['1/10', 59]]), isWritten: true }],
    },
    'a term that a rebuild had not read continued': {
      rebuilds: [{ order: 5, floor: 80, known: new Map(), isWritten: true }],
    },
  },
  witnessed: {
    'a reservation was used before its witness': { witnessed: [{ order: 7, workerId: 1, ticks: 60 }] },
    'compaction keeps less than was used': {
      witnessed: [
        { order: 4, workerId: 1, ticks: 60 },
        { order: 9, workerId: 1, ticks: 59 },
      ],
    },
  },
  'one configuration': {
    'workers with two configurations allocated': { grants: [grantOf(), grantOf({ config: 'other' })] },
  },
  refused: {
    'a worker was ready with the ledger of another request topic': { strays: ['m4.1 was ready at 9 ms'] },
  },
  increasing: {
    'IDs fell within a term': {
      issued: [issuedOf(), issuedOf({ order: 6, first: 90n, last: 91n })],
    },
    'IDs fell from one term to the next': {
      issued: [issuedOf({ order: 6 }), issuedOf({ order: 5, fence: 11n, first: 90n, last: 91n })],
    },
  },
  stopped: {
    'a grant came past the deadline': { grants: [grantOf({ sinceRenewalMs: 6_001 })] },
    'a clock that went back was used': { grants: [grantOf({ behindMs: 1 })] },
    'a paused process continued': { grants: [grantOf({ wasPaused: true })] },
  },
  'closed gate': {
    'a closed gate gave IDs': { overHttp: [{ process: 'm0.1', ranges: [{ first: 900n, count: 1 }], isClosed: true }] },
  },
  'no false alarm': {
    'a worker reported a healthy etcd as rolled back': { alarms: [5] },
    'a worker reported it before it happened': { alarms: [5], setBacks: [6] },
  },
  replay: {
    'a reply has a later entry': {
      entries: [entryOf(), entryOf({ order: 11, offset: 6, batch: batchOf(200n) })],
      replies: [replyOf(batchOf(200n))],
    },
    'a reply has an entry whose writer had not read past the lost one': {
      trims: [{ order: 11, partition: 0, low: 6 }],
      entries: [entryOf(), entryOf({ order: 12, offset: 6, batch: batchOf(200n), requestOffset: 1 })],
      replies: [replyOf(batchOf(200n))],
    },
    'a request was decided again after its decision was lost': {
      trims: [{ order: 11, partition: 0, low: 6 }],
      entries: [entryOf(), entryOf({ order: 12, offset: 6, end: 6, batch: batchOf(200n) })],
      replies: [replyOf(batchOf(200n))],
    },
    'a request was decided again by the worker that had sent its batch, which the ledger lost': {
      losses: [{ order: 22, partition: 0, from: 5, end: 6 }],
      entries: [entryOf(), entryOf({ order: 24, sent: 23, batch: batchOf(200n) })],
    },
    'the bytes differ': { replies: [replyOf({ ...batchOf(100n), generatedAtMs: 1 })] },
    'the same request got CONFLICT': { replies: [replyOf('CONFLICT')] },
    'a request was decided again by who claims to have read its decision': {
      entries: [entryOf(), entryOf({ order: 12, sent: 11, offset: 6, end: 6, batch: batchOf(200n) })],
    },
    'a request that was sent again was decided anew': {
      requests: [request, { ...request, tag: 'r2', order: 12, offset: 1, firstSentMs: DECIDED_MS }],
      trims: [{ order: 11, partition: 0, low: 6 }],
      entries: [entryOf(), entryOf({ order: 14, offset: 6, end: 6, requestOffset: 1, batch: batchOf(200n) })],
    },
    'a request got a batch instead of CONFLICT': { requests: [{ ...request, count: 3 }] },
    'FORGOTTEN was sent with a complete ledger': { replies: [replyOf('FORGOTTEN')] },
    'FORGOTTEN was sent above the horizon': {
      requests: [{ ...request, offset: 1, correlationId: 'd' }],
      trims: [{ order: 11, partition: 0, low: 6 }],
      replies: [replyOf('FORGOTTEN', { offset: 1, key: 'd' })],
    },
    'a request that does not expire got EXPIRED': { replies: [replyOf('EXPIRED')] },
    'a reply went to another topic': { replies: [replyOf(batchOf(100n), { topic: 'id.replies.b' })] },
    'a reply answers nothing': { replies: [replyOf(batchOf(100n), { offset: 7 })] },
  },
  ...BAD_NUMBERS,
  final: {
    'an offset was moved before the ledger said what was answered': {
      replays: [{ process: 'operator.1', accepted: 3, partition: 0, to: 0 }],
      answeredStated: [statedOf({ order: 4 })],
    },
    'a second replay says that less was answered': { answeredStated: [statedOf(), statedOf({ order: 4, below: 1 })] },
    'a worker decided what was answered before': {
      answeredStated: [statedOf({ offset: 4 })],
      started: new Map([
        ['operator.1', 1],
        ['m0.1', 2],
      ]),
    },
    'a worker decided a copy of what was answered before': {
      requests: [
        { ...request, partition: 1, offset: 0 },
        { ...request, order: 6, origin: { partition: 1, offset: 0, appendedAtMs: DECIDED_MS }, sender: 'm0.1' },
      ],
      answeredStated: [statedOf({ partition: 1 })],
      started: new Map([
        ['operator.1', 1],
        ['m0.1', 2],
      ]),
    },
    'numbers were given for what was answered before': {
      answeredStated: [statedOf({ order: 29, partition: numbersRequest.partition, below: 4, offset: 20 })],
    },
    'a request was refused as answered that nobody had answered': {
      entries: [],
      answeredStated: [statedOf()],
      replies: [replyOf('ANSWERED_BEFORE')],
    },
  },
  'one answer': {
    'a request got two batches while an entry kept the first': {
      trims: [{ order: 11, partition: 0, low: 5 }],
      replies: [replyOf(batchOf(100n)), replyOf(batchOf(200n), { sent: 23 })],
    },
    'a request that had a batch was forgotten by a ledger that keeps its time': {
      keepsItsTime: true,
      trims: [{ order: 11, partition: 0, low: 6 }],
      replies: [replyOf(batchOf(100n)), replyOf('FORGOTTEN', { sent: 23 })],
    },
  },
  'renewed in time': {
    'a request got a decision that is too old for it': {
      requests: [{ ...request, timestampMs: DECIDED_MS + RENEW_AFTER_MS, offset: 1 }],
      replies: [replyOf(batchOf(100n), { offset: 1 })],
    },
    'a decision was renewed too early': {
      requests: [
        request,
        { ...request, tag: 'r2', timestampMs: DECIDED_MS + RENEW_AFTER_MS - 1, offset: 1, firstSentMs: DECIDED_MS },
      ],
      entries: [entryOf(), entryOf({ order: 12, offset: 6, end: 6, requestOffset: 1 })],
    },
    'a decision was renewed without a request': {
      entries: [entryOf(), entryOf({ order: 12, offset: 6, end: 6, requestOffset: 7 })],
    },
  },
  'one home': {
    'a correlation ID was decided outside its home partition': {
      entries: [entryOf({ partition: 1 - homeOf('c', FIRST) })],
    },
  },
  'honest entries': {
    'an entry claims to know a request that was not decided': { marks: [entryOf({ through: 3 })] },
    'a marker claims requests beyond their end': {
      requestEnds: [{ order: 2, partition: 0, end: 5 }],
      appends: [
        {
          process: 'm0.1',
          started: 1,
          partition: 0,
          sent: 6,
          ended: 11,
          answered: true,
          marks: true,
          decides: false,
          claim: { through: 5, asked: 3 },
        },
      ],
    },
    'a marker claims all requests though there is an anchor': {
      trims: [{ order: 9, partition: 0, low: 5 }],
      marks: [entryOf(), { order: 12, partition: 0, offset: 6, end: 6, through: 9, appendedAtMs: 0 }],
    },
  },
  expired: {
    'a request expired before its time': {
      requests: [{ ...request, expiresAtMs: 1_700_000_002_000 }],
      replies: [replyOf('EXPIRED')],
    },
    'a request was decided long after its time': { requests: [{ ...request, expiresAtMs: 1_699_999_990_000 }] },
  },
  'dead letters': {
    'a good request was dropped': { letters: [letterOf({ offset: 0, code: 'MALFORMED_REQUEST' })] },
    'a dead letter has no request': { letters: [letterOf({})] },
  },
  'decided before replied': {
    'a reply was sent before its entry landed': { replies: [replyOf(batchOf(100n), { sent: 9 })] },
    'a reply has no entry': { entries: [] },
    'CONFLICT was sent before there was an entry to conflict with': {
      requests: [{ ...request, count: 3 }],
      replies: [replyOf('CONFLICT', { sent: 9 })],
    },
  },
  'replied before committed': {
    'an offset was committed before the reply landed': {
      commits: [{ sent: 20, accepted: 31, partition: 0, offset: 1 }],
    },
    'an offset was committed past a request without a reply': {
      requests: [request, { ...request, offset: 1, correlationId: 'd' }],
      commits: [{ sent: 30, accepted: 31, partition: 0, offset: 2 }],
    },
    'an offset was committed past a request at a reused offset, by who had seen the loss': {
      requests: [{ ...request, order: 25, life: 1 }],
      requestLosses: [{ order: 22, partition: 0, from: 0, end: 1, seen: 26 }],
      replies: [],
    },
    'an offset was committed past a request that was dropped later': {
      requests: [request, { ...request, offset: 1, correlationId: 'd' }],
      letters: [letterOf({ sent: 31, landed: 32 })],
      commits: [{ sent: 30, accepted: 31, partition: 0, offset: 2 }],
    },
    'the reply to an equal request was sent before this one was there': {
      requests: [request, { ...request, offset: 1, order: 25 }],
      commits: [{ sent: 30, accepted: 31, partition: 0, offset: 2 }],
    },
    'the reply to an equal request landed after the commit': {
      requests: [request, { ...request, offset: 1 }],
      replies: [replyOf(batchOf(100n)), replyOf(batchOf(100n), { sent: 26, landed: 32, offset: 1 })],
      commits: [
        { sent: 20, accepted: 21, partition: 0, offset: 0 },
        { sent: 20, accepted: 25, partition: 0, offset: 2 },
      ],
    },
    'an equal request expired, and this one does not': {
      requests: [
        { ...request, expiresAtMs: 1_699_999_990_000 },
        { ...request, offset: 1 },
      ],
      replies: [replyOf('EXPIRED')],
      commits: [{ sent: 30, accepted: 31, partition: 0, offset: 2 }],
    },
    'an unread request was lost after the commit': {
      requests: [request, { ...request, offset: 1, correlationId: 'd' }],
      commits: [{ sent: 30, accepted: 31, partition: 0, offset: 2 }],
      requestTrims: [{ order: 32, partition: 0, low: 2 }],
    },
  },
  'own commits': {
    'a member committed an offset of another member': { foreignCommits: ['m0 committed 5 of 1, having 0'] },
  },
  'one append at a time': {
    'an append was sent before the last one ended': {
      appends: [
        { process: 'm0.1', started: 4, partition: 0, sent: 6, ended: 11, answered: true, marks: true, decides: false },
        { process: 'm0.1', started: 4, partition: 0, sent: 10, ended: 12, answered: true, marks: true, decides: false },
      ],
    },
  },
  'marked first': {
    'a decision came before the marker': {
      marks: [entryOf({ order: 3 })],
      appends: [
        { process: 'm0.1', started: 4, partition: 0, sent: 6, ended: 11, answered: true, marks: false, decides: true },
      ],
    },
  },
  'complete copies': {
    'a worker decided before it had read to the end of the log': { copies: [{ ...opened, logEnd: 6 }] },
    'a worker decided with a copy that it had emptied': {
      copies: [opened, { ...opened, what: 'emptied', logEnd: 6 }, { ...opened, what: 'emptied', logEnd: 6 }],
    },
  },
  'honest copies': {
    'a member reported a copy that it does not have': { falseCopies: ['m0.1 reported ledger 0 up to 5'] },
  },
  'synced copies': {
    'a worker saved a copy twice, and synced it after that': { unsynced: ['m0.1 saved ledger 0 again'] },
  },
  'taken over': {
    'a partition with a standby was not served': { takeOvers: [takeOver] },
    'the worker that served it had to restore its copy first': {
      takeOvers: [takeOver],
      entries: [entryOf(), entryOf({ order: 46, process: 'm1.1', correlationId: 'd', offset: 6 })],
      copies: [
        { ...opened, process: 'm1.1', order: 43 },
        { ...opened, process: 'm1.1', order: 45, what: 'restored' },
      ],
    },
  },
  sound: { 'a defect showed': { defects: ['TypeError: x is undefined'] } },
  ready: { 'a worker reported ready, and was not': { falselyReady: ['m0.1 at 5 ms was ready'] } },
  'handed over': {
    'a worker kept a partition that it did not reach': { keptUnreached: ['m0.1 at 5 ms still owned partition 0'] },
  },
  resumed: { 'a worker did not resume': { unresumed: ['m0.1 is still NO_IDENTITY'] } },
  answered: { 'requests were left': { healedMs: undefined } },
};

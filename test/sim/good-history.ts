import { encodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import { DEFAULT_HEADER_NAMES } from '../../src/codec/request-headers.ts';
import type { FinalTopics } from './final-topics.ts';
import {
  type CopyEvent,
  type Entry,
  emptyHistory,
  type Grant,
  type History,
  type Issued,
  type LearnedNumbers,
  type Letter,
  type NumbersEntry,
  type ReplyRecord,
  type SentRequest,
  type StatementEntry,
} from './history.ts';
import { FIRST, homeOf } from './pairs.ts';
import { DEAD_LETTERS, FINE, LEDGER, PARTITIONS, REQUESTS, SEQUENCE, SEQUENCES } from './setting.ts';

const REPLIES = 'id.replies.a';
export const DECIDED_MS = 1_700_000_000_000;

export function batchOf(first: bigint, count = 2): Entry['batch'] {
  return {
    ranges: [{ first, count }],
    step: FINE.step,
    datacenterId: 4,
    workerId: 1,
    fence: 10n,
    epochMs: FINE.epochMs,
    layoutFingerprint: FINE.fingerprint,
    generatedAtMs: 1_700_000_000_000,
  };
}

export function entryOf(fields: Partial<Entry> = {}): Entry {
  const place = { order: 10, partition: 0, offset: 5, correlationId: 'c', end: 5, through: -1, requestOffset: 0 };
  const append = { process: 'm0.1', sent: 9, appendedAtMs: DECIDED_MS };
  return { ...place, ...append, count: 2, replyTopic: REPLIES, batch: batchOf(100n), ...fields };
}

const [SEQUENCE_NAME] = SEQUENCES;
const HOME = homeOf(SEQUENCE_NAME, FIRST);

/** A statement that counts, unless the fields say otherwise. */
export function statementOf(fields: Partial<StatementEntry> = {}): StatementEntry {
  const place = { order: 30, partition: HOME, offset: 20, at: fields.offset ?? 20, end: 0, through: -1 };
  return {
    ...place,
    appendedAtMs: DECIDED_MS,
    sequence: SEQUENCE_NAME,
    ...SEQUENCE,
    isLoss: false,
    ...fields,
  };
}

/** Numbers that count, unless the fields say otherwise. */
export function numbersOf(fields: Partial<NumbersEntry> = {}): NumbersEntry {
  const place = { order: 31, partition: HOME, offset: 21, at: fields.offset ?? 21, end: 21, through: -1 };
  const append = { process: 'm0.1', sent: 29, appendedAtMs: DECIDED_MS, requestOffset: 3, replyTopic: REPLIES };
  return { ...place, ...append, sequence: SEQUENCE_NAME, correlationId: 's', first: 1, count: 2, step: 1, ...fields };
}

/** The writer of those knew that they were given out, unless the fields say otherwise. */
export function learnedNumbersOf(fields: Partial<LearnedNumbers> = {}): LearnedNumbers {
  const place = { order: 17, process: 'm0.1', partition: HOME, offset: 40 };
  return { ...place, sequence: SEQUENCE_NAME, next: 3, ...fields };
}

/** The request that they are for, and its reply. */
export const numbersRequest: SentRequest = {
  order: 28,
  tag: 'r9',
  timestampMs: DECIDED_MS,
  partition: HOME,
  offset: 3,
  correlationId: 's',
  sequence: SEQUENCE_NAME,
  count: 2,
  replyTopic: REPLIES,
};

export function numbersReplyOf(result: number | string, fields: Partial<ReplyRecord> = {}): ReplyRecord {
  const correlationId = Buffer.from('s');
  const error = { code: String(result), message: 'because' };
  const numbers = { sequence: SEQUENCE_NAME, first: Number(result), count: 2, step: 1, format: '' };
  const reply: IdReply = typeof result === 'string' ? { correlationId, error } : { correlationId, numbers };
  return replyOf('', { partition: HOME, offset: 3, key: 's', sent: 35, landed: 36, reply, ...fields });
}

export function issuedOf(fields: Partial<Issued> = {}): Issued {
  const taken = { order: 5, workerId: 1, fence: 10n, from: 40, tick: 50, ceiling: 60 };
  return { ...taken, first: 100n, last: 101n, ...fields };
}

export function grantOf(fields: Partial<Grant> = {}): Grant {
  const since = {
    order: 6,
    process: 'm0.1',
    config: 'usual',
    sinceRenewalMs: 1_000,
    behindMs: 0,
    wasPaused: false,
    offMs: 0,
  };
  return { workerId: 1, fence: 10n, from: 40, to: 60, ...since, ...fields };
}

export function replyOf(result: Entry['batch'] | string, fields: Partial<ReplyRecord> = {}): ReplyRecord {
  const correlationId = Buffer.from('c');
  const error = { code: String(result), message: 'because' };
  const reply: IdReply = typeof result === 'string' ? { correlationId, error } : { correlationId, batch: result };
  const value = encodeIdReply(reply, 'RANGES');
  const sending = { sent: 20, landed: 21, atMs: 1_700_000_001_000, partition: 0, offset: 0, topic: REPLIES, key: 'c' };
  return { ...sending, firstSent: fields.sent ?? sending.sent, process: 'm0.1', value, reply, ...fields };
}

export function letterOf(fields: Partial<Letter>): Letter {
  return { sent: 20, landed: 21, partition: 0, offset: 1, code: 'REPLY_UNDELIVERABLE', isRange: false, ...fields };
}

export const request = {
  order: 1,
  tag: 'r1',
  timestampMs: DECIDED_MS,
  partition: 0,
  offset: 0,
  correlationId: 'c',
  count: 2,
  replyTopic: REPLIES,
};

/** One request, served correctly. */
export function good(): History {
  return {
    ...emptyHistory(),
    requests: [request, numbersRequest],
    issued: [issuedOf()],
    grants: [grantOf()],
    witnessed: [{ order: 4, workerId: 1, ticks: 60 }],
    ceilings: [{ workerId: 1, before: 40, after: 60, aheadMs: 9_000 }],
    entries: [entryOf()],
    statements: [statementOf()],
    learnedNumbers: [learnedNumbersOf({ offset: 21, order: 33 })],
    numbers: [numbersOf()],
    heads: [
      {
        order: 27,
        partition: HOME,
        what: 'pending',
        records: [{ sequence: SEQUENCE_NAME, correlationId: 's', first: 1 }],
      },
    ],
    marks: [entryOf(), statementOf(), numbersOf()],
    appends: [
      { process: 'm0.1', started: 4, partition: 0, sent: 6, ended: 11, answered: true, marks: true, decides: false },
    ],
    replies: [replyOf(batchOf(100n)), numbersReplyOf(1)],
    commits: [{ sent: 30, accepted: 31, partition: 0, offset: 1 }],
    // This one was killed before it wrote anything.
    rebuilds: [{ order: 5, floor: 80, known: new Map(), isWritten: false }],
    healedMs: 5,
  };
}

export const opened: CopyEvent = { order: 2, process: 'm0.1', partition: 0, what: 'opened', logEnd: 0 };
export const takeOver = { order: 40, partition: 0, killed: 'm0.1', held: 44, until: 50, requests: 1 };

/** Topics with one request, in a partition that was added, which nobody has answered. */
export function unansweredTopics(): FinalTopics {
  const place = { topic: REQUESTS, partition: PARTITIONS, offset: 0 } as const;
  const headers = {
    [DEFAULT_HEADER_NAMES.correlationId]: Buffer.from('c'),
    [DEFAULT_HEADER_NAMES.replyTopic]: Buffer.from(REPLIES),
    [DEFAULT_HEADER_NAMES.count]: Buffer.from('2'),
  };
  const spanOf = (topic: string, to: number) => ({ topic, partition: 0, from: 0, to });
  return {
    records: [{ ...place, key: null, value: Buffer.alloc(0), headers, timestampMs: DECIDED_MS }],
    logs: {
      ledger: [spanOf(LEDGER, 0)],
      requests: [spanOf(REQUESTS, 0), { ...spanOf(REQUESTS, 1), partition: PARTITIONS }],
      replies: [spanOf(REPLIES, 0)],
      letters: [spanOf(DEAD_LETTERS, 0)],
    },
    nowMs: DECIDED_MS,
  };
}

/** A copy of that request in the partition that decides it. */
export const copyOfUnanswered: SentRequest = {
  ...request,
  sender: 'm0.1',
  origin: { partition: PARTITIONS, offset: 0, appendedAtMs: DECIDED_MS },
};

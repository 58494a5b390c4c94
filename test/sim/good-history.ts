import { encodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import { emptyHistory } from './empty-history.ts';
import type { CopyEvent, Entry, Grant, History, Issued, Letter, ReplyRecord } from './history.ts';
import { layout } from './setting.ts';

const REPLIES = 'id.replies.a';
export const DECIDED_MS = 1_700_000_000_000;

export function batchOf(first: bigint, count = 2): Entry['batch'] {
  return {
    ranges: [{ first, count }],
    step: layout.step,
    datacenterId: 4,
    workerId: 1,
    fence: 10n,
    epochMs: layout.epochMs,
    layoutFingerprint: layout.fingerprint,
    generatedAtMs: 1_700_000_000_000,
  };
}

export function entryOf(fields: Partial<Entry> = {}): Entry {
  const place = { order: 10, partition: 0, offset: 5, correlationId: 'c', end: 5, through: -1, requestOffset: 0 };
  const append = { process: 'm0.1', sent: 9, appendedAtMs: DECIDED_MS };
  return { ...place, ...append, count: 2, replyTopic: REPLIES, batch: batchOf(100n), ...fields };
}

export function issuedOf(fields: Partial<Issued> = {}): Issued {
  const taken = { order: 5, workerId: 1, fence: 10n, from: 40, tick: 50, ceiling: 60 };
  return { ...taken, first: 100n, last: 101n, ...fields };
}

export function grantOf(fields: Partial<Grant> = {}): Grant {
  const since = { order: 6, process: 'm0.1', config: 'usual', sinceRenewalMs: 1_000, behindMs: 0, wasPaused: false };
  return { workerId: 1, fence: 10n, from: 40, to: 60, ...since, ...fields };
}

export function replyOf(result: Entry['batch'] | string, fields: Partial<ReplyRecord> = {}): ReplyRecord {
  const correlationId = Buffer.from('c');
  const error = { code: String(result), message: 'because' };
  const reply: IdReply = typeof result === 'string' ? { correlationId, error } : { correlationId, batch: result };
  const value = encodeIdReply(reply, 'RANGES');
  const sending = { sent: 20, landed: 21, atMs: 1_700_000_001_000, partition: 0, offset: 0, topic: REPLIES, key: 'c' };
  return { ...sending, process: 'm0.1', value, reply, ...fields };
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
    requests: [request],
    issued: [issuedOf()],
    grants: [grantOf()],
    ceilings: [{ workerId: 1, before: 40, after: 60, aheadMs: 9_000 }],
    entries: [entryOf()],
    marks: [entryOf()],
    appends: [{ process: 'm0.1', started: 4, partition: 0, sent: 6, ended: 11, answered: true, marks: true }],
    replies: [replyOf(batchOf(100n))],
    commits: [{ sent: 30, accepted: 31, partition: 0, offset: 1 }],
    healedMs: 5,
  };
}

export const opened: CopyEvent = { order: 2, process: 'm0.1', partition: 0, what: 'opened', logEnd: 0 };
export const takeOver = { order: 40, partition: 0, killed: 'm0.1', until: 50, requests: 1 };

import {
  offsetsAtTime,
  partitionsOf,
  readRecord,
  type Source,
  type Span,
  type TopicRecord,
  wholePartition,
  wholeTopic,
} from '../../adapters/kafka/topics/spans.ts';
import type { IdBatch } from '../../codec/id-batch.ts';
import { decodeIdReply } from '../../codec/id-reply.ts';
import { countsAt, type DecidingEntry, decodeLedgerEntry, type LedgerBatchEntry } from '../../codec/ledger-entry.ts';
import { decodeLedgerKey } from '../../codec/ledger-key.ts';
import { DEFAULT_HEADER_NAMES, readRequestId } from '../../codec/request-headers.ts';
import type { LedgerNumbers } from '../../codec/sequence-entry.ts';
import { IdallocError, unlessInvalid } from '../../errors.ts';
import { hasDecision } from '../../ledger/decided.ts';
import { type KafkaSession, noneIfGone, readShown } from '../kafka-session.ts';
import { homePartition, sequenceRecord } from '../sequence/sequence-log.ts';

/** A ledger entry of IDs, and its place. */
export interface TracedEntry {
  readonly record: TopicRecord;
  /** What names the request: its request ID, or else its correlation ID. */
  readonly requestId: Buffer;
  readonly entry: LedgerBatchEntry;
  /** The offset of the earlier entry that decided; the IDs of this one were never delivered. */
  readonly loserTo: number | undefined;
  /** The log before it was deleted, perhaps with the entry that decided. */
  readonly doubtful: boolean;
}

/** An entry is appended after its IDs are allocated; the clocks of worker and broker may differ by this. */
const CLOCK_MS = 5_000;
/** How long an append usually takes at most, and how late a delayed copy may arrive. */
const NEAR_MS = 60_000;
const FAR_MS = 15 * 60_000;
/** The reply to an entry follows it directly; later ones come from replays. */
const REPLY_MS = 60_000;
/** A reply's timestamp is its entry's append time, in whole milliseconds. */
const ROUNDING_MS = 1_000;

/**
 * The ledger entry of an ID that was allocated at `timeMs`; undefined if none was appended up to 15 minutes later.
 */
export async function findEntry(session: KafkaSession, id: bigint, timeMs: number): Promise<TracedEntry | undefined> {
  const near = await findBetween(session, id, timeMs - CLOCK_MS, timeMs + NEAR_MS);
  return near ?? (await findBetween(session, id, timeMs + NEAR_MS, timeMs + FAR_MS));
}

/** The spans of a topic between two times, by the records' timestamps. */
async function spansBetween(source: Source, topic: string, fromMs: number, toMs: number): Promise<Span[]> {
  const [whole, starts, ends] = await Promise.all([
    wholeTopic(source, topic),
    offsetsAtTime(source, topic, fromMs),
    offsetsAtTime(source, topic, toMs),
  ]);
  return whole.map((span) => {
    const { partition } = span;
    return { ...span, from: starts.get(partition) ?? span.from, to: ends.get(partition) ?? span.to };
  });
}

async function findBetween(
  session: KafkaSession,
  id: bigint,
  fromMs: number,
  toMs: number,
): Promise<TracedEntry | undefined> {
  const { ledger } = session.config.topics;
  const spans = await spansBetween(session.source, ledger, fromMs, toMs);
  let found: { record: TopicRecord; entry: LedgerBatchEntry } | undefined;
  await readShown(session, spans, 'searching', (record) => {
    const entry = batchEntry(record);
    if (entry === undefined || indexOf(entry.batch, id) < 0) return false;
    found = { record, entry };
    return true;
  });
  if (found === undefined) return undefined;
  const { record, entry } = found;
  const start = (await wholeTopic(session.source, ledger)).find(
    ({ partition }) => partition === record.partition,
  )?.from;
  const requestId = decodeLedgerKey(record.key ?? Buffer.alloc(0));
  const loserTo = await findWinner(session, record, entry);
  return { record, entry, requestId, loserTo, doubtful: entry.end < (start ?? 0) };
}

/**
 * The offset of an earlier entry with the same key. The writer of `entry` had read the ledger to `end` without finding
 * one, so it can only be after that.
 */
async function findWinner(
  session: KafkaSession,
  { topic, partition, offset, key }: TopicRecord,
  entry: LedgerBatchEntry,
): Promise<number | undefined> {
  let winner: number | undefined;
  await readShown(session, [{ topic, partition, from: entry.end, to: offset }], 'searching', (record) => {
    if (key === null || record.key === null || !record.key.equals(key)) return false;
    winner = record.offset;
    return true;
  });
  return winner;
}

/**
 * The ledger partitions in which the decision for a name may lie. Workers choose by REQUEST_PARTITIONS, and this
 * command is often run without it; the topic's own count is another one if partitions were added to it.
 */
export async function homesOf({ source, config }: KafkaSession, name: string | Buffer): Promise<readonly number[]> {
  const { ledger, requestPartitions } = config.topics;
  const all = await partitionsOf(source, ledger);
  const homes = [Math.min(requestPartitions, all), all].map((count) => homePartition(name, count));
  return [...new Set(homes)];
}

/** What the ledger decided for a key. */
interface DecidedEntry {
  readonly record: TopicRecord;
  readonly entry: DecidingEntry;
}

/**
 * The entry that decides a key, by the rule of workers. Undefined if the log has no entry of the key. Reads a partition
 * up to that entry.
 *
 * @throws IdallocError FORGOTTEN if the log has only entries that did not decide; LEDGER_UNREADABLE.
 */
export async function findDecision(
  session: KafkaSession,
  partition: number,
  key: Buffer,
): Promise<DecidedEntry | undefined> {
  const { source, config } = session;
  const whole = await wholePartition(source, config.topics.ledger, partition);
  let before = -1;
  let found: DecidedEntry | undefined;
  await readShown(session, [whole], 'searching', (record) => {
    if (record.key?.equals(key) !== true) return false;
    const entry = decodeLedgerEntry(record.value ?? Buffer.alloc(0), record.headers);
    if (entry.kind !== 'batch' && entry.kind !== 'numbers') return false;
    if (!countsAt(entry, record.offset)) return false;
    if (hasDecision(entry, before, whole.from)) found = { record, entry };
    before = record.offset;
    return found !== undefined;
  });
  if (found !== undefined || before < 0) return found;
  const message = `ledger partition ${partition} no longer has the entry that decided this: it is older than the ledger, and what came after it, such as at ${before}, decided nothing`;
  throw new IdallocError('FORGOTTEN', message);
}

/** A record of numbers that has the one that is wanted. */
export interface TracedNumber {
  readonly record: TopicRecord;
  readonly requestId: Buffer;
  readonly entry: LedgerNumbers;
}

/**
 * The record that gave out a number of a sequence. Reads the home partition of the sequence up to it.
 *
 * @throws IdallocError NOT_FOUND if the ledger has no such record.
 */
export async function findNumber(session: KafkaSession, sequence: string, number: number): Promise<TracedNumber> {
  const { ledger } = session.config.topics;
  const homes = await homesOf(session, sequence);
  const spans = await Promise.all(homes.map((home) => wholePartition(session.source, ledger, home)));
  let found: TracedNumber | undefined;
  await readShown(session, spans, 'searching', (record) => {
    const read = sequenceRecord(record);
    if (read?.requestId === undefined || read.sequence !== sequence) return false;
    const { requestId, entry } = read;
    const place = (number - entry.first) / entry.step;
    const isIn = Number.isInteger(place) && place >= 0 && place < entry.count;
    if (isIn && countsAt(entry, record.offset)) found = { record, requestId, entry };
    return found !== undefined;
  });
  if (found !== undefined) return found;
  throw new IdallocError(
    'NOT_FOUND',
    `'${ledger}' has no record that gave out ${number} of ${sequence}: it was not given out, or is older than the ledger`,
  );
}

/** The replies to an entry: those near its time, or with `all` every one since then, replayed ones included. */
export async function findReplies(session: KafkaSession, traced: TracedEntry, all: boolean): Promise<TopicRecord[]> {
  const { timestampMs } = traced.record;
  const { replyTopic } = traced.entry;
  const toMs = all ? Number.MAX_SAFE_INTEGER : timestampMs + REPLY_MS;
  const spans = await spansBetween(session.source, replyTopic, timestampMs - ROUNDING_MS, toMs).catch(noneIfGone);
  const replies: TopicRecord[] = [];
  await readShown(session, spans, 'searching', (record) => {
    const requestId = ownRequestId(record) ?? record.key;
    if (requestId?.equals(traced.requestId) === true) replies.push(record);
    return replies.length >= MAX_REPLIES;
  });
  return replies;
}

const MAX_REPLIES = 100;

/** The request ID of a reply or a request; undefined if its correlation ID names it. */
export function ownRequestId({ headers }: TopicRecord): Buffer | undefined {
  return unlessInvalid(() => readRequestId(headers, DEFAULT_HEADER_NAMES));
}

/** The request, if its topic still has it. */
export async function findRequest(
  session: KafkaSession,
  { record, entry }: TracedEntry,
): Promise<TopicRecord | undefined> {
  const { context, source, config } = session;
  const location = { partition: record.partition, offset: entry.requestOffset };
  return readRecord(source, config.topics.requests, location, context.stop);
}

/** Whether a reply has the ID; undefined if it is an error or can't be read. */
export function agrees({ value }: TopicRecord, id: bigint): boolean | undefined {
  const reply = unlessInvalid(() => decodeIdReply(value ?? Buffer.alloc(0)));
  return reply !== undefined && 'batch' in reply ? indexOf(reply.batch, id) >= 0 : undefined;
}

/** The position of an ID in a batch, from 0; -1 if it is not in it. */
export function indexOf({ ranges, step }: Pick<IdBatch, 'ranges' | 'step'>, id: bigint): number {
  let before = 0;
  for (const { first, count } of ranges) {
    const distance = id - first;
    if (distance >= 0n && distance % step === 0n && distance / step < BigInt(count)) {
      return before + Number(distance / step);
    }
    before += count;
  }
  return -1;
}

/** A batch; undefined for a marker, and for an unreadable record, which an audit reports. */
function batchEntry({ value, headers }: TopicRecord): LedgerBatchEntry | undefined {
  const entry = unlessInvalid(() => decodeLedgerEntry(value ?? Buffer.alloc(0), headers));
  return entry?.kind === 'batch' ? entry : undefined;
}

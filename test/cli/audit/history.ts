import { tmpdir } from 'node:os';
import type { TopicRecord } from '../../../src/adapters/kafka/topics/spans.ts';
import { checks, type UndecidedRequests, undecidedIn } from '../../../src/cli/audit/audit-run.ts';
import type { Finding, FindingCode } from '../../../src/cli/audit/found.ts';
import { AuditReader, type AuditSink } from '../../../src/cli/audit/read.ts';
import type { Checked } from '../../../src/cli/audit/report.ts';
import { AuditStore } from '../../../src/cli/audit/store.ts';
import { encodeIdReply, ID_REPLY_FINGERPRINT } from '../../../src/codec/id-reply.ts';
import { encodeIdRequest } from '../../../src/codec/id-request.ts';
import { encodeLedgerEntry, requestHash } from '../../../src/codec/ledger-entry.ts';
import { encodeLedgerKey } from '../../../src/codec/ledger-key.ts';
import { DEFAULT_HEADER_NAMES, type RecordHeaders, replyHeaders } from '../../../src/codec/request-headers.ts';
import type { ErrorCode } from '../../../src/errors.ts';
import { partitionFor } from '../../../src/kafka/records/record.ts';
import { deadLetter, rangeLetter } from '../../../src/pipeline/outgoing.ts';
import { sentHeaders, sentRecord } from '../../support/memory-publisher.ts';
import { batchAt, LAYOUT } from './batches.ts';

export const REPLIES = 'id.replies.orders';
/** Far more than the margins of clocks, so that what a test says of times holds whatever they are. */
export const HOUR_MS = 3_600_000;
/** Nothing in a history of these tests is later, unless a broker's clock is ahead. */
export const DAY_MS = 24 * HOUR_MS;
const BASE_TICK = 10_000_000_000;
/** The beginning of time: tests name times by their distance. */
export const BASE_MS = LAYOUT.epochMs + BASE_TICK;
const CLOCK_MARGIN_MS = 1_000;
const CONTEXT = { names: DEFAULT_HEADER_NAMES, requestTopic: 'requests', deadLetterTopic: 'letters' };

export interface Asked {
  readonly id: string;
  readonly count: number;
  readonly record: TopicRecord;
}

interface Asking {
  readonly count?: number;
  readonly replyTopic?: string;
  readonly partition?: number;
  readonly atMs?: number;
  readonly headers?: TopicRecord['headers'];
  readonly value?: Buffer;
  readonly requestId?: string;
}

interface Judging {
  /** Below it, requests are answered: in each partition, or by partition. */
  readonly answeredBelow?: number | readonly number[];
  readonly nowMs?: number;
  readonly graceMs?: number;
  readonly fromMs?: number;
  readonly toMs?: number;
  /** Where topics start. */
  readonly starts?: Readonly<Record<string, number>>;
  /** Topics that are not read. */
  readonly unread?: readonly string[];
}

/** Topics as workers write them, record by record. */
export class Topics {
  readonly #partitions: number;
  readonly records: TopicRecord[] = [];
  readonly #ends = new Map<string, number>();
  #batches = 0;

  constructor(partitions = 1) {
    this.#partitions = partitions;
  }

  homeOf(id: string): number {
    return partitionFor(Buffer.from(id), this.#partitions, () => 0);
  }

  append(
    topic: string,
    partition: number,
    record: Pick<TopicRecord, 'key' | 'value' | 'timestampMs'> & Partial<TopicRecord>,
  ) {
    const log = `${topic}/${partition}`;
    const offset = this.#ends.get(log) ?? 0;
    this.#ends.set(log, offset + 1);
    const whole = { headers: {}, ...record, topic, partition, offset };
    this.records.push(whole);
    return whole;
  }

  ask(id: string, asking: Asking = {}): Asked {
    const { count = 3, replyTopic = REPLIES, partition = this.homeOf(id), atMs = 0, headers = {}, requestId } = asking;
    const correlationId = Buffer.from(id);
    const own = requestId === undefined ? {} : { requestId: Buffer.from(requestId) };
    const value = asking.value ?? encodeIdRequest({ count, correlationId, replyTopic, ...own });
    const record = this.append('requests', partition, { key: null, value, headers, timestampMs: BASE_MS + atMs });
    return { id, count, record };
  }

  /** The entry of a request. */
  decide(
    { id, count, record }: Asked,
    {
      replyTopic = REPLIES,
      atMs = 0,
      hash = requestHash(count, replyTopic),
      partition = record.partition,
      end = 0,
      behindMs = 0,
    } = {},
  ) {
    this.#batches += 1;
    const batch = batchAt(BASE_TICK + atMs + this.#batches, count);
    const timestampMs = batch.generatedAtMs - behindMs; // by a broker whose clock is so far behind
    const value = encodeLedgerEntry({
      kind: 'batch',
      requestHash: hash,
      count,
      replyTopic,
      requestOffset: record.offset,
      batch,
      framing: 'SINGLE_OBJECT',
      schemaFingerprint: ID_REPLY_FINGERPRINT,
      end,
      through: -1,
    });
    this.append('ledger', partition, { key: encodeLedgerKey(Buffer.from(id)), value, timestampMs });
    return batch;
  }

  reply(
    { id }: Asked,
    batch: ReturnType<typeof batchAt>,
    { topic = REPLIES, partition = 0, correlationId = id } = {},
  ): void {
    const key = Buffer.from(correlationId);
    const requestId = correlationId === id ? undefined : Buffer.from(id);
    const fields = { names: DEFAULT_HEADER_NAMES, correlationId: key, requestId, replayed: false, trace: {} };
    const headers = asRead(sentHeaders(replyHeaders(fields)));
    const value = encodeIdReply({ correlationId: key, batch }, 'RANGES');
    this.append(topic, partition, { key, value, headers, timestampMs: batch.generatedAtMs });
  }

  refuse({ id, record }: Asked, code: string, atMs = record.timestampMs - BASE_MS): void {
    const correlationId = Buffer.from(id);
    const value = encodeIdReply({ correlationId, error: { code, message: 'no' } }, 'RANGES');
    this.append(REPLIES, 0, { key: correlationId, value, timestampMs: BASE_MS + atMs });
  }

  letter(asked: Asked | readonly Asked[], code: ErrorCode = 'MALFORMED_REQUEST'): void {
    const all = Array.isArray(asked) ? (asked as readonly Asked[]) : [asked as Asked];
    const rejections = all.map(({ record }) => ({ record, code, message: 'no' }));
    const [first] = rejections;
    if (first === undefined) throw new RangeError('a letter for nothing');
    const { partition } = first.record;
    const { key, value, headers } = sentRecord(
      rejections.length > 1
        ? rangeLetter(rejections, partition, CONTEXT)
        : deadLetter(first.record, partition, first, CONTEXT),
    );
    const { timestampMs } = first.record;
    this.append('letters', 0, { key, value, headers: asRead(headers), timestampMs });
  }

  /** A request that is answered as it should be. */
  serve(id: string, asking: Asking = {}): Asked {
    const asked = this.ask(id, asking);
    this.reply(asked, this.decide(asked, { atMs: asking.atMs ?? 0 }));
    return asked;
  }

  /** What the ledger has not decided. */
  undecided(): UndecidedRequests[] {
    using store = new AuditStore(tmpdir());
    const ledger = [{ topic: 'ledger', partition: 0, from: 0, to: 1_000 }];
    const requests = ledger.map((span) => ({ ...span, topic: 'requests' }));
    const reader = new AuditReader(
      { ledger, requests },
      sinkInto(store, () => undefined),
      { clockMarginMs: 0 },
    );
    for (const record of this.records) if (record.topic !== REPLIES && record.topic !== 'letters') reader.take(record);
    return undecidedIn(store.grouped());
  }

  audit(judging: Judging = {}): {
    readonly codes: FindingCode[];
    readonly found: Finding[];
    readonly counts: Checked['requests'];
  } {
    const { answeredBelow = 0, nowMs = 0, graceMs = HOUR_MS, starts = {}, unread = [] } = judging;
    const spansOf = (topic: string) =>
      unread.includes(topic)
        ? []
        : Array.from({ length: this.#partitions }, (_, partition) => ({
            topic,
            partition,
            from: starts[topic] ?? 0,
            to: 1_000,
          }));
    const belowOf = (partition: number) =>
      typeof answeredBelow === 'number' ? answeredBelow : (answeredBelow[partition] ?? 0);
    const found: Finding[] = [];
    const find = (finding: Finding) => void found.push(finding);
    using store = new AuditStore(tmpdir());
    const logs = {
      ledger: spansOf('ledger'),
      requests: spansOf('requests'),
      replies: spansOf(REPLIES),
      letters: spansOf('letters'),
      answeredBelow: new Map(spansOf('requests').map(({ partition }) => [partition, belowOf(partition)])),
    };
    const sink = sinkInto(store, find);
    const reader = new AuditReader(logs, sink, { clockMarginMs: CLOCK_MARGIN_MS });
    for (const record of this.records) {
      if (record.offset >= (starts[record.topic] ?? 0) && !unread.includes(record.topic)) reader.take(record);
    }
    reader.end();
    const { fromMs = Number.NEGATIVE_INFINITY, toMs = Number.POSITIVE_INFINITY } = judging;
    const dueBeforeMs = BASE_MS + nowMs - graceMs;
    const judged = {
      fromMs: BASE_MS + fromMs,
      toMs: BASE_MS + toMs,
      dueBeforeMs,
      nowMs: BASE_MS + Math.max(nowMs, DAY_MS),
    };
    const steps = checks(store, reader, { find, judged });
    for (;;) {
      const { done, value } = steps.next();
      if (done === true) return { codes: found.map(({ code }) => code), found, counts: value.requests };
    }
  }
}

function sinkInto(store: AuditStore, find: (finding: Finding) => void): AuditSink {
  return {
    add: (found) => store.add(found),
    addLetter: (letter) => store.addLetter(letter),
    addNumbers: (numbers) => store.addNumbers(numbers),
    find,
  };
}

/** Headers as a broker returns them. */
function asRead(headers: RecordHeaders): TopicRecord['headers'] {
  const bytes = Object.entries(headers).map(([name, one]) => [name, typeof one === 'string' ? Buffer.from(one) : one]);
  return Object.fromEntries(bytes) as TopicRecord['headers'];
}

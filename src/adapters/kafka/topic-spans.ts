import { randomUUID } from 'node:crypto';
import type { Admin, Consumer, EachBatchPayload, Kafka } from 'kafkajs';
import { describeError, IdallocError } from '../../errors.ts';
import { safeOffset } from './ledger-log.ts';
import type { FetchedRecord } from './record-batches.ts';

/** The records of one partition from an offset to before another; one reading has at most one for each partition. */
export interface Span {
  readonly topic: string;
  readonly partition: number;
  readonly from: number;
  readonly to: number;
}

/** A record as it was read. */
export interface TopicRecord {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: FetchedRecord['headers'];
  readonly timestampMs: number;
}

export interface SpanReading {
  /** Beginning of the name of a group that this reading has for itself; nothing is committed in it. */
  readonly groupId: string;
  readonly signal: AbortSignal;
  /** Takes records of one partition in log order; true ends the reading. */
  readonly take: (records: readonly TopicRecord[]) => boolean;
  /** How many offsets are done with. */
  readonly onProgress?: (done: number) => void;
}

/** A broker that gives nothing for so long, though there is more, is taken for gone. */
const STALL_MS = 30_000;
const MAX_WAIT_MS = 100;
const SESSION_TIMEOUT_MS = 30_000;

/** All that a topic holds now, a span for each partition. Throws TOPIC_INVALID for a topic that does not exist. */
export async function wholeTopic(admin: Admin, topic: string): Promise<Span[]> {
  const offsets = await offsetsOf(admin, topic, () => admin.fetchTopicOffsets(topic));
  return offsets.map(({ partition, low, high }) => {
    return { topic, partition, from: safeOffset(low), to: safeOffset(high) };
  });
}

/**
 * The first offset of each partition whose record is of that time or later, and the end where there is none. Times are
 * those of the topic's records: the broker's only where it says LogAppendTime.
 */
export async function offsetsAtTime(admin: Admin, topic: string, timeMs: number): Promise<ReadonlyMap<number, number>> {
  const found = await offsetsOf(admin, topic, () => admin.fetchTopicOffsetsByTimestamp(topic, Math.max(0, timeMs)));
  return new Map(found.map(({ partition, offset }) => [partition, safeOffset(offset)]));
}

async function offsetsOf<T>(admin: Admin, topic: string, fetch: () => Promise<T>): Promise<T> {
  try {
    // Asked for the offsets of a topic that is not there, kafkajs tries for ten seconds.
    if ((await admin.listTopics()).includes(topic)) return await fetch();
  } catch (error) {
    const message = `the offsets of topic '${topic}' can't be had: ${describeError(error)}`;
    throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
  }
  const remedy = "check the name ('idalloc topics init' makes the workers' own)";
  throw new IdallocError('TOPIC_INVALID', `there is no topic '${topic}', or this user may not see it: ${remedy}`);
}

/**
 * Reads the spans, each in log order, and resolves when all were read or `take` ended it. What retention deletes
 * meanwhile is skipped.
 *
 * @throws IdallocError KAFKA_UNAVAILABLE when the brokers stop to give records, STOPPING, and whatever `take` throws.
 */
export async function readSpans(kafka: Kafka, spans: readonly Span[], reading: SpanReading): Promise<void> {
  const open = spans.filter(({ from, to }) => from < to);
  if (open.length === 0) return;
  const consumer = kafka.consumer({
    groupId: `${reading.groupId}.read.${randomUUID()}`,
    allowAutoTopicCreation: false,
    maxWaitTimeInMs: MAX_WAIT_MS,
    sessionTimeout: SESSION_TIMEOUT_MS,
    retry: { restartOnFailure: async () => false },
  });
  await new SpanReader(consumer, open, reading).run();
}

class SpanReader {
  readonly #consumer: Consumer;
  readonly #reading: SpanReading;
  readonly #ends = new Map<string, Span>();
  /** Of the spans that are not done: the next offset to take. */
  readonly #next = new Map<string, number>();
  readonly #total: number;
  readonly #over = Promise.withResolvers<void>();
  #movedMs = performance.now();

  constructor(consumer: Consumer, spans: readonly Span[], reading: SpanReading) {
    this.#consumer = consumer;
    this.#reading = reading;
    for (const span of spans) {
      this.#ends.set(nameOf(span), span);
      this.#next.set(nameOf(span), span.from);
    }
    this.#total = spans.reduce((sum, { from, to }) => sum + to - from, 0);
  }

  async run(): Promise<void> {
    const { signal } = this.#reading;
    const stop = () => this.#over.reject(new IdallocError('STOPPING', 'stopped by a signal before all was read'));
    const stall = setInterval(() => this.#checkStall(), 1_000);
    this.#over.promise.catch(() => undefined); // it may fail while the reading still begins
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    try {
      await Promise.race([this.#begin(), this.#over.promise]);
      await this.#over.promise;
    } finally {
      clearInterval(stall);
      signal.removeEventListener('abort', stop);
      await this.#consumer.disconnect();
    }
  }

  async #begin(): Promise<void> {
    const consumer = this.#consumer;
    consumer.on('consumer.group_join', () => this.#seekAll());
    // A batch of nothing but aborted records or control records is never handed on.
    consumer.on('consumer.end_batch_process', ({ payload }) => {
      this.#advance({ topic: payload.topic, partition: payload.partition }, Number(payload.lastOffset) + 1);
    });
    consumer.on('consumer.crash', ({ payload }) => this.#over.reject(unreadable(payload.error)));
    try {
      await consumer.connect();
      const topics = [...new Set([...this.#ends.values()].map(({ topic }) => topic))];
      await consumer.subscribe({ topics, fromBeginning: true });
      await consumer.run({ autoCommit: false, eachBatch: async (payload) => this.#take(payload) });
    } catch (error) {
      throw unreadable(error);
    }
  }

  #seekAll(): void {
    for (const [name, { topic, partition }] of this.#ends) {
      const offset = this.#next.get(name);
      if (offset === undefined) this.#consumer.pause([{ topic, partitions: [partition] }]);
      else this.#consumer.seek({ topic, partition, offset: String(offset) });
    }
  }

  #take({ batch }: EachBatchPayload): void {
    const { topic, partition } = batch;
    const name = nameOf(batch);
    const next = this.#next.get(name);
    const end = this.#ends.get(name)?.to;
    if (next === undefined || end === undefined) return;
    const records: TopicRecord[] = [];
    for (const { offset, key, value, headers, timestamp } of batch.messages) {
      const at = safeOffset(offset);
      if (at < next || at >= end) continue;
      const all = (headers ?? {}) as TopicRecord['headers'];
      records.push({ topic, partition, offset: at, key, value, headers: all, timestampMs: Number(timestamp) });
    }
    try {
      if (records.length > 0 && this.#reading.take(records)) this.#over.resolve();
    } catch (error) {
      this.#over.reject(error);
    }
    this.#advance(batch, safeOffset(batch.lastOffset()) + 1);
  }

  #advance(place: { readonly topic: string; readonly partition: number }, to: number): void {
    const name = nameOf(place);
    const next = this.#next.get(name);
    const end = this.#ends.get(name)?.to;
    if (next === undefined || end === undefined || to <= next) return;
    this.#movedMs = performance.now();
    if (to < end) this.#next.set(name, to);
    else {
      this.#next.delete(name);
      this.#consumer.pause([{ topic: place.topic, partitions: [place.partition] }]);
    }
    this.#reading.onProgress?.(this.#total - this.#left());
    if (this.#next.size === 0) this.#over.resolve();
  }

  #left(): number {
    let left = 0;
    for (const [name, next] of this.#next) left += (this.#ends.get(name)?.to ?? next) - next;
    return left;
  }

  #checkStall(): void {
    if (performance.now() - this.#movedMs < STALL_MS) return;
    const missing = [...this.#next].map(([name, next]) => `${name} at ${next}`).join(', ');
    const message = `the brokers gave no more records for ${STALL_MS / 1_000} s: ${missing}`;
    this.#over.reject(new IdallocError('KAFKA_UNAVAILABLE', message));
  }
}

function nameOf({ topic, partition }: { readonly topic: string; readonly partition: number }): string {
  return `${topic}/${partition}`;
}

function unreadable(error: unknown): IdallocError {
  if (error instanceof IdallocError) return error;
  return new IdallocError('KAFKA_UNAVAILABLE', `topics can't be read: ${describeError(error)}`, { cause: error });
}

import { retrying } from '../../../async/retrying.ts';
import type { Runtime, Timer } from '../../../async/runtime.ts';
import { describeError, IdallocError } from '../../../errors.ts';
import { boundsOf, END, offsetAt } from '../../../kafka/loops/leader-calls.ts';
import { Tail } from '../../../kafka/loops/tail.ts';
import type { Followed, TailSink } from '../../../kafka/loops/tail-port.ts';
import type { FetchedRecord } from '../../../kafka/records/record.ts';
import type { Cluster } from '../../../kafka/wire/cluster.ts';
import { isUnusableTopic, meaningOf } from '../../../kafka/wire/error-codes.ts';
import { type KafkaErrorCode, kafkaErrorCode } from '../../../kafka/wire/kafka-error.ts';
import { asUnavailable, CALL_TIMEOUT_MS, PATIENT } from '../brokers.ts';

/** The records of one partition at the offsets [from, to); one reading has at most one span per partition. */
export interface Span {
  readonly topic: string;
  readonly partition: number;
  readonly from: number;
  readonly to: number;
}

/** The cluster that topics are read from. */
export interface Source {
  readonly cluster: Cluster;
  readonly runtime: Runtime;
}

/**
 * Like the reads of workers: ledger and witness are written without transactions, and another producer's must not hide
 * records.
 */
export const ISOLATION = 'read_uncommitted';
/** How workers read requests: those of a transaction that was aborted were never sent. */
export const OF_REQUESTS = 'read_committed';
export type ReadIsolation = typeof ISOLATION | typeof OF_REQUESTS;
const QUERY = { isolation: ISOLATION, timeoutMs: CALL_TIMEOUT_MS } as const;

/**
 * Everything that a topic holds now, one span per partition.
 *
 * @throws IdallocError TOPIC_INVALID for a topic that does not exist, KAFKA_UNAVAILABLE.
 */
export async function wholeTopic(source: Source, topic: string, isolation: ReadIsolation = ISOLATION): Promise<Span[]> {
  return await forEachPartition(source, topic, (partition) => spanOf(source, topic, partition, isolation));
}

/** Likewise for several topics, each named once or more often. */
export async function wholeTopics(
  source: Source,
  topics: readonly string[],
  isolation: ReadIsolation = ISOLATION,
): Promise<Span[]> {
  return (await Promise.all([...new Set(topics)].map((topic) => wholeTopic(source, topic, isolation)))).flat();
}

/** Likewise for one partition. */
export async function wholePartition(source: Source, topic: string, partition: number): Promise<Span> {
  return await asking(source, topic, () => spanOf(source, topic, partition));
}

async function spanOf(
  { cluster, runtime }: Source,
  topic: string,
  partition: number,
  isolation: ReadIsolation = ISOLATION,
): Promise<Span> {
  const { logStart, end } = await boundsOf(cluster, runtime, { ...QUERY, isolation, topic, partition });
  return { topic, partition, from: logStart, to: end };
}

/**
 * The offset of the first record of that time or later in each partition, or the partition's end. Times are those of
 * the records: the broker's only if the topic has LogAppendTime.
 *
 * @throws IdallocError as wholeTopic does.
 */
export async function offsetsAtTime(
  source: Source,
  topic: string,
  timeMs: number,
): Promise<ReadonlyMap<number, number>> {
  const offsets = await forEachPartition(source, topic, (partition) => firstSince(source, topic, partition, timeMs));
  return new Map(offsets.entries());
}

/** Likewise for one partition. */
export async function offsetAtTime(source: Source, topic: string, partition: number, timeMs: number): Promise<number> {
  return await asking(source, topic, () => firstSince(source, topic, partition, timeMs));
}

async function firstSince(
  { cluster, runtime }: Source,
  topic: string,
  partition: number,
  timeMs: number,
): Promise<number> {
  const query = { ...QUERY, topic, partition };
  const found = await offsetAt(cluster, runtime, query, Math.max(0, timeMs));
  return found >= 0 ? found : offsetAt(cluster, runtime, query, END);
}

/** The number of partitions of a topic. Rejects as wholeTopic does. */
export async function partitionsOf(source: Source, topic: string): Promise<number> {
  return await asking(source, topic, () => countPartitions(source, topic));
}

/** The results of `query` for each partition of a topic, in order. */
function forEachPartition<T>(source: Source, topic: string, query: (partition: number) => Promise<T>): Promise<T[]> {
  return asking(source, topic, async () => {
    const count = await countPartitions(source, topic);
    return Promise.all(Array.from({ length: count }, (_, partition) => query(partition)));
  });
}

/** What `ask` returns; retried when a leader has moved. */
async function asking<T>(source: Source, topic: string, ask: () => Promise<T>): Promise<T> {
  try {
    return await retrying(source.runtime, PATIENT, ask);
  } catch (error) {
    const errorCode = kafkaErrorCode(error);
    if (error instanceof IdallocError || errorCode === undefined || errorCode === 'LOGIN_REFUSED')
      throw asUnavailable(error);
    const message = `the offsets of topic '${topic}' can't be read: ${describeError(error)}`;
    throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
  }
}

async function countPartitions({ cluster }: Source, topic: string): Promise<number> {
  try {
    return await cluster.partitions(topic, CALL_TIMEOUT_MS);
  } catch (error) {
    if (!isUnusableTopic(kafkaErrorCode(error))) throw error;
    const remedy = `check the name ('idalloc topics init' creates the workers' topics, with --reply-topic ${topic} this one too)`;
    const message = `topic '${topic}' does not exist, or this user may not describe it: ${remedy}`;
    throw new IdallocError('TOPIC_INVALID', message, { cause: error });
  }
}

/** A record as it was read. */
export interface TopicRecord extends FetchedRecord {
  readonly topic: string;
  readonly partition: number;
}

export interface SpanReading {
  readonly signal: AbortSignal;
  /** By default ISOLATION. */
  readonly isolation?: ReadIsolation;
  /** Takes each record, in log order within a partition. Only true, if it returns that, ends the reading. */
  readonly take: (record: TopicRecord) => unknown;
  /** One record stands for each dense batch, as workers read requests: for a comparison with what a worker has read. */
  readonly skipsDense?: true;
  /** Gets the number of offsets read so far. */
  readonly onProgress?: (done: number) => void;
}

/** The reading fails if brokers return nothing for this long, though there is more to read. */
const STALL_MS = 30_000;
const STALL_CHECK_MS = 1_000;
const MAX_WAIT_MS = 100;
/** The size of a partition's chunk, and of a leader's response: they bound the memory. */
const MAX_BYTES_PER_PARTITION = 1_048_576;
const MAX_BYTES = 10 * MAX_BYTES_PER_PARTITION;

/**
 * Reads the spans, each in log order, and resolves when all were read or `take` ended it. Uses no consumer group and
 * commits nothing. Records that retention deletes meanwhile are skipped.
 *
 * @throws IdallocError KAFKA_UNAVAILABLE when the brokers return no more records, STOPPING; also any error of `take`.
 */
export async function readSpans(source: Source, spans: readonly Span[], reading: SpanReading): Promise<void> {
  const open = spans.filter(({ from, to }) => from < to);
  if (open.length > 0) await new SpanReader(source, open, reading).run();
}

/** The record at an offset, if its topic still has it. Rejects as wholeTopic and readSpans do. */
export async function readRecord(
  source: Source,
  topic: string,
  { partition, offset: from }: { readonly partition: number; readonly offset: number },
  signal: AbortSignal,
): Promise<TopicRecord | undefined> {
  const span = (await wholeTopic(source, topic)).find((whole) => whole.partition === partition);
  if (span === undefined || from < span.from || from >= span.to) return undefined;
  let found: TopicRecord | undefined;
  const take = (record: TopicRecord) => {
    found = record;
    return true;
  };
  await readSpans(source, [{ topic, partition, from, to: from + 1 }], { signal, take });
  return found;
}

/** How many offsets the spans have. */
export function sizeOf(spans: readonly Span[]): number {
  return spans.reduce((sum, { from, to }) => sum + Math.max(0, to - from), 0);
}

/** A span that is not read to its end yet. */
interface Open {
  readonly span: Span;
  /** The next offset to take. */
  next: number;
  followed?: Followed;
}

/**
 * One reading. A span is open until `next` has reached its end, by records or by markers that take up offsets. The
 * reading is over when no span is open, or at the first failure; nothing is delivered after that.
 */
class SpanReader {
  readonly #source: Source;
  readonly #reading: SpanReading;
  readonly #tail: Tail;
  readonly #open: Set<Open>;
  readonly #total: number;
  #done = 0;
  readonly #over = Promise.withResolvers<void>();
  #movedMs: number;
  #lastError: KafkaErrorCode | undefined;
  #stallTimer: Timer | undefined;

  constructor(source: Source, spans: readonly Span[], reading: SpanReading) {
    this.#source = source;
    this.#reading = reading;
    this.#open = new Set(spans.map((span) => ({ span, next: span.from })));
    this.#total = sizeOf(spans);
    this.#movedMs = source.runtime.monotonicMs();
    this.#tail = new Tail({
      ...source,
      purpose: 'requests',
      isolation: reading.isolation ?? ISOLATION,
      maxWaitMs: MAX_WAIT_MS,
      maxBytes: MAX_BYTES,
      maxBytesPerPartition: MAX_BYTES_PER_PARTITION,
      ...(reading.skipsDense && { skipsDense: true }),
      onError: (topic, partition, { errorCode, message }) => {
        this.#lastError = errorCode;
        if (meaningOf(errorCode).refuses !== undefined)
          this.#fail(unavailable(`${topic}/${partition} can't be read: ${message}`));
      },
    });
  }

  async run(): Promise<void> {
    const { signal } = this.#reading;
    const stop = () => this.#fail(new IdallocError('STOPPING', 'stopped by a signal before all was read'));
    signal.addEventListener('abort', stop, { once: true });
    this.#watchStall();
    try {
      if (signal.aborted) stop();
      else for (const open of this.#open) this.#follow(open);
      await this.#over.promise;
    } finally {
      this.#stallTimer?.cancel();
      signal.removeEventListener('abort', stop);
    }
  }

  #follow(open: Open): void {
    const { topic, partition, from } = open.span;
    const sink: TailSink = {
      deliver: ({ records, next }) => this.#take(open, records, next),
      outOfRange: ({ logStart, end }) => this.#outOfRange(open, logStart, end),
    };
    open.followed = this.#tail.follow({ topic, partition, offset: from }, sink);
  }

  #take(open: Open, fetched: readonly FetchedRecord[], next: number): void {
    const { topic, partition, to } = open.span;
    try {
      const isOver = fetched.some(({ offset, timestampMs, key, value, headers }) => {
        if (offset >= to) return false;
        return this.#reading.take({ topic, partition, offset, timestampMs, key, value, headers }) === true;
      });
      if (isOver) this.#end();
      else this.#advance(open, next);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Records below the start were deleted. A log that ends below our position has lost records that were to be read. */
  #outOfRange(open: Open, logStart: number, end: number): number {
    const { topic, partition, to } = open.span;
    if (open.next > end)
      this.#fail(unavailable(`${topic}/${partition} now ends at ${end}, but had records up to ${to}`));
    else this.#advance(open, logStart);
    return Math.max(logStart, Math.min(open.next, end));
  }

  #advance(open: Open, to: number): void {
    const done = Math.min(to, open.span.to) - open.next;
    if (done <= 0) return;
    this.#movedMs = this.#source.runtime.monotonicMs();
    open.next += done;
    this.#done += done;
    if (open.next >= open.span.to) {
      this.#open.delete(open);
      open.followed?.stop();
    }
    this.#reading.onProgress?.(this.#done);
    if (this.#done >= this.#total) this.#end();
  }

  #watchStall(): void {
    const { runtime } = this.#source;
    this.#stallTimer = runtime.schedule(STALL_CHECK_MS, () => {
      if (runtime.monotonicMs() - this.#movedMs >= STALL_MS) this.#fail(this.#stalled());
      else this.#watchStall();
    });
  }

  #stalled(): IdallocError {
    const missing = [...this.#open].map(({ span, next }) => `${span.topic}/${span.partition} at ${next}`).join(', ');
    const why = this.#lastError === undefined ? '' : `; last error: ${this.#lastError}`;
    return unavailable(`the brokers returned no records for ${STALL_MS / 1_000} s: ${missing}${why}`);
  }

  #end(): void {
    this.#over.resolve();
    void this.#tail.close(); // immediately: nothing more is delivered
  }

  #fail(error: unknown): void {
    this.#over.reject(error);
    void this.#tail.close();
  }
}

function unavailable(message: string): IdallocError {
  return new IdallocError('KAFKA_UNAVAILABLE', message);
}

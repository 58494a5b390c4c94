import type { Timer } from '../../../async/runtime.ts';
import { IdallocError } from '../../../errors.ts';
import { Tail } from '../../../kafka/loops/tail.ts';
import type { Followed, TailSink } from '../../../kafka/loops/tail-port.ts';
import type { FetchedRecord } from '../../../kafka/records/record.ts';
import type { KafkaErrorCode } from '../../../kafka/wire/kafka-error.ts';
import { ISOLATION, type Isolation, type Source, type Span, wholeTopic } from './offsets.ts';

/** A record as it was read. */
export interface TopicRecord extends FetchedRecord {
  readonly topic: string;
  readonly partition: number;
}

export interface SpanReading {
  readonly signal: AbortSignal;
  /** By default ISOLATION. */
  readonly isolation?: Isolation;
  /** Takes each record, in log order within a partition; returns true to end the reading. */
  readonly take: (record: TopicRecord) => boolean | undefined;
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

/** Errors that waiting does not fix. */
const PERSISTENT: ReadonlySet<KafkaErrorCode> = new Set([
  'INVALID_TOPIC_EXCEPTION',
  'LOGIN_REFUSED',
  'TOPIC_AUTHORIZATION_FAILED',
  'UNSUPPORTED_VERSION',
]);

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
      lane: 'requests',
      isolation: reading.isolation ?? ISOLATION,
      maxWaitMs: MAX_WAIT_MS,
      maxBytes: MAX_BYTES,
      maxBytesPerPartition: MAX_BYTES_PER_PARTITION,
      ...(reading.skipsDense && { skipsDense: true }),
      onError: (topic, partition, { errorCode, message }) => {
        this.#lastError = errorCode;
        if (PERSISTENT.has(errorCode)) this.#fail(unavailable(`${topic}/${partition} can't be read: ${message}`));
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

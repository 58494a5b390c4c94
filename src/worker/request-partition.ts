import type { Runtime } from '../async/runtime.ts';
import {
  type CommittedPosition,
  encodeMetadata,
  type LastRead,
  type RequestPosition,
  readOf,
} from '../codec/request-position.ts';
import { wallMs } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import { ShortLog } from '../kafka/loops/followed-partition.ts';
import { type LeaderCluster, offsetAt, type PartitionBounds } from '../kafka/loops/leader-calls.ts';
import type { Tail } from '../kafka/loops/tail.ts';
import type { Followed, TailSink } from '../kafka/loops/tail-port.ts';
import type { FetchedRecord } from '../kafka/records/record.ts';
import { KafkaError } from '../kafka/wire/kafka-error.ts';
import type { WaitingVitals } from '../metrics/vitals.ts';
import type { DeferredLaneName } from '../pipeline/deferred.ts';
import type { RequestChunk } from '../pipeline/ports.ts';
import { type RequestHandler, RequestSession, type Waiting } from '../pipeline/request-session.ts';
import type { WorkerContext } from './context.ts';

/** What requests of every partition are served with. It is the same from one stay in the group to the next. */
export interface Serving {
  readonly context: WorkerContext;
  readonly handler: RequestHandler;
  /** Whether requests of the partition can be decided now: it has what it needs of the ledger. */
  readonly isReady: (partition: number) => boolean;
  /** The request topic ends below the read position: it was recreated, or has lost its tail. */
  readonly onTruncated: (partition: number) => void;
}

export interface RequestPartitionOptions extends Serving {
  readonly tail: Tail;
  /** Read partitions again, each for the requests of a lane that do not fit into memory. */
  readonly againTails: Readonly<Record<DeferredLaneName, Tail>>;
  /** Whether requests of the partition can be served now: it is ready, and so is the worker; see `refresh`. */
  readonly isOpen: (partition: number) => boolean;
  /** The partition has lost records that were read, and continues at `from`. */
  readonly onLost: (partition: number, from: number, position: number) => void;
}

/** From here a broker reports the bounds of the log, as for any position that the log has lost. */
const BEYOND_ANY_END = Number.MAX_SAFE_INTEGER;

/** A partition of the request topic that this worker serves: reads it into a session, until `end`. */
export class RequestPartition {
  readonly partition: number;
  readonly session: RequestSession;
  readonly #options: RequestPartitionOptions;
  readonly #start: CommittedPosition | undefined;
  readonly #followed: Followed;
  readonly #lag: RequestLag;
  readonly #lost: LostRequests;
  /** What the coordinator has. */
  #committed: RequestPosition | undefined;
  #hasEnded = false;

  /** `committed`: what the coordinator has, unless it is where reading begins. */
  constructor(
    options: RequestPartitionOptions,
    partition: number,
    start: CommittedPosition | undefined,
    committed: RequestPosition | undefined = start,
  ) {
    const { tail, handler, context } = options;
    const { cluster, runtime, metrics, config } = context;
    const topic = config.topics.requests;
    this.partition = partition;
    this.#options = options;
    this.#start = start;
    this.#committed = committed;
    this.#lost = new LostRequests({ cluster, runtime, topic, partition, last: start?.last });
    this.#lag = new RequestLag({
      next: start?.next ?? 0,
      monotonicMs: runtime.monotonicMs,
      onChange: (records) => metrics.setLag(partition, records),
    });
    this.session = new RequestSession({
      partition,
      handler,
      runtime,
      isOpen: options.isOpen(partition),
      position: start,
      onProgress: ({ next }) => this.#lag.progressed(next),
      readAgain: (lane, from, deliver) => this.#readAgain(lane, from, deliver),
      onError: (error, lasting) => this.#failed(error, lasting),
    });
    const offset = start?.last?.offset ?? start?.small ?? 0;
    this.#followed = tail.follow({ topic, partition, offset }, this.#sink());
    if (!options.isOpen(partition)) this.#followed.pause();
  }

  /** How long the oldest known request has waited. */
  get oldestMs(): number {
    return this.#lag.oldestMs;
  }

  /** The unanswered large requests; undefined for none. */
  get largeWaiting(): WaitingVitals | undefined {
    return this.#waiting(this.session.oldestLarge());
  }

  /** The unanswered requests for numbers; undefined for none. */
  get numbersWaiting(): WaitingVitals | undefined {
    return this.#waiting(this.session.oldestNumbers());
  }

  #waiting(oldest: Waiting | undefined): WaitingVitals | undefined {
    if (oldest === undefined) return undefined;
    const { waiting, sinceMs } = oldest;
    const milliseconds = Math.max(0, this.#options.context.runtime.wallMs() - sinceMs);
    return { partition: this.partition, waiting, milliseconds };
  }

  /** What is due to be committed, as the coordinator stores it; undefined if it has that. */
  get due(): { readonly position: RequestPosition; readonly offset: number; readonly metadata: string } | undefined {
    const { position } = this.session;
    if (position === undefined || position === this.#committed) return undefined;
    return { position, offset: position.next, metadata: encodeMetadata({ ...position, last: this.#lost.last }) };
  }

  /** What is answered; undefined until anything is known to be. */
  get answered(): CommittedPosition | undefined {
    const { position } = this.session;
    return position && { ...position, last: this.#lost.last };
  }

  committed(position: RequestPosition): void {
    this.#committed = position;
  }

  /** Resumes or pauses by whether requests can be served. */
  refresh(): void {
    if (this.#options.isOpen(this.partition)) {
      this.#followed.resume();
      this.session.resume();
    } else {
      this.session.pause();
      this.#followed.pause();
    }
  }

  end(): void {
    this.#hasEnded = true;
    this.#followed.stop();
    this.session.end();
    this.#options.context.metrics.setLag(this.partition, undefined);
  }

  #sink(): TailSink {
    const { metrics, runtime } = this.#options.context;
    const lost = this.#lost;
    return {
      deliver: async (chunk) => {
        if (!lost.fits(chunk.records)) return this.#followed.seek(BEYOND_ANY_END);
        const startedMs = runtime.monotonicMs();
        const answered = lost.reading(chunk.records);
        await this.session.deliver({
          ...chunk,
          answered: () => {
            answered();
            if (chunk.records.length > 0) metrics.observeBatch(runtime.monotonicMs() - startedMs);
          },
        });
      },
      interrupted: () => {
        const from = lost.compareFrom();
        if (from !== undefined) this.#followed.seek(from);
      },
      fetched: (end) => {
        if (lost.fetched(end)) this.#followed.seek(BEYOND_ANY_END);
        this.#lag.fetched(end);
      },
      outOfRange: (bounds, position) => {
        const known = Math.min(position, lost.readTo);
        return position > bounds.end ? this.#findLost(bounds, known) : this.#afterExpired(bounds, position);
      },
    };
  }

  /** Records at the read position have expired: reads from the first record left, so no waiting request is skipped. */
  #afterExpired(bounds: PartitionBounds, position: number): number {
    this.#lost.expired();
    const { small = 0 } = this.session.position ?? {};
    if (small >= bounds.logStart) return small; // only what was to be compared is gone
    if (this.#start !== undefined) {
      const fields = { partition: this.partition, position, logStart: bounds.logStart };
      const what = 'requests at the committed offset are gone: reading from the first that is left';
      this.#options.context.log.warn(fields, what);
    }
    this.#lag.progressed(bounds.logStart);
    return bounds.logStart;
  }

  /**
   * Requests below the log's start are gone; a log that ends below is what the first reader finds, and ends the
   * session.
   */
  #readAgain(lane: DeferredLaneName, offset: number, deliver: (chunk: RequestChunk) => Promise<void>): Followed {
    const { partition } = this;
    const outOfRange = async ({ logStart, end }: PartitionBounds, position: number) => {
      if (position <= end) return logStart;
      throw new KafkaError('OFFSET_OUT_OF_RANGE', `requests ${partition} end at ${end}, below offset ${position}`);
    };
    const { againTails, context } = this.#options;
    return againTails[lane].follow(
      { topic: context.config.topics.requests, partition, offset },
      { deliver, outOfRange },
    );
  }

  /** The partition has lost records that were read. Rejects as `continueAt` does. */
  async #findLost(bounds: PartitionBounds, position: number): Promise<number> {
    const { partition } = this;
    this.#options.onTruncated(partition);
    const from = await this.#lost.continueAt(bounds, position, this.session.position?.next);
    if (this.#hasEnded) return from;
    const fields = { partition, position, logStart: bounds.logStart, end: bounds.end, from };
    this.#options.context.log.warn(fields, 'the request partition has lost records that were read: reading again');
    this.#options.onLost(partition, from, position);
    return from;
  }

  /** Requests could not be served and will be retried. */
  #failed(error: unknown, lasting: boolean): void {
    const { context } = this.#options;
    const code = error instanceof IdallocError ? error.code : undefined;
    if (code !== undefined) context.metrics.addError(code);
    const fields = { partition: this.partition, code, error: describeError(error) };
    // Each partition is retried five times a second, and one cause stops all of them.
    context.lines(lasting ? 'error' : 'warn', fields, 'requests could not be served and will be retried', {
      about: code ?? '',
    });
  }
}

/** An end of the log, and when it was seen. */
interface LogEndSample {
  readonly end: number;
  readonly atMs: number;
}

export interface RequestLagOptions {
  /** The first offset that is not answered yet. */
  readonly next: number;
  readonly monotonicMs: () => number;
  readonly onChange: (records: number) => void;
}

/** A partition that is read gets a response at least this often, even if it has no records. */
const UNFETCHED_MS = 2_000;
/** Samples are at least a fetch's waiting time apart while no progress is made: 100 of them cover 25 s. */
const MAX_SAMPLES = 100;

/**
 * The lag of a request partition, computed from the responses to its fetches, without extra reads.
 *
 * A read-committed consumer gets nothing after an open transaction, however many records wait there. So the lag counts
 * up to the high watermark, which each response contains, not up to the last stable offset.
 *
 * The age is by the monotonic clock, since records may carry their senders' time. It counts from the first response
 * that showed the oldest unread record: it does not include time before this worker owned the partition. While nothing
 * can be fetched, requests may wait that are not known: then it counts from the last response.
 */
export class RequestLag {
  readonly #options: RequestLagOptions;
  /** Oldest first, each with a higher end than the one before. */
  readonly #samples: LogEndSample[] = [];
  #next: number;
  #fetchedMs: number;

  constructor(options: RequestLagOptions) {
    this.#options = options;
    this.#next = options.next;
    this.#fetchedMs = options.monotonicMs();
  }

  /** The log now ends at `end`. */
  fetched(end: number): void {
    this.#fetchedMs = this.#options.monotonicMs();
    if (end <= Math.max(this.#next, this.#samples.at(-1)?.end ?? 0)) return;
    // When full, merge with the last sample: the newest records then seem older than they are.
    const before = this.#samples.length < MAX_SAMPLES ? undefined : this.#samples.pop();
    this.#samples.push({ end, atMs: before?.atMs ?? this.#options.monotonicMs() });
    this.#options.onChange(this.records);
  }

  /** Everything below this offset has been answered. */
  progressed(next: number): void {
    this.#next = Math.max(this.#next, next);
    const left = this.#samples.findIndex(({ end }) => end > this.#next);
    this.#samples.splice(0, left === -1 ? this.#samples.length : left);
    this.#options.onChange(this.records);
  }

  /** Offsets between the last answered request and the end of the log; transaction markers may be among them. */
  get records(): number {
    return Math.max(0, (this.#samples.at(-1)?.end ?? 0) - this.#next);
  }

  /** How long the oldest unanswered record has waited, or may have; 0 when none waits. */
  get oldestMs(): number {
    const nowMs = this.#options.monotonicMs();
    const unfetchedMs = nowMs - this.#fetchedMs;
    const oldest = this.#samples[0];
    return Math.max(oldest === undefined ? 0 : nowMs - oldest.atMs, unfetchedMs < UNFETCHED_MS ? 0 : unfetchedMs);
  }
}

interface LostRequestsOptions {
  readonly cluster: LeaderCluster;
  readonly runtime: Runtime;
  readonly topic: string;
  readonly partition: number;
  /** The last record that was read before, by another reader. */
  readonly last?: LastRead | undefined;
}

const LOOKUP_TIMEOUT_MS = 5_000;
/**
 * How much earlier than the last good fetch new requests are searched: for the difference of clocks, and for a new
 * leader that took requests while a deposed one still answered our fetches.
 */
const SEARCH_MARGIN_MS = 60_000;

/**
 * Notices that a request partition has lost its tail, and finds where it continues. Either it ends below the read
 * position, or it has grown again meanwhile: so after each interruption the last record that was read is read again and
 * compared.
 *
 * The offsets of lost requests are reused. So a new request may lie below everything that was read before, and must not
 * be passed over. All timestamps of the topic are its brokers' (LogAppendTime): whatever is new is not older than the
 * last fetch that found the log whole. If only a deposed leader reported a shorter log, the requests of about a minute
 * are answered again.
 */
class LostRequests {
  readonly #options: LostRequestsOptions;
  readonly #short: ShortLog;
  #wholeAtMs: number | undefined;
  #last: LastRead | undefined;
  /** The last record that is being answered, or was. */
  #reading: LastRead | undefined;
  /** What the log must still have, until that is known. */
  #expected: LastRead | undefined;

  constructor(options: LostRequestsOptions) {
    this.#options = options;
    this.#last = options.last;
    this.#reading = options.last;
    this.#expected = options.last;
    this.#short = new ShortLog(`${options.topic}/${options.partition}`, options.runtime);
  }

  /**
   * These records were read and are about to be answered. Returns what to call when they are: only then the next owner
   * of the partition may begin after them. But if the log loses them meanwhile, that must be noticed.
   */
  reading(records: readonly FetchedRecord[]): () => void {
    const last = records.at(-1);
    const read = last === undefined ? undefined : readOf(last);
    this.#reading = read ?? this.#reading;
    return () => {
      this.#last = read ?? this.#last;
    };
  }

  /** The last record that was answered; undefined if none was, or if its time is not known. */
  get last(): LastRead | undefined {
    return Number.isSafeInteger(this.#last?.timestampMs) ? this.#last : undefined;
  }

  /** The offset after the last record that was read; Infinity if none was. */
  get readTo(): number {
    return this.#reading === undefined ? Number.POSITIVE_INFINITY : this.#reading.offset + 1;
  }

  /**
   * Reading was interrupted. Returns the offset from which it must continue, with a comparison; undefined if nothing
   * was read.
   */
  compareFrom(): number | undefined {
    this.#expected ??= this.#reading;
    return this.#expected?.offset;
  }

  /** Whether the next records that were read fit what was read before. */
  fits([first]: readonly FetchedRecord[]): boolean {
    const expected = this.#expected;
    if (expected === undefined) return true;
    if (first === undefined || first.offset !== expected.offset || readOf(first).digest !== expected.digest)
      return false;
    this.#expected = undefined;
    return true;
  }

  /** What was to be compared has expired, as all below the start of the log has. */
  expired(): void {
    this.#expected = undefined;
  }

  /**
   * A fetch was answered, and the log ends at `end`. Returns whether it has lost what is to be compared: it has ended
   * before that for 6 s. A new leader may not know its end at first.
   */
  fetched(end: number): boolean {
    if (this.#expected === undefined) this.#wholeAtMs = wallMs(this.#options.runtime.wallMs());
    const known = this.#expected === undefined ? end : this.#expected.offset + 1;
    return this.#short.isLasting(end, known);
  }

  /**
   * The first offset to read again, given the read position and the offset below which everything is answered. If no
   * record was read nothing says when the tail was lost, and the whole log is read: then it rejects with
   * OFFSET_OUT_OF_RANGE until the log has been short for 6 s. Rejects also as `offsetAt` does.
   */
  async continueAt({ logStart, end }: PartitionBounds, position: number, answered = logStart): Promise<number> {
    const wholeAtMs = this.#wholeAtMs ?? this.last?.timestampMs;
    if (wholeAtMs === undefined) {
      this.#short.confirm(end, position);
      return logStart;
    }
    const { cluster, runtime, topic, partition } = this.#options;
    const query = { topic, partition, isolation: 'read_committed' as const, timeoutMs: LOOKUP_TIMEOUT_MS };
    const found = await offsetAt(cluster, runtime, query, wholeAtMs - SEARCH_MARGIN_MS);
    return Math.max(logStart, Math.min(answered, end, found === -1 ? end : found));
  }
}

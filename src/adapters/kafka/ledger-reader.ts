import { Backoff } from '../../async/backoff.ts';
import type { Runtime, Timer } from '../../async/runtime.ts';
import { describeError } from '../../errors.ts';
import { boundsOf, type LeaderCluster, type PartitionBounds } from '../../kafka/loops/leader-calls.ts';
import { RateLimitedLog } from '../../kafka/loops/rate-limited-log.ts';
import { ShortLog } from '../../kafka/loops/short-log.ts';
import type { Tail } from '../../kafka/loops/tail.ts';
import type { Followed, TailChunk } from '../../kafka/loops/tail-port.ts';
import { UNREADABLE } from '../../kafka/records/decode.ts';
import type { FetchedRecord } from '../../kafka/records/record.ts';
import type { WireLog } from '../../kafka/wire/broker.ts';
import type { LedgerRecord, LogBounds } from '../../ledger/ports.ts';

/** Receives what is read; the follower decides where to read and what to do with the records. */
interface LedgerSink {
  /** The offset after the last known entry of this log; 0 if the known entries are of another log. */
  knownEnd(partition: number): number;
  begin(partition: number, bounds: LogBounds): number;
  /** Entries below this offset are known and need not be read. Resolves when the sink is ready for more. */
  neededFrom(partition: number): Promise<number>;
  /** `from`: entries below this offset were skipped, since they were not needed. */
  deliver(partition: number, records: readonly LedgerRecord[], from: number): void;
  /** Reading was interrupted. Returns whether what was read must be compared with the log, by `begin` and reading from there. */
  doubt(partition: number): boolean;
  expire(partition: number, low: number, high: number): boolean;
  invalidate(partition: number, cause: string): void;
  unreadable(partition: number, offset: number, cause: string): void;
}

export interface LedgerReaderOptions {
  readonly cluster: LeaderCluster;
  readonly runtime: Runtime;
  /** Reads uncommitted; its creator closes it. */
  readonly tail: Pick<Tail, 'follow'>;
  readonly topic: string;
  readonly sink: LedgerSink;
  readonly log: WireLog;
}

/** Entries applied at once, about 20 ms of work; more would block the event loop too long. */
const APPLY_MAX_ENTRIES = 1_000;
const BOUNDS_TIMEOUT_MS = 2_000;
const START_BACKOFF_MS = { minMs: 100, maxMs: 1_000 };
/** The shortest time between two starts of a partition. */
const RESTART_INTERVAL_MS = 500;
/** How often the index learns where the log starts; it also maintains its store then. */
const EXPIRE_INTERVAL_MS = 10_000;

/**
 * A partition of the ledger.
 *
 *   starting  -> following   the bounds are known, and the sink has chosen where to read
 *   following -> starting    a restart: what was fetched is dropped
 *   any       -> left        it is no longer read
 *
 * `epoch` rises with every restart and when the partition is left, which identifies outdated bounds and chunks.
 */
interface ReadPartition {
  readonly partition: number;
  epoch: number;
  isStarting: boolean;
  startedMs: number;
  readonly short: ShortLog;
  followed: Followed | undefined;
}

/**
 * Reads partitions of the ledger topic into one sink, continuously. The sink is not called after `stop`, nor for a partition
 * after `leave`.
 */
export class LedgerReader {
  readonly #options: LedgerReaderOptions;
  readonly #log: RateLimitedLog;
  readonly #partitions = new Map<number, ReadPartition>();
  readonly #stopped = new AbortController();
  #expireTimer: Timer | undefined;

  constructor(options: LedgerReaderOptions) {
    this.#options = options;
    this.#log = new RateLimitedLog(options.runtime, options.log);
  }

  start(): void {
    this.#scheduleExpiry();
  }

  /** Starts reading a partition, as soon as its leader answers. */
  follow(partition: number): void {
    if (this.#partitions.has(partition)) return;
    const reading: ReadPartition = {
      partition,
      epoch: 0,
      isStarting: false,
      startedMs: Number.NEGATIVE_INFINITY,
      short: new ShortLog(`${this.#options.topic}/${partition}`, this.#options.runtime),
      followed: undefined,
    };
    this.#partitions.set(partition, reading);
    void this.#start(reading);
  }

  /** Stops reading a partition. */
  leave(partition: number): void {
    const reading = this.#partitions.get(partition);
    if (reading === undefined) return;
    this.#partitions.delete(partition);
    reading.epoch += 1;
    reading.followed?.stop();
  }

  stop(): void {
    this.#stopped.abort();
    this.#expireTimer?.cancel();
    for (const partition of [...this.#partitions.keys()]) this.leave(partition);
  }

  /** Stops reading a partition, requests the bounds from its leader and reads from where the sink needs it. */
  restart(partition: number): void {
    const reading = this.#partitions.get(partition);
    if (reading === undefined) throw new RangeError(`ledger partition ${partition} is not followed`);
    reading.epoch += 1;
    reading.followed?.pause();
    void this.#start(reading);
  }

  get #isStopped(): boolean {
    return this.#stopped.signal.aborted;
  }

  /** Whether the partition was left, as all are when the reader stops. */
  #isOver(reading: ReadPartition): boolean {
    return this.#partitions.get(reading.partition) !== reading;
  }

  async #start(reading: ReadPartition): Promise<void> {
    if (reading.isStarting) return; // the start in progress checks the epoch
    reading.isStarting = true;
    const { runtime } = this.#options;
    await runtime.sleep(reading.startedMs + RESTART_INTERVAL_MS - runtime.monotonicMs(), this.#stopped.signal);
    const backoff = new Backoff(START_BACKOFF_MS);
    while (!this.#isOver(reading)) {
      try {
        await this.#tryToStart(reading);
        if (!reading.isStarting) return;
      } catch (error) {
        const fields = { partition: reading.partition, error: describeError(error) };
        this.#log.warn(fields, "a ledger partition can't be read yet, retrying");
      }
      await runtime.sleep(backoff.nextMs(), this.#stopped.signal);
    }
  }

  /** Does nothing if the partition was restarted meanwhile. */
  async #tryToStart(reading: ReadPartition): Promise<void> {
    const { sink, runtime } = this.#options;
    const { partition, epoch } = reading;
    const { logStart, end } = await this.#boundsOf(partition);
    if (this.#isOver(reading) || reading.epoch !== epoch) return;
    this.#requireLength(reading, end);
    reading.startedMs = runtime.monotonicMs();
    const offset = sink.begin(partition, { low: logStart, high: end });
    if (reading.epoch !== epoch) return; // the index was replaced
    reading.isStarting = false;
    // The last entry is read again to recognise the log; only more than that is worth a log line.
    if (end - offset > 1) this.#options.log('info', { partition, from: offset, to: end }, 'reading a ledger partition');
    this.#readFrom(reading, offset);
  }

  #requireLength({ partition, short }: ReadPartition, end: number): void {
    const { cluster, topic, sink } = this.#options;
    try {
      short.confirm(end, sink.knownEnd(partition));
    } catch (error) {
      cluster.markStale(topic);
      throw error;
    }
  }

  #readFrom(reading: ReadPartition, offset: number): void {
    const { tail, topic, sink } = this.#options;
    const { partition } = reading;
    if (reading.followed === undefined) {
      reading.followed = tail.follow(
        { topic, partition, offset },
        {
          deliver: (chunk) => this.#deliver(reading, chunk),
          neededFrom: () => sink.neededFrom(partition),
          interrupted: () => {
            if (!this.#isOver(reading) && sink.doubt(partition)) this.restart(partition);
          },
          outOfRange: async ({ logStart, end }, position) => {
            const needed = await sink.neededFrom(partition);
            // Own entries are settled before they are read: retention may have deleted entries that are not needed.
            if (needed > position && needed >= logStart && needed <= end) return needed;
            sink.invalidate(partition, `offset ${position} was expected, but the log spans ${logStart} to ${end} now`);
            return logStart;
          },
        },
      );
    } else {
      reading.followed.seek(offset);
      reading.followed.resume();
    }
  }

  async #deliver(reading: ReadPartition, { records, from }: TailChunk): Promise<void> {
    const { epoch } = reading;
    for (let at = 0; at < records.length; at += APPLY_MAX_ENTRIES) {
      if (at > 0) await this.#options.runtime.nextTurn();
      if (this.#isOver(reading) || reading.epoch !== epoch) return;
      this.#apply(reading, records.slice(at, at + APPLY_MAX_ENTRIES), from);
    }
  }

  #apply(reading: ReadPartition, records: readonly FetchedRecord[], from: number): void {
    const { sink, topic } = this.#options;
    const { partition, epoch } = reading;
    const unreadable = records.findIndex(({ headers }) => headers[UNREADABLE] !== undefined);
    const readable = unreadable === -1 ? records : records.slice(0, unreadable);
    if (readable.length > 0) sink.deliver(partition, readable.map(toLedgerRecord), from);
    const first = records[unreadable];
    if (first === undefined || reading.epoch !== epoch) return;
    reading.followed?.pause();
    const until = 'requests of this partition are rejected until retention or kafka-delete-records has removed them';
    const cause = `topic '${topic}' has records that can't be read: ${first.headers[UNREADABLE]}; ${until}`;
    sink.unreadable(partition, first.offset, cause);
  }

  #scheduleExpiry(): void {
    this.#expireTimer = this.#options.runtime.schedule(EXPIRE_INTERVAL_MS, () => {
      void this.#expireAll().then(() => {
        if (!this.#isStopped) this.#scheduleExpiry();
      });
    });
  }

  /** Removes from the index what the log no longer has, step by step. */
  async #expireAll(): Promise<void> {
    const startedAtMs = this.#options.runtime.monotonicMs();
    const started = [...this.#partitions.values()].filter(({ isStarting }) => !isStarting);
    const results = await Promise.allSettled(started.map(({ partition }) => this.#boundsOf(partition)));
    for (const [i, response] of results.entries()) {
      const reading = started[i] as ReadPartition;
      try {
        if (response.status === 'rejected') throw response.reason;
        // A restart meanwhile used newer bounds.
        if (!reading.isStarting && reading.startedMs < startedAtMs) await this.#expire(reading, response.value);
      } catch (error) {
        const fields = { partition: reading.partition, error: describeError(error) };
        this.#log.warn(fields, 'removing expired entries from the index failed');
      }
    }
  }

  async #expire(reading: ReadPartition, { logStart, end }: PartitionBounds): Promise<void> {
    const { sink, runtime } = this.#options;
    while (!this.#isOver(reading) && sink.expire(reading.partition, logStart, end)) await runtime.nextTurn();
  }

  #boundsOf(partition: number): Promise<PartitionBounds> {
    const { cluster, runtime, topic } = this.#options;
    const query = { topic, partition, isolation: 'read_uncommitted' as const, timeoutMs: BOUNDS_TIMEOUT_MS };
    return boundsOf(cluster, runtime, query);
  }
}

function toLedgerRecord({ offset, key, value, timestampMs }: FetchedRecord): LedgerRecord {
  return { offset, key, value, appendedAtMs: timestampMs };
}

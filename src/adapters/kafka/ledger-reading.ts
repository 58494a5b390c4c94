import type { Mutex } from '../../async/mutex.ts';
import { Backoff } from '../../async/retrying.ts';
import type { Runtime } from '../../async/runtime.ts';
import { describeError } from '../../errors.ts';
import { ShortLog } from '../../kafka/loops/followed-partition.ts';
import { boundsOf, type LeaderCluster, type PartitionBounds } from '../../kafka/loops/leader-calls.ts';
import type { Tail } from '../../kafka/loops/tail.ts';
import type { Followed, TailChunk } from '../../kafka/loops/tail-port.ts';
import { UNREADABLE } from '../../kafka/records/decode.ts';
import type { FetchedRecord } from '../../kafka/records/record.ts';
import type { WireLog } from '../../kafka/wire/broker.ts';
import type { LedgerRecord } from '../../ledger/ledger-ports.ts';
import type { LedgerPartition } from '../../ledger/partition.ts';

export interface LedgerReadingOptions {
  readonly cluster: LeaderCluster;
  readonly runtime: Runtime;
  /** Reads uncommitted; its creator closes it. */
  readonly tail: Pick<Tail, 'follow'>;
  readonly topic: string;
  readonly log: WireLog;
  /** Copies are expired one after the other. */
  readonly expiring: Mutex;
}

/** Entries applied at once, about 20 ms of work; more would block the event loop too long. */
const APPLY_MAX_ENTRIES = 1_000;
const BOUNDS_TIMEOUT_MS = 2_000;
const START_BACKOFF_MS = { minMs: 100, maxMs: 1_000 };
/** The shortest time between two starts of a partition. */
const RESTART_INTERVAL_MS = 500;

/**
 * Reads a partition of the ledger topic into its copy, from its construction until it is stopped.
 *
 *   starting  -> following   the bounds are known, and the copy has chosen where to read
 *   following -> starting    a restart: what was fetched is dropped
 *   any       -> stopped     final; the copy is not called any more
 *
 * Bounds and chunks are outdated when the life of the copy has risen since.
 */
export class LedgerReading {
  readonly #options: LedgerReadingOptions;
  readonly #copy: LedgerPartition;
  readonly #short: ShortLog;
  readonly #stopped = new AbortController();
  #isStarting = false;
  #startedMs = Number.NEGATIVE_INFINITY;
  #followed: Followed | undefined;
  #mayLag: boolean;

  constructor(options: LedgerReadingOptions, copy: LedgerPartition, mayLag = false) {
    this.#options = options;
    this.#copy = copy;
    this.#mayLag = mayLag;
    this.#short = new ShortLog(`${options.topic}/${copy.partition}`, options.runtime);
    void this.#start();
  }

  /** Whether the copy decides nothing, and may be read from a replica that is behind the leader. */
  mayLag(may: boolean): void {
    this.#mayLag = may;
    this.#followed?.mayLag(may);
  }

  stop(): void {
    this.#stopped.abort();
    this.#followed?.stop();
  }

  /** Stops reading, requests the bounds from the leader and reads from where the copy needs it. The life has risen. */
  restart(): void {
    this.#followed?.pause();
    void this.#start();
  }

  /** Removes from the copy what the log no longer has, step by step. */
  async expire(): Promise<void> {
    const { runtime, log, expiring } = this.#options;
    if (this.#isStarting) return;
    const askedMs = runtime.monotonicMs();
    try {
      const { logStart, end } = await this.#bounds();
      await expiring.run(async () => {
        // A restart meanwhile used newer bounds.
        if (this.#isStarting || this.#startedMs >= askedMs) return;
        while (!this.#isOver && this.#copy.expire(logStart, end)) await runtime.nextTurn();
      });
    } catch (error) {
      const fields = { partition: this.#copy.partition, error: describeError(error) };
      log('warn', fields, 'removing expired entries from the index failed');
    }
  }

  get #isOver(): boolean {
    return this.#stopped.signal.aborted;
  }

  async #start(): Promise<void> {
    if (this.#isStarting) return; // the start in progress checks the life
    this.#isStarting = true;
    const { runtime, log } = this.#options;
    await runtime.sleep(this.#startedMs + RESTART_INTERVAL_MS - runtime.monotonicMs(), this.#stopped.signal);
    const backoff = new Backoff(START_BACKOFF_MS);
    while (!this.#isOver) {
      try {
        await this.#tryToStart();
        if (!this.#isStarting) return;
      } catch (error) {
        const fields = { partition: this.#copy.partition, error: describeError(error) };
        log('warn', fields, "a ledger partition can't be read yet, retrying");
      }
      await runtime.sleep(backoff.nextMs(), this.#stopped.signal);
    }
  }

  /** Does nothing if the partition was restarted meanwhile. */
  async #tryToStart(): Promise<void> {
    const { runtime, log } = this.#options;
    const { life, partition } = this.#copy;
    const { logStart, end } = await this.#bounds();
    if (this.#isOver || this.#copy.life !== life) return;
    this.#requireLength(end);
    this.#startedMs = runtime.monotonicMs();
    const offset = this.#copy.begin({ low: logStart, high: end });
    this.#isStarting = false;
    // The last entry is read again to recognise the log; only more than that is worth a log line.
    if (end - offset > 1) log('info', { partition, from: offset, to: end }, 'reading a ledger partition');
    this.#readFrom(offset);
  }

  #requireLength(end: number): void {
    const { cluster, topic } = this.#options;
    try {
      this.#short.confirm(end, this.#copy.knownEnd);
    } catch (error) {
      cluster.markStale(topic);
      throw error;
    }
  }

  #readFrom(offset: number): void {
    const { tail, topic } = this.#options;
    const copy = this.#copy;
    this.#followed?.seek(offset);
    this.#followed?.resume();
    this.#followed ??= tail.follow(
      { topic, partition: copy.partition, offset, mayLag: this.#mayLag },
      {
        deliver: (chunk) => this.#deliver(chunk),
        neededFrom: () => copy.neededFrom(),
        interrupted: () => {
          if (!this.#isOver && copy.doubt()) this.restart();
        },
        outOfRange: async ({ logStart, end }, position) => {
          const needed = await copy.neededFrom();
          // Own entries are settled before they are read: retention may have deleted entries that are not needed.
          if (needed > position && needed >= logStart && needed <= end) return needed;
          copy.invalidate(`offset ${position} was expected, but the log spans ${logStart} to ${end} now`);
          return logStart;
        },
      },
    );
  }

  async #deliver({ records, from }: TailChunk): Promise<void> {
    const { life } = this.#copy;
    for (let at = 0; at < records.length; at += APPLY_MAX_ENTRIES) {
      if (at > 0) await this.#options.runtime.nextTurn();
      if (this.#isOver || this.#copy.life !== life) return;
      this.#apply(records.slice(at, at + APPLY_MAX_ENTRIES), from);
    }
  }

  #apply(records: readonly FetchedRecord[], from: number): void {
    const copy = this.#copy;
    const { life } = copy;
    const unreadable = records.findIndex(({ headers }) => headers[UNREADABLE] !== undefined);
    const readable = unreadable === -1 ? records : records.slice(0, unreadable);
    if (readable.length > 0) copy.deliver(readable.map(toLedgerRecord), from);
    const first = records[unreadable];
    if (first === undefined || copy.life !== life) return;
    this.#followed?.pause();
    const until = 'requests of this partition are rejected until retention or kafka-delete-records has removed them';
    const why = `topic '${this.#options.topic}' has records that can't be read: ${first.headers[UNREADABLE]}; ${until}`;
    copy.unreadable({ offset: first.offset, why });
  }

  #bounds(): Promise<PartitionBounds> {
    const { cluster, runtime, topic } = this.#options;
    const { partition } = this.#copy;
    return boundsOf(cluster, runtime, {
      topic,
      partition,
      isolation: 'read_uncommitted',
      timeoutMs: BOUNDS_TIMEOUT_MS,
    });
  }
}

function toLedgerRecord({ offset, key, value, headers, timestampMs }: FetchedRecord): LedgerRecord {
  return { offset, key, value, headers, appendedAtMs: timestampMs };
}

import type { Runtime, Timer } from '../../core/runtime.ts';
import { describeError } from '../../errors.ts';
import { boundsOf, type PartitionBounds } from '../../kafka/loops/offsets.ts';
import { SparingLog } from '../../kafka/loops/sparing-log.ts';
import type { Tail } from '../../kafka/loops/tail.ts';
import type { Followed, TailChunk } from '../../kafka/loops/tail-port.ts';
import { UNREADABLE } from '../../kafka/records/decode.ts';
import type { FetchedRecord } from '../../kafka/records/record.ts';
import type { WireLog } from '../../kafka/wire/broker.ts';
import type { Cluster } from '../../kafka/wire/cluster.ts';
import type { LedgerRecord, LogBounds } from '../../pipeline/ports.ts';

/** What the reader feeds; the follower decides where to read and what to make of it. */
interface LedgerSink {
  /** The offset behind the last entry that is known of this log; 0 when what is known is of another one. */
  knownEnd(partition: number): number;
  begin(partition: number, bounds: LogBounds): number;
  /** Entries below this offset are known: reading them again would show nothing. Resolves when it wants to have more. */
  neededFrom(partition: number): Promise<number>;
  /** `from`: entries below this offset were left out, since they were not needed. */
  deliver(partition: number, records: readonly LedgerRecord[], from: number): void;
  expire(partition: number, low: number, high: number): boolean;
  invalidate(partition: number, cause: string): void;
  unreadable(partition: number, offset: number, cause: string): void;
}

export interface LedgerReaderOptions {
  readonly cluster: Pick<Cluster, 'leader' | 'call' | 'doubt'>;
  readonly runtime: Runtime;
  /** Read uncommitted. Whoever made it closes it. */
  readonly tail: Pick<Tail, 'follow'>;
  readonly topic: string;
  readonly sink: LedgerSink;
  readonly log: WireLog;
}

/** Entries applied in one go, about 20 ms of work; more would hold up everybody else in the process. */
const APPLY_MAX_ENTRIES = 1_000;
const BOUNDS_TIMEOUT_MS = 2_000;
const MIN_RETRY_MS = 100;
const MAX_RETRY_MS = 1_000;
/** At most so often a partition is begun again, whatever its log looks like. */
const RESTART_INTERVAL_MS = 500;
/** A log that ends before what is known of it is not believed for so long: its leader may be one that was deposed. */
const SHORT_LOG_MS = 6_000;
/** How often the index learns where the log starts; it looks after its store then as well. */
const EXPIRE_INTERVAL_MS = 10_000;

/**
 * A partition of the ledger.
 *
 *   beginning -> following   its bounds were asked for, and the sink said where to read
 *   following -> beginning   it is to be begun again: what was fetched is dropped
 *   any       -> left        it is not to be read any more
 *
 * `epoch` rises whenever it is to be begun again or is left, so that bounds and chunks from before are known.
 */
interface Place {
  readonly partition: number;
  epoch: number;
  isBeginning: boolean;
  begunMs: number;
  /** Since when the log ends before what is known of it. */
  shortSinceMs: number | undefined;
  followed: Followed | undefined;
}

/**
 * Reads partitions of the ledger topic, all the time, into one sink. No call to the sink comes after `stop`, nor one for a
 * partition after `leave`.
 */
export class LedgerReader {
  readonly #options: LedgerReaderOptions;
  readonly #log: SparingLog;
  readonly #places = new Map<number, Place>();
  readonly #stopped = new AbortController();
  #expireTimer: Timer | undefined;

  constructor(options: LedgerReaderOptions) {
    this.#options = options;
    this.#log = new SparingLog(options.runtime, options.log);
  }

  start(): void {
    this.#scheduleExpiry();
  }

  /** Reads a partition from now on. It begins when its leader answers. */
  follow(partition: number): void {
    if (this.#places.has(partition)) return;
    const place: Place = {
      partition,
      epoch: 0,
      isBeginning: false,
      begunMs: Number.NEGATIVE_INFINITY,
      shortSinceMs: undefined,
      followed: undefined,
    };
    this.#places.set(partition, place);
    void this.#begin(place);
  }

  /** Reads a partition no longer. */
  leave(partition: number): void {
    const place = this.#places.get(partition);
    if (place === undefined) return;
    this.#places.delete(partition);
    place.epoch += 1;
    place.followed?.stop();
  }

  stop(): void {
    this.#stopped.abort();
    this.#expireTimer?.cancel();
    for (const partition of [...this.#places.keys()]) this.leave(partition);
  }

  /** Stops reading a partition, asks its leader for the bounds and reads from where the sink says. */
  restart(partition: number): void {
    const place = this.#places.get(partition);
    if (place === undefined) throw new RangeError(`ledger partition ${partition} is not followed`);
    place.epoch += 1;
    place.followed?.pause();
    void this.#begin(place);
  }

  get #isStopped(): boolean {
    return this.#stopped.signal.aborted;
  }

  /** It was left, as all are when the reader stops. */
  #isOver(place: Place): boolean {
    return this.#places.get(place.partition) !== place;
  }

  async #begin(place: Place): Promise<void> {
    if (place.isBeginning) return; // it looks at the epoch
    place.isBeginning = true;
    const { runtime } = this.#options;
    await runtime.sleep(place.begunMs + RESTART_INTERVAL_MS - runtime.monotonicMs(), this.#stopped.signal);
    for (let restMs = MIN_RETRY_MS; !this.#isOver(place); restMs = Math.min(MAX_RETRY_MS, restMs * 2)) {
      try {
        await this.#tryToBegin(place);
        if (!place.isBeginning) return;
      } catch (error) {
        const fields = { partition: place.partition, error: describeError(error) };
        this.#log.warn(fields, 'a ledger partition could not be begun, trying again');
      }
      await runtime.sleep(restMs, this.#stopped.signal);
    }
  }

  /** Does nothing when the partition was to be begun again meanwhile. */
  async #tryToBegin(place: Place): Promise<void> {
    const { sink, runtime } = this.#options;
    const { partition, epoch } = place;
    const { logStart, end } = await this.#boundsOf(partition);
    if (this.#isOver(place) || place.epoch !== epoch) return;
    this.#requireLength(place, end);
    place.begunMs = runtime.monotonicMs();
    const offset = sink.begin(partition, { low: logStart, high: end });
    if (place.epoch !== epoch) return; // the index was replaced
    place.isBeginning = false;
    // The last entry is read again to recognise the log; more than that is worth a line.
    if (end - offset > 1) this.#options.log('info', { partition, from: offset, to: end }, 'reading a ledger partition');
    this.#readFrom(place, offset);
  }

  #requireLength(place: Place, end: number): void {
    const { cluster, runtime, topic, sink } = this.#options;
    const known = sink.knownEnd(place.partition);
    const nowMs = runtime.monotonicMs();
    const sinceMs = end < known ? (place.shortSinceMs ?? nowMs) : undefined;
    place.shortSinceMs = sinceMs;
    if (sinceMs === undefined || nowMs - sinceMs >= SHORT_LOG_MS) return;
    cluster.doubt(topic);
    throw new Error(`${topic}/${place.partition} ends at offset ${end} by its leader, and was known up to ${known}`);
  }

  #readFrom(place: Place, offset: number): void {
    const { tail, topic, sink } = this.#options;
    const { partition } = place;
    if (place.followed === undefined) {
      place.followed = tail.follow(
        { topic, partition, offset },
        {
          deliver: (chunk) => this.#deliver(place, chunk),
          neededFrom: () => sink.neededFrom(partition),
          outOfRange: async ({ logStart, end }, position) => {
            const needed = await sink.neededFrom(partition);
            // Entries of one's own are settled before they are read: retention may have taken what nobody needs.
            if (needed > position && needed >= logStart && needed <= end) return needed;
            sink.invalidate(
              partition,
              `offset ${position} was due, but the log reaches from ${logStart} to ${end} now`,
            );
            return logStart;
          },
        },
      );
    } else {
      place.followed.seek(offset);
      place.followed.resume();
    }
  }

  async #deliver(place: Place, { records, from }: TailChunk): Promise<void> {
    const { epoch } = place;
    for (let at = 0; at < records.length; at += APPLY_MAX_ENTRIES) {
      if (at > 0) await this.#options.runtime.nextTurn();
      if (this.#isOver(place) || place.epoch !== epoch) return;
      this.#apply(place, records.slice(at, at + APPLY_MAX_ENTRIES), from);
    }
  }

  #apply(place: Place, records: readonly FetchedRecord[], from: number): void {
    const { sink, topic } = this.#options;
    const { partition, epoch } = place;
    const unreadable = records.findIndex(({ headers }) => headers[UNREADABLE] !== undefined);
    const readable = unreadable === -1 ? records : records.slice(0, unreadable);
    if (readable.length > 0) sink.deliver(partition, readable.map(toLedgerRecord), from);
    const first = records[unreadable];
    if (first === undefined || place.epoch !== epoch) return;
    place.followed?.pause();
    const until = 'requests of this partition are refused until retention or kafka-delete-records has removed them';
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

  /** Lets the index forget what the log no longer has, a step at a time. */
  async #expireAll(): Promise<void> {
    const askedMs = this.#options.runtime.monotonicMs();
    const begun = [...this.#places.values()].filter(({ isBeginning }) => !isBeginning);
    const asked = await Promise.allSettled(begun.map(({ partition }) => this.#boundsOf(partition)));
    for (const [i, answer] of asked.entries()) {
      const place = begun[i] as Place;
      try {
        if (answer.status === 'rejected') throw answer.reason;
        // Newer bounds than these may have been begun by.
        if (!place.isBeginning && place.begunMs < askedMs) await this.#expire(place, answer.value);
      } catch (error) {
        const fields = { partition: place.partition, error: describeError(error) };
        this.#log.warn(fields, 'the index could not forget what the ledger no longer has');
      }
    }
  }

  async #expire(place: Place, { logStart, end }: PartitionBounds): Promise<void> {
    const { sink, runtime } = this.#options;
    while (!this.#isOver(place) && sink.expire(place.partition, logStart, end)) await runtime.nextTurn();
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

import { Mutex } from '../../async/mutex.ts';
import { retrying } from '../../async/retrying.ts';
import type { Runtime } from '../../async/runtime.ts';
import { atMost } from '../../async/waiting.ts';
import {
  sealKey,
  sealValue,
  WitnessTable,
  type WitnessView,
  witnessHeaders,
  witnessKey,
  witnessValue,
} from '../../codec/witness.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { WitnessEntry, WitnessPort } from '../../identity/identity-ports.ts';
import { append, type LeaderCluster } from '../../kafka/loops/leader-calls.ts';
import type { Tail } from '../../kafka/loops/tail.ts';
import type { Followed, TailSink } from '../../kafka/loops/tail-port.ts';
import { UNREADABLE } from '../../kafka/records/decode.ts';
import type { FetchedRecord, NewRecord } from '../../kafka/records/record.ts';
import { isWriteOver } from './brokers.ts';

export interface WitnessTopicOptions {
  readonly cluster: LeaderCluster;
  readonly runtime: Runtime;
  readonly topic: string;
  readonly datacenterId: number;
  readonly follower: WitnessFollower;
  /** Makes the reader continue from the follower's position. */
  readonly restartReader: () => void;
  /** The time limit of a call. */
  readonly callLimitMs: number;
}

/** How long a broker may wait for its followers before it answers. */
const REPLICATION_TIMEOUT_MS = 3_000;
const MAX_ENTRIES = 2_000;

/**
 * The witness topic: written in record batches that are neither idempotent nor transactional, and read by a follower.
 *
 * "Read to the end" means: up to a record that was written after the call. The high watermark would not work, since the
 * last records of a compacted log may be gone, and a reader would never reach it.
 *
 * One write is in progress at a time, so that an earlier one is not appended after a later one. A write without a
 * response ends at its deadline and may still be appended later; writers and readers have to tolerate that.
 */
export class WitnessTopic implements WitnessPort {
  readonly #options: WitnessTopicOptions;
  readonly #writes = new Mutex();

  constructor(options: WitnessTopicOptions) {
    this.#options = options;
  }

  read(): Promise<WitnessView> {
    // A record without a value, under an unused key: the next compaction removes it.
    return this.#call([{ key: Buffer.from(`${this.#options.datacenterId}/end`), value: null }]);
  }

  write(entries: readonly WitnessEntry[]): Promise<WitnessView> {
    if (entries.length > MAX_ENTRIES) throw new RangeError(`${entries.length} entries are more than ${MAX_ENTRIES}`);
    return this.#call(entries.map((entry) => this.#toRecord(entry)));
  }

  #toRecord(entry: WitnessEntry): NewRecord {
    const { datacenterId } = this.#options;
    if ('seal' in entry) return { key: sealKey(datacenterId), value: sealValue(entry.seal) };
    if ('clear' in entry) return { key: Buffer.from(entry.clear, 'latin1'), value: null };
    if ('drop' in entry) return { key: witnessKey(datacenterId, entry.drop), value: null };
    const { put } = entry;
    return { key: witnessKey(datacenterId, put), value: witnessValue(put), headers: witnessHeaders(put) };
  }

  async #call(records: readonly NewRecord[]): Promise<WitnessView> {
    const { runtime, callLimitMs } = this.#options;
    const untilMs = runtime.monotonicMs() + callLimitMs;
    const view = await atMost(runtime, callLimitMs, (over) => this.#writeAndRead(records, untilMs, over));
    if (view === undefined) throw unavailable(`no response in ${callLimitMs} ms`);
    return view;
  }

  async #writeAndRead(records: readonly NewRecord[], untilMs: number, over: AbortSignal): Promise<WitnessView> {
    const { follower, restartReader } = this.#options;
    const { known, base } = await this.#writes.run(() => this.#append(records, untilMs));
    if (base < known) {
      follower.rewind();
      restartReader();
      throw unavailable('its log was truncated and is being read again from its start');
    }
    await follower.reached(base + records.length - 1, over);
    if (follower.unreadable === undefined) return follower.view();
    const { unreadable } = follower;
    follower.rewind(); // compaction may remove the record before the next call
    restartReader();
    const { topic } = this.#options;
    const message = `the witness topic '${topic}' has unreadable records, so the highest reserved ceilings are unknown: ${unreadable}`;
    throw new IdallocError('KAFKA_UNAVAILABLE', message);
  }

  /** Returns the offset of the first message, and how far the log was read before. */
  async #append(records: readonly NewRecord[], untilMs: number): Promise<{ known: number; base: number }> {
    const { cluster, runtime, topic, follower } = this.#options;
    const { position: known } = follower;
    const timeoutMs = untilMs - runtime.monotonicMs();
    const appending = { topic, partition: 0, purpose: 'append' as const, replicationTimeoutMs: REPLICATION_TIMEOUT_MS };
    if (timeoutMs <= 0) throw unavailable('an earlier write was not answered');
    try {
      const { baseOffset } = await retrying(runtime, { timeoutMs, isTransient: isWriteOver }, (leftMs) =>
        append(cluster, runtime, { ...appending, timeoutMs: leftMs, records }),
      );
      if (baseOffset >= 0) return { known, base: baseOffset };
    } catch (error) {
      throw unavailable(describeError(error), error);
    }
    throw unavailable('the response has no offset');
  }
}

function unavailable(why: string, cause?: unknown): IdallocError {
  const message = `the witness topic could not be written or read: ${why}; check that the brokers are healthy`;
  return new IdallocError('KAFKA_UNAVAILABLE', message, { cause });
}

/** The content of the witness topic, as far as it has been read. */
export class WitnessFollower {
  readonly #table: WitnessTable;
  readonly #waiting = new Set<{ readonly offset: number; readonly arrived: () => void }>();
  /** The offset to continue from; everything below was read. */
  position = 0;
  /** Why a record could not be decoded; its worker ID and ceiling are unknown. */
  unreadable: string | undefined;

  constructor(datacenterId: number) {
    this.#table = new WitnessTable(datacenterId);
  }

  /**
   * Takes records in log order; the log continues at `next`. Offsets may be missing, since the topic is compacted.
   * Records that were delivered before are skipped.
   */
  deliver(records: readonly Pick<FetchedRecord, 'offset' | 'key' | 'value' | 'headers'>[], next: number): void {
    for (const { offset, key, value, headers } of records) {
      if (offset < this.position) continue;
      const why = headers[UNREADABLE];
      if (why === undefined) this.#table.apply(key, value, headers);
      else this.unreadable ??= String(why);
    }
    this.position = Math.max(this.position, next);
    for (const waiter of this.#waiting) {
      if (waiter.offset >= this.position) continue;
      this.#waiting.delete(waiter);
      waiter.arrived();
    }
  }

  /** Resolves once the record at `offset` was read; a caller that no longer waits aborts the signal. */
  reached(offset: number, signal: AbortSignal): Promise<void> {
    if (offset < this.position) return Promise.resolve();
    return new Promise((resolve) => {
      const waiter = { offset, arrived: resolve };
      this.#waiting.add(waiter);
      signal.addEventListener('abort', () => this.#waiting.delete(waiter), { once: true });
    });
  }

  /** Goes back to the start of the log. Witnesses that were read before still count. */
  rewind(): void {
    this.position = 0;
    this.unreadable = undefined;
  }

  view(): WitnessView {
    return this.#table.view();
  }
}

/** Reads the only partition of the witness topic into a follower, continuously. */
export class WitnessReader {
  readonly #tail: Pick<Tail, 'follow'>;
  readonly #topic: string;
  readonly #follower: WitnessFollower;
  #followed: Followed | undefined;

  /** The tail reads uncommitted; its creator closes it. */
  constructor(tail: Pick<Tail, 'follow'>, topic: string, follower: WitnessFollower) {
    this.#tail = tail;
    this.#topic = topic;
    this.#follower = follower;
  }

  start(): void {
    const follower = this.#follower;
    const sink: TailSink = {
      deliver: ({ records, next }) => follower.deliver(records, next),
      outOfRange: ({ logStart, end }, position) => {
        if (position > end) follower.rewind(); // the log was replaced, or has lost its end
        return logStart;
      },
    };
    this.#followed = this.#tail.follow({ topic: this.#topic, partition: 0, offset: follower.position }, sink);
  }

  stop(): void {
    this.#followed?.stop();
  }

  /** Continues from the follower's position. */
  restart(): void {
    this.#followed?.seek(this.#follower.position);
  }
}

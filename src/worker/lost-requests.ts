import type { Runtime } from '../async/runtime.ts';
import { type LastRead, readOf } from '../codec/request-position.ts';
import { wallMs } from '../core/units.ts';
import { type LeaderCluster, offsetAt, type PartitionBounds } from '../kafka/loops/leader-calls.ts';
import { ShortLog } from '../kafka/loops/short-log.ts';
import type { FetchedRecord } from '../kafka/records/record.ts';

export interface LostRequestsOptions {
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
const MARGIN_MS = 60_000;

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
export class LostRequests {
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
    const found = await offsetAt(cluster, runtime, query, wholeAtMs - MARGIN_MS);
    return Math.max(logStart, Math.min(answered, end, found === -1 ? end : found));
  }
}

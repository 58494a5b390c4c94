import { createHash } from 'node:crypto';
import type { Runtime } from '../core/runtime.ts';
import { wallMs } from '../core/units.ts';
import { offsetAt, type PartitionBounds } from '../kafka/loops/offsets.ts';
import { ShortLog } from '../kafka/loops/short-log.ts';
import type { FetchedRecord } from '../kafka/records/record.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';

export interface LostRequestsOptions {
  readonly cluster: Pick<Cluster, 'leader' | 'call' | 'markStale'>;
  readonly runtime: Runtime;
  readonly topic: string;
  readonly partition: number;
}

const LOOKUP_TIMEOUT_MS = 5_000;
/**
 * How much earlier than the last good fetch new requests are searched: for the difference of clocks, and for a new leader
 * that took requests while a deposed one still answered our fetches.
 */
const MARGIN_MS = 60_000;

/** A record that was read. */
interface Read {
  readonly offset: number;
  readonly digest: string;
}

/**
 * Notices that a request partition has lost its tail, and finds where it continues. Either it ends below the read position, or it
 * has grown again meanwhile: so after each interruption the last record that was read is read again and compared.
 *
 * The offsets of lost requests are reused. So a new request may lie below everything that was read before, and must not be
 * passed over. All timestamps of the topic are its brokers' (LogAppendTime): whatever is new is not older than the last
 * fetch that found the log whole. If only a deposed leader reported a shorter log, the requests of about a minute are
 * answered again.
 */
export class LostRequests {
  readonly #options: LostRequestsOptions;
  readonly #short: ShortLog;
  #wholeAtMs: number | undefined;
  #last: Read | undefined;
  /** What the log must still have, until that is known. */
  #expected: Read | undefined;

  constructor(options: LostRequestsOptions) {
    this.#options = options;
    this.#short = new ShortLog(`${options.topic}/${options.partition}`, options.runtime);
  }

  /** These records were read. */
  read(records: readonly FetchedRecord[]): void {
    const last = records.at(-1);
    if (last !== undefined) this.#last = { offset: last.offset, digest: digestOf(last) };
  }

  /** The offset after the last record that was read; Infinity if none was. */
  get readTo(): number {
    return this.#last === undefined ? Number.POSITIVE_INFINITY : this.#last.offset + 1;
  }

  /** Reading was interrupted. Returns the offset from which it must continue, with a comparison; undefined if nothing was read. */
  compareFrom(): number | undefined {
    this.#expected ??= this.#last;
    return this.#expected?.offset;
  }

  /** Whether the next records that were read fit what was read before. */
  fits([first]: readonly FetchedRecord[]): boolean {
    const expected = this.#expected;
    if (expected === undefined) return true;
    if (first === undefined || first.offset !== expected.offset || digestOf(first) !== expected.digest) return false;
    this.#expected = undefined;
    return true;
  }

  /** What was to be compared has expired, as all below the start of the log has. */
  expired(): void {
    this.#expected = undefined;
  }

  /** A fetch from the read position was answered. */
  fetched(): void {
    if (this.#expected === undefined) this.#wholeAtMs = wallMs(this.#options.runtime.wallMs());
  }

  /**
   * The first offset to read again, given the read position and the offset below which everything is answered. Before the
   * first fetch nothing says when the tail was lost, and the whole log is read: then it rejects with OFFSET_OUT_OF_RANGE
   * until the log has been short for 6 s. Rejects also as `offsetAt` does.
   */
  async continueAt({ logStart, end }: PartitionBounds, position: number, answered = logStart): Promise<number> {
    if (this.#wholeAtMs === undefined) {
      this.#short.confirm(end, position);
      return logStart;
    }
    const { cluster, runtime, topic, partition } = this.#options;
    const query = { topic, partition, isolation: 'read_committed' as const, timeoutMs: LOOKUP_TIMEOUT_MS };
    const found = await offsetAt(cluster, runtime, query, this.#wholeAtMs - MARGIN_MS);
    return Math.max(logStart, Math.min(answered, end, found === -1 ? end : found));
  }
}

/** Equal for equal records. The time is the broker's, so a request that is sent again differs. */
function digestOf({ timestampMs, key, value }: FetchedRecord): string {
  const hash = createHash('sha256').update(`${timestampMs} ${key?.length ?? -1} `);
  return hash
    .update(key ?? '')
    .update(value ?? '')
    .digest('base64');
}

import type { Runtime } from '../core/runtime.ts';
import { wallMs } from '../core/units.ts';
import { offsetAt, type PartitionBounds } from '../kafka/loops/offsets.ts';
import { ShortLog } from '../kafka/loops/short-log.ts';
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

/**
 * Finds where a request partition continues that ends below its read position.
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

  constructor(options: LostRequestsOptions) {
    this.#options = options;
    this.#short = new ShortLog(`${options.topic}/${options.partition}`, options.runtime);
  }

  /** A fetch from the read position was answered. */
  fetched(): void {
    this.#wholeAtMs = wallMs(this.#options.runtime.wallMs());
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

import { IdallocError } from '../errors.ts';

/** How a client is now, and its totals since it was opened. */
export interface ClientMetrics {
  /** Whether close() was called. */
  readonly closed: boolean;
  /** IDs in the buffer. */
  readonly buffered: number;
  /** At this number of buffered IDs or fewer, more are requested. */
  readonly lowWater: number;
  /** The rate for which the buffer is sized. */
  readonly idsPerSecond: number;
  /** Calls of takeAsync, takeNumbersAsync and ready that wait now. */
  readonly waiting: number;
  /** Requests without a reply now. */
  readonly pending: number;
  /** Total of IDs that were taken from the buffer. */
  readonly taken: number;
  /** Total of IDs that were dropped from the buffer because of maxAgeMs or maxBuffered. */
  readonly dropped: number;
  /** The age of the oldest ID in the buffer, from its request on; undefined while there is none. */
  readonly oldestMs: number | undefined;
  /** Total of requests, for the buffer and by request(). */
  readonly requests: number;
  /** Total of records that were sent again because no reply came, or because sending failed. */
  readonly resends: number;
  /** Total of replies with a batch. */
  readonly replies: number;
  /** Those of them whose batch was decided for an earlier copy of the request. */
  readonly replayed: number;
  /** Total of records under the correlation ID of a request that were not its answer. */
  readonly passedOver: number;
  /**
   * Total of failures behind the scenes, which the client retries, by code: each one that onError may report; OTHER for
   * one without a code.
   */
  readonly errors: Readonly<Record<string, number>>;
  /**
   * Total of calls without IDs, by code: BUFFER_EMPTY and CLIENT_CLOSED of next and take, and everything with which
   * takeAsync, ready and request reject. ABORTED: the reason of a signal.
   */
  readonly failures: Readonly<Record<string, number>>;
  /** The time from the first send of a request to its reply. */
  readonly latency: LatencySummary;
}

/** Quantiles are those of the last 1,024 replies; undefined before the first. */
export interface LatencySummary {
  readonly count: number;
  readonly sumMs: number;
  readonly p50Ms: number | undefined;
  readonly p95Ms: number | undefined;
  readonly p99Ms: number | undefined;
  /** Since the client was opened. */
  readonly maxMs: number | undefined;
  /** Of all replies, those that took at most so long: for a histogram. */
  readonly buckets: readonly { readonly atMostMs: number; readonly count: number }[];
}

const SAMPLES = 1_024;
const BUCKETS_MS = [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];

/** Counts what a client does. */
export class MetricsRecorder {
  readonly #errors = new Map<string, number>();
  readonly #failures = new Map<string, number>();
  readonly #latencies: number[] = [];
  readonly #buckets = BUCKETS_MS.map((atMostMs) => ({ atMostMs, own: 0 }));
  #sends = 0;
  #replies = 0;
  #replayed = 0;
  #sumMs = 0;
  #maxMs: number | undefined;

  noteSend(): void {
    this.#sends += 1;
  }

  noteReply({ latencyMs, replayed }: { readonly latencyMs: number; readonly replayed: boolean }): void {
    this.#latencies[this.#replies % SAMPLES] = latencyMs;
    this.#replies += 1;
    const bucket = this.#buckets.find(({ atMostMs }) => latencyMs <= atMostMs);
    if (bucket !== undefined) bucket.own += 1;
    if (replayed) this.#replayed += 1;
    this.#sumMs += latencyMs;
    this.#maxMs = Math.max(this.#maxMs ?? 0, latencyMs);
  }

  noteError(error: unknown): void {
    add(this.#errors, error, 'OTHER');
  }

  noteFailure(error: unknown): void {
    add(this.#failures, error, 'ABORTED');
  }

  /** The result of a call, whose rejection is counted. */
  async counted<T>(call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      this.noteFailure(error);
      throw error;
    }
  }

  /** `begun`: requests that were begun. */
  totals(
    begun: number,
  ): Pick<ClientMetrics, 'requests' | 'resends' | 'replies' | 'replayed' | 'errors' | 'failures' | 'latency'> {
    const sorted = this.#latencies.toSorted((one, other) => one - other);
    let atMost = 0;
    const buckets = this.#buckets.map(({ atMostMs, own }) => {
      atMost += own;
      return { atMostMs, count: atMost };
    });
    const quantile = (q: number) => sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)];
    return {
      requests: begun,
      resends: Math.max(0, this.#sends - begun),
      replies: this.#replies,
      replayed: this.#replayed,
      errors: Object.fromEntries(this.#errors),
      failures: Object.fromEntries(this.#failures),
      latency: {
        count: this.#replies,
        sumMs: this.#sumMs,
        p50Ms: quantile(0.5),
        p95Ms: quantile(0.95),
        p99Ms: quantile(0.99),
        maxMs: this.#maxMs,
        buckets,
      },
    };
  }
}

/** Codes are a closed set, so the totals can't grow without bound. */
function add(totals: Map<string, number>, error: unknown, otherwise: string): void {
  const code = error instanceof IdallocError ? error.code : otherwise;
  totals.set(code, (totals.get(code) ?? 0) + 1);
}

import { Problem } from './problem.ts';

/** Callers that are remembered; one that has been idle for a second counts as new. */
const MAX_CALLERS = 1_024;

interface RateLimitOptions {
  /** What is counted, for the message. */
  readonly what: string;
  /** Whether the connection is closed above the limit. */
  readonly closes: boolean;
}

const OF_CALLERS: RateLimitOptions = { what: 'IDs per second for this caller', closes: false };

interface Bucket {
  /** IDs available now; negative after a request for more than that. */
  level: number;
  atMs: number;
}

/**
 * A token bucket per caller that holds the IDs of one second. A request for more than that needs a full bucket, and
 * leaves a debt.
 */
export class RateLimit {
  readonly #perSecond: number;
  readonly #monotonicMs: () => number;
  readonly #options: RateLimitOptions;
  /** Least recently used first. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(perSecond: number, monotonicMs: () => number, options: RateLimitOptions = OF_CALLERS) {
    this.#perSecond = perSecond;
    this.#monotonicMs = monotonicMs;
    this.#options = options;
  }

  /** Throws Problem 429 with the time of a retry. */
  take(caller: string, count: number): void {
    const bucket = this.#bucketOf(caller);
    const missing = Math.min(count, this.#perSecond) - bucket.level;
    if (missing > 0) {
      const { what, closes } = this.#options;
      const detail = `rate limit exceeded: ${this.#perSecond} ${what}`;
      const retryAfterSeconds = Math.ceil(missing / this.#perSecond);
      throw new Problem(429, detail, { retryAfterSeconds, closes });
    }
    bucket.level -= count;
  }

  /** Returns the tokens of IDs that were taken but not issued. */
  giveBack(caller: string, count: number): void {
    const bucket = this.#bucketOf(caller);
    bucket.level = Math.min(bucket.level + count, this.#perSecond);
  }

  #bucketOf(caller: string): Bucket {
    const nowMs = this.#monotonicMs();
    const bucket = this.#buckets.get(caller) ?? { level: this.#perSecond, atMs: nowMs };
    bucket.level = Math.min(bucket.level + ((nowMs - bucket.atMs) * this.#perSecond) / 1_000, this.#perSecond);
    bucket.atMs = nowMs;
    this.#buckets.delete(caller);
    this.#buckets.set(caller, bucket);
    if (this.#buckets.size > MAX_CALLERS) this.#forgetOldest();
    return bucket;
  }

  #forgetOldest(): void {
    for (const caller of this.#buckets.keys()) return void this.#buckets.delete(caller);
  }
}

import { TokenBucket } from '../async/token-bucket.ts';
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

/** A limit for each caller. A request for more than one second has needs a full bucket, and leaves its caller a debt. */
export class RateLimit {
  readonly #perSecond: number;
  readonly #monotonicMs: () => number;
  readonly #options: RateLimitOptions;
  /** Least recently used first. */
  readonly #buckets = new Map<string, TokenBucket>();

  constructor(perSecond: number, monotonicMs: () => number, options: RateLimitOptions = OF_CALLERS) {
    this.#perSecond = perSecond;
    this.#monotonicMs = monotonicMs;
    this.#options = options;
  }

  /** Throws Problem 429 with the time of a retry. */
  take(caller: string, count: number): void {
    const bucket = this.#bucketOf(caller);
    const waitMs = bucket.waitMs(count, { nowMs: this.#monotonicMs() });
    if (waitMs > 0) {
      const { what, closes } = this.#options;
      const detail = `rate limit exceeded: ${this.#perSecond} ${what}`;
      const retryAfterSeconds = Math.ceil(waitMs / 1_000);
      throw new Problem(429, detail, { retryAfterSeconds, closes });
    }
    bucket.owe(count);
  }

  /** Returns the tokens of IDs that were taken but not issued. */
  giveBack(caller: string, count: number): void {
    this.#bucketOf(caller).giveBack(count);
  }

  #bucketOf(caller: string): TokenBucket {
    const bucket = this.#buckets.get(caller) ?? new TokenBucket(this.#perSecond, this.#perSecond);
    this.#buckets.delete(caller);
    this.#buckets.set(caller, bucket);
    if (this.#buckets.size > MAX_CALLERS) this.#forgetOldest();
    return bucket;
  }

  #forgetOldest(): void {
    for (const caller of this.#buckets.keys()) return void this.#buckets.delete(caller);
  }
}

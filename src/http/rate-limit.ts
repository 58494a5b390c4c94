import { Problem } from './problem.ts';

/** Callers that are remembered; one that has asked for nothing lately is as good as a new one. */
const MAX_CALLERS = 1_024;

interface Bucket {
  /** IDs that may be given at once; below 0 after a request that was larger than what was there. */
  level: number;
  atMs: number;
}

/**
 * IDs per second for each caller, by a bucket that holds the IDs of one second. A request for more than that waits for a full
 * bucket, and leaves a debt.
 */
export class RateLimit {
  readonly #perSecond: number;
  readonly #monotonicMs: () => number;
  /** In the order of their last use. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(perSecond: number, monotonicMs: () => number) {
    this.#perSecond = perSecond;
    this.#monotonicMs = monotonicMs;
  }

  /** Throws Problem 429, with when to try again. */
  take(caller: string, count: number): void {
    const bucket = this.#bucketOf(caller);
    const missing = Math.min(count, this.#perSecond) - bucket.level;
    if (missing > 0) {
      const detail = `this caller may have ${this.#perSecond} IDs a second`;
      const retryAfterSeconds = Math.ceil(missing / this.#perSecond);
      throw new Problem(429, detail, { retryAfterSeconds });
    }
    bucket.level -= count;
  }

  /** For IDs that were taken, but not given. */
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

import type { Runtime } from '../async/runtime.ts';
import { TokenBucket } from '../async/token-bucket.ts';
import type { ErrorCode } from '../errors.ts';

/** What one sender of bad records may cause, by code and partition for letters, by reply topic for error replies. */
export interface JunkRate {
  readonly perSecond: number;
  /** At least 1. */
  readonly burst: number;
}

/** Requesters choose the names of reply topics. While this many are limited, a further one gets no error reply. */
const MAX_KEYS = 10_000;
/** How often keys that are no longer limited are looked for. */
const FORGET_MS = 1_000;

/**
 * Limits the work that records which can't be served cause after they were read: above the rate they share a dead
 * letter and get no error reply. The limits are those of the whole worker, whatever number of partitions it serves.
 */
export class JunkLimits {
  readonly #rate: JunkRate;
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #buckets = new Map<string, TokenBucket>();
  #forgotMs = Number.NEGATIVE_INFINITY;

  constructor(rate: JunkRate, runtime: Pick<Runtime, 'monotonicMs'>) {
    this.#rate = rate;
    this.#runtime = runtime;
  }

  /** Whether a record that is rejected with this code gets a dead letter of its own. */
  takeLetter(partition: number, code: ErrorCode): boolean {
    return this.#take(`${partition} ${code}`);
  }

  /** Whether a bad record is answered with an error on this topic. */
  takeReply(topic: string): boolean {
    return this.#take(topic);
  }

  #take(key: string): boolean {
    const nowMs = this.#runtime.monotonicMs();
    const { perSecond, burst } = this.#rate;
    const bucket = this.#buckets.get(key) ?? new TokenBucket(perSecond, burst);
    if (bucket.waitMs(1, { nowMs }) > 0 || !this.#hasRoom(key, nowMs)) return false;
    bucket.take(1);
    this.#buckets.set(key, bucket);
    return true;
  }

  #hasRoom(key: string, nowMs: number): boolean {
    if (this.#buckets.size < MAX_KEYS || this.#buckets.has(key)) return true;
    if (nowMs - this.#forgotMs < FORGET_MS) return false;
    this.#forgotMs = nowMs;
    for (const [known, bucket] of this.#buckets) if (bucket.used({ nowMs }) === 0) this.#buckets.delete(known);
    return this.#buckets.size < MAX_KEYS;
  }
}

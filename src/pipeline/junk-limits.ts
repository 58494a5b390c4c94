import type { Runtime } from '../async/runtime.ts';
import { TokenBucket } from '../async/token-bucket.ts';
import { hasRoom } from '../core/memoize.ts';
import type { ErrorCode } from '../errors.ts';

/** What one sender of bad records may cause, by code and partition for letters, by reply topic for error replies. */
export interface JunkRate {
  readonly perSecond: number;
  /** At least 1. */
  readonly burst: number;
}

/** Requesters choose the names of reply topics. While this many are limited, a further one gets no error reply. */
const MAX_KEYS = 10_000;

/**
 * Limits the work that records which can't be served cause after they were read: above the rate they share a dead
 * letter and get no error reply. The limits are those of the whole worker, whatever number of partitions it serves.
 */
export class JunkLimits {
  readonly #rate: JunkRate;
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #buckets = new Map<string, TokenBucket>();

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
    const known = this.#buckets.get(key);
    if (known === undefined && !hasRoom(this.#buckets, MAX_KEYS, (bucket) => bucket.used({ nowMs }) > 0)) return false;
    const bucket = known ?? new TokenBucket(perSecond, burst);
    if (bucket.waitMs(1, { nowMs }) > 0) return false;
    bucket.take(1);
    this.#buckets.set(key, bucket);
    return true;
  }
}

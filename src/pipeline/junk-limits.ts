import type { Runtime } from '../async/runtime.ts';
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
 * letter and get no error reply. Kept for the whole worker, by the generic cell rate algorithm: each key has the time
 * up to which its rate is used up, which may be ahead of now by at most the burst.
 */
export class JunkLimits {
  readonly #intervalMs: number;
  /** How far ahead of now a key may be used up and still be taken from. */
  readonly #aheadMs: number;
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #usedUntilMs = new Map<string, number>();
  #forgotMs = Number.NEGATIVE_INFINITY;

  constructor(rate: JunkRate, runtime: Pick<Runtime, 'monotonicMs'>) {
    this.#intervalMs = 1_000 / rate.perSecond;
    this.#aheadMs = (rate.burst - 1) * this.#intervalMs;
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
    const usedMs = Math.max(this.#usedUntilMs.get(key) ?? nowMs, nowMs);
    if (usedMs - nowMs > this.#aheadMs || !this.#hasRoom(key, nowMs)) return false;
    this.#usedUntilMs.set(key, usedMs + this.#intervalMs);
    return true;
  }

  #hasRoom(key: string, nowMs: number): boolean {
    if (this.#usedUntilMs.size < MAX_KEYS || this.#usedUntilMs.has(key)) return true;
    if (nowMs - this.#forgotMs < FORGET_MS) return false;
    this.#forgotMs = nowMs;
    for (const [known, usedMs] of this.#usedUntilMs) if (usedMs <= nowMs) this.#usedUntilMs.delete(known);
    return this.#usedUntilMs.size < MAX_KEYS;
  }
}

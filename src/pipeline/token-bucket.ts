/** The time of a check, and the bucket's share of its rate. */
export interface Moment {
  readonly nowMs: number;
  readonly share: number;
}

/**
 * A token bucket that holds one second's worth, at least 1, and starts full.
 *
 * More than it holds may be taken when it is full. That empties it, and the rest is an overdraft, repaid by what a full
 * bucket can't take. So what fits into the bucket waits for one second's worth at most, whatever was taken before, only
 * the next overdraft waits for this one, and the rate holds: above it are one second's worth and one overdraft, once.
 */
export class TokenBucket {
  readonly #perSecond: number;
  #held: number | undefined;
  #overdraft = 0;
  #lookedMs = 0;

  constructor(perSecond = Number.POSITIVE_INFINITY) {
    this.#perSecond = perSecond;
  }

  /** Refills up to now. Returns how long until `wanted` may be taken; 0 for immediately. */
  waitMs(wanted: number, { nowMs, share }: Moment): number {
    if (this.#perSecond === Number.POSITIVE_INFINITY) return 0;
    const rate = this.#perSecond * share;
    const size = Math.max(1, rate);
    const refilled = (this.#held ?? size) + (rate * (nowMs - this.#lookedMs)) / 1_000;
    this.#lookedMs = nowMs;
    this.#overdraft = Math.max(0, this.#overdraft - Math.max(0, refilled - size));
    this.#held = Math.min(size, refilled);
    const due = wanted > size ? size + this.#overdraft : wanted;
    return Math.max(0, ((due - this.#held) * 1_000) / rate);
  }

  /** How much of what it can hold is missing now, from 0 to 1. */
  used(at: Moment): number {
    this.waitMs(0, at); // refills
    return this.#held === undefined ? 0 : 1 - this.#held / Math.max(1, this.#perSecond * at.share);
  }

  /** Takes what `waitMs` has just allowed. */
  take(wanted: number): void {
    if (this.#held === undefined) return;
    this.#overdraft += Math.max(0, wanted - this.#held);
    this.#held = Math.max(0, this.#held - wanted);
  }
}

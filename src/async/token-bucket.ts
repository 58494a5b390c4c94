/** The time of a check, and the bucket's share of its rate, which is 1 if it has the whole. */
export interface Moment {
  readonly nowMs: number;
  readonly share?: number;
}

/**
 * A limit of a rate that allows bursts. It starts full, refills at `perSecond`, and holds `burst` tokens, by default
 * those of one second and at least 1.
 *
 * What can a request do that needs more tokens than the bucket can hold? It waits until the bucket is full, and takes
 * all. The rest has to come from the future, and there are two answers to whose future that is. As a debt (`owe`)
 * everything that follows waits until the debt is paid, which suits the limit of one caller, who made it. As an
 * overdraft (`take`) it is repaid only by what a full bucket can't hold, which suits the limit that many requesters
 * share: what fits into the bucket waits for one second's worth at most, whatever was taken before, and only the next
 * overdraft waits for this one. Either way the rate holds: above it are one burst and one excess, once.
 */
export class TokenBucket {
  readonly #perSecond: number;
  readonly #burst: number | undefined;
  #held: number | undefined;
  #overdraft = 0;
  #lookedMs = 0;

  constructor(perSecond = Number.POSITIVE_INFINITY, burst?: number) {
    this.#perSecond = perSecond;
    this.#burst = burst;
  }

  /** Refills up to now. Returns how long until `wanted` may be taken; 0 for immediately. */
  waitMs(wanted: number, { nowMs, share = 1 }: Moment): number {
    if (this.#perSecond === Number.POSITIVE_INFINITY) return 0;
    const rate = this.#perSecond * share;
    const size = this.#sizeAt(share);
    const refilled = (this.#held ?? size) + (rate * (nowMs - this.#lookedMs)) / 1_000;
    this.#lookedMs = nowMs;
    this.#overdraft = Math.max(0, this.#overdraft - Math.max(0, refilled - size));
    this.#held = Math.min(size, refilled);
    const due = wanted > size ? size + this.#overdraft : wanted;
    return Math.max(0, ((due - this.#held) * 1_000) / rate);
  }

  /** How much of what it can hold is missing now, from 0 to 1; above 1 with a debt. */
  used(at: Moment): number {
    this.waitMs(0, at); // refills
    return this.#held === undefined ? 0 : 1 - this.#held / this.#sizeAt(at.share);
  }

  /** Takes what `waitMs` has just allowed; what is missing is an overdraft. */
  take(wanted: number): void {
    if (this.#held === undefined) return;
    this.#overdraft += Math.max(0, wanted - this.#held);
    this.#held = Math.max(0, this.#held - wanted);
  }

  /** Takes what `waitMs` has just allowed; what is missing is a debt. */
  owe(wanted: number): void {
    if (this.#held !== undefined) this.#held -= wanted;
  }

  /** Returns tokens that were taken and not used. The next look drops what the bucket can't hold. */
  giveBack(unused: number): void {
    if (this.#held !== undefined) this.#held += unused;
  }

  #sizeAt(share = 1): number {
    return this.#burst ?? Math.max(1, this.#perSecond * share);
  }
}

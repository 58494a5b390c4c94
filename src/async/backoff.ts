export interface WaitLimits {
  readonly minMs: number;
  readonly maxMs: number;
}

/** Keeps the power finite. */
const MAX_DOUBLINGS = 20;

/** Exponential backoff: each wait is twice as long as the one before, up to a limit. */
export class Backoff {
  readonly #waits: WaitLimits;
  readonly #random: () => number;
  #failures = 0;

  /**
   * `random`, in [0, 1), adds jitter: a wait is between half of its length and all of it. Without it waits are exact.
   */
  constructor(waits: WaitLimits, random: () => number = () => 1) {
    this.#waits = waits;
    this.#random = random;
  }

  /** Failed attempts since the last reset. */
  get failures(): number {
    return this.#failures;
  }

  reset(): void {
    this.#failures = 0;
  }

  /** Counts another failure, and returns how long to wait after it. */
  nextMs(): number {
    const { minMs, maxMs } = this.#waits;
    const waitMs = Math.min(maxMs, minMs * 2 ** Math.min(this.#failures, MAX_DOUBLINGS));
    this.#failures += 1;
    return waitMs * (1 + this.#random()) * 0.5;
  }
}

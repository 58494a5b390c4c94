export interface DemandOptions {
  /** How long the buffer lasts when no IDs come. */
  readonly coverSeconds: number;
  /** The least rate to be ready for, in IDs per second. */
  readonly idsPerSecond: number;
  readonly maxBuffered: number;
}

/** Uses within less than this are no rate yet: a burst of a millisecond would ask for a buffer a thousand times too large. */
const WINDOW_MS = 1_000;
/** A peak is remembered, and fades. */
const HALF_LIFE_MS = 60_000;
/** The longest wait for a reply that counts as usual; longer ones are the outage that is covered. */
const MAX_LEAD_MS = 2_000;
const LEAD_FADES = 0.9;

/**
 * How many IDs should be there, from how fast they were used: it rises with the rate at once and falls slowly.
 *
 *   low-water mark = rate x (coverSeconds + usual wait for a reply);  a refill brings twice that
 */
export class Demand {
  readonly #options: DemandOptions;
  #rate: number;
  #leadMs = 0;
  #windowMs: number;
  #windowTaken = 0;

  constructor(options: DemandOptions, nowMs: number) {
    this.#options = options;
    this.#rate = options.idsPerSecond;
    this.#windowMs = nowMs;
  }

  /** IDs per second to be ready for. */
  get rate(): number {
    return this.#rate;
  }

  /** Takes note of how many IDs were ever given out. */
  note(nowMs: number, taken: number): void {
    const elapsedMs = nowMs - this.#windowMs;
    const seen = ((taken - this.#windowTaken) * 1_000) / Math.max(WINDOW_MS, elapsedMs);
    if (elapsedMs < WINDOW_MS) {
      this.#rate = Math.max(this.#rate, seen);
      return;
    }
    const faded = this.#rate * 0.5 ** (elapsedMs / HALF_LIFE_MS);
    this.#rate = Math.max(seen, faded, this.#options.idsPerSecond);
    this.#windowMs = nowMs;
    this.#windowTaken = taken;
  }

  /** Takes note of how long a reply took. */
  replied(latencyMs: number): void {
    this.#leadMs = Math.min(MAX_LEAD_MS, Math.max(latencyMs, this.#leadMs * LEAD_FADES));
  }

  /** With no more IDs than this left, more are asked for. */
  get low(): number {
    const { coverSeconds, maxBuffered } = this.#options;
    const wanted = Math.ceil(this.#rate * (coverSeconds + this.#leadMs / 1_000));
    return Math.max(1, Math.min(wanted, Math.floor(maxBuffered / 2)));
  }

  /** As many as a refill brings: the second buffer behind the first. */
  get full(): number {
    return 2 * this.low;
  }
}

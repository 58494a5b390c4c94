export interface DemandOptions {
  /** How long the buffer must last when no IDs arrive. */
  readonly coverSeconds: number;
  /** The minimum rate to be ready for, in IDs per second. */
  readonly idsPerSecond: number;
  readonly maxBuffered: number;
}

/** Rates are measured over at least this: a burst of one millisecond would suggest a buffer a thousand times too large. */
const WINDOW_MS = 1_000;
/** A peak decays with this half-life. */
const HALF_LIFE_MS = 60_000;
/** Longer waits for a reply count as outages, which coverSeconds covers. */
const MAX_LEAD_MS = 2_000;
const LEAD_DECAY = 0.9;

/**
 * How many IDs the buffer should hold, from how fast they are used. It rises with the rate immediately and falls slowly.
 *
 *   low-water mark = rate x (coverSeconds + usual latency of a reply);  a refill fills up to twice that
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

  /** Updates the rate; `taken` is the total number of IDs taken so far. */
  note(nowMs: number, taken: number): void {
    const elapsedMs = nowMs - this.#windowMs;
    const measured = ((taken - this.#windowTaken) * 1_000) / Math.max(WINDOW_MS, elapsedMs);
    if (elapsedMs < WINDOW_MS) {
      this.#rate = Math.max(this.#rate, measured);
      return;
    }
    const decayed = this.#rate * 0.5 ** (elapsedMs / HALF_LIFE_MS);
    this.#rate = Math.max(measured, decayed, this.#options.idsPerSecond);
    this.#windowMs = nowMs;
    this.#windowTaken = taken;
  }

  /** Updates the usual latency of a reply. */
  replied(latencyMs: number): void {
    this.#leadMs = Math.min(MAX_LEAD_MS, Math.max(latencyMs, this.#leadMs * LEAD_DECAY));
  }

  /** The low-water mark: at this many IDs or fewer, more are requested. */
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

import {
  anchorGuard,
  type BrokerDrift,
  type ClockGuard,
  type DriftInterval,
  type DriftSample,
  driftInterval,
  driftVerdict,
  MAX_PAUSE_MS,
  noDrift,
  observe,
  recordDrift,
} from '../core/clock-guard.ts';
import { elapsedMs, type Reading } from '../core/units.ts';
import type { GuardedReading } from '../identity/settings.ts';

/**
 * The one clock of a worker: whoever allocates or raises a ceiling reads it here, so that every reading passes the one
 * guard. An ejection stays until `resetAnchor`.
 */
export class GuardedClock {
  readonly #readClock: () => Reading;
  #guard: ClockGuard;
  #last: Reading;
  #onPause: ((now: Reading) => void) | undefined;
  #drift: BrokerDrift = noDrift;

  constructor(readClock: () => Reading) {
    this.#readClock = readClock;
    this.#last = readClock();
    this.#guard = anchorGuard(this.#last);
  }

  /**
   * Tells from now on of each time that the process stood still, before whoever reads the clock next gets its reading.
   * Somebody has to read the clock every 50 ms, as the runner of an identity does.
   */
  onPause(told: (now: Reading) => void): void {
    this.#last = this.#readClock();
    this.#onPause = told;
  }

  read(): GuardedReading {
    const reading = this.#readClock();
    const { guard, verdict } = observe(this.#guard, reading);
    this.#guard = guard;
    const stoodMs = elapsedMs(this.#last, reading);
    this.#last = reading;
    if (stoodMs > MAX_PAUSE_MS && verdict.kind !== 'eject') this.#onPause?.(reading);
    return { reading, verdict: verdict.kind === 'steady' ? driftVerdict(this.#drift) : verdict };
  }

  /** Takes what a broker's answer tells of our clock. */
  recordDrift(sample: DriftSample): void {
    this.#drift = recordDrift(this.#drift, sample);
  }

  drift(): DriftInterval | undefined {
    return driftInterval(this.#drift);
  }

  /** A new term begins: what was held against the clock before no longer counts. */
  resetAnchor(): void {
    this.#guard = anchorGuard(this.#readClock());
    this.#drift = noDrift;
  }
}

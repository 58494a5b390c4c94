import {
  anchorGuard,
  type BrokerDrift,
  type ClockGuard,
  type DriftInterval,
  type DriftSample,
  driftInterval,
  driftVerdict,
  noDrift,
  observe,
  recordDrift,
} from './core/clock-guard.ts';
import type { Reading } from './core/units.ts';
import type { GuardedReading } from './identity/settings.ts';

/**
 * The one clock of a worker: whoever allocates or raises a ceiling reads it here, so that every reading passes the one
 * guard. An ejection stays until `trustAnew`.
 */
export class GuardedClock {
  readonly #readClock: () => Reading;
  #guard: ClockGuard;
  #drift: BrokerDrift = noDrift;

  constructor(readClock: () => Reading) {
    this.#readClock = readClock;
    this.#guard = anchorGuard(readClock());
  }

  read(): GuardedReading {
    const reading = this.#readClock();
    const { guard, verdict } = observe(this.#guard, reading);
    this.#guard = guard;
    return { reading, verdict: verdict.kind === 'steady' ? driftVerdict(this.#drift) : verdict };
  }

  /** Takes what a broker's answer tells of our clock. */
  recordDrift(sample: DriftSample): void {
    this.#drift = recordDrift(this.#drift, sample);
  }

  drift(): DriftInterval | undefined {
    return driftInterval(this.#drift);
  }

  /** A new reign begins: what was held against the clock before no longer counts. */
  trustAnew(): void {
    this.#guard = anchorGuard(this.#readClock());
    this.#drift = noDrift;
  }
}

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
 * The clock of a worker: everything that allocates or raises a ceiling reads it here, so that every reading passes the
 * same guard. An ejection lasts until `resetAnchor`.
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
   * Calls back after each pause of the process, before the next reading is returned. The clock must be read every 50 ms,
   * as the identity runner does.
   */
  onPause(listener: (now: Reading) => void): void {
    this.#last = this.#readClock();
    this.#onPause = listener;
  }

  read(): GuardedReading {
    const reading = this.#readClock();
    const { guard, verdict } = observe(this.#guard, reading);
    this.#guard = guard;
    const pausedMs = elapsedMs(this.#last, reading);
    this.#last = reading;
    if (pausedMs > MAX_PAUSE_MS && verdict.kind !== 'eject') this.#onPause?.(reading);
    return { reading, verdict: verdict.kind === 'steady' ? driftVerdict(this.#drift) : verdict };
  }

  /** Adds a sample of a broker's clock to the drift. */
  recordDrift(sample: DriftSample): void {
    this.#drift = recordDrift(this.#drift, sample);
  }

  drift(): DriftInterval | undefined {
    return driftInterval(this.#drift);
  }

  /** The drift against each broker that has answered lately. */
  driftByBroker(): readonly (readonly [string, DriftInterval])[] {
    return [...this.#drift.brokers];
  }

  /** Forgets all earlier readings, ejections and drift, for a new term. */
  resetAnchor(): void {
    this.#guard = anchorGuard(this.#readClock());
    this.#drift = noDrift;
  }
}

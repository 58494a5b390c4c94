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
import { elapsedMs, type Reading, type WallMs } from '../core/units.ts';
import type { GuardedReading } from '../identity/state.ts';

/** For so long a broker that does not answer is still shown with its last drift: it may lead no partition any more. */
const SHOWN_MS = 600_000;

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
  /** When each broker last answered. */
  readonly #heard = new Map<string, Reading>();

  constructor(readClock: () => Reading) {
    this.#readClock = readClock;
    this.#last = readClock();
    this.#guard = anchorGuard(this.#last);
  }

  /**
   * Calls back after each pause of the process, before the next reading is returned. The clock must be read every 50
   * ms, as the identity runner does.
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
    const judged = verdict.kind === 'steady' ? driftVerdict(this.#drift) : verdict;
    return { reading, verdict: judged } as GuardedReading;
  }

  /** The time, unless the clock is ejected, or no broker's clock was compared with it in this term. */
  trusted(): WallMs | undefined {
    const { reading, verdict } = this.read();
    return verdict.kind === 'eject' || this.drift() === undefined ? undefined : reading.wall;
  }

  /** Adds a sample of a broker's clock to the drift. */
  recordDrift(sample: DriftSample): void {
    this.#drift = recordDrift(this.#drift, sample);
    this.#heard.set(sample.broker, this.#last);
  }

  drift(): DriftInterval | undefined {
    return driftInterval(this.#drift);
  }

  /** The drift against each broker that has answered lately. */
  driftByBroker(): readonly (readonly [string, DriftInterval])[] {
    const isRecent = (heard = this.#last) => elapsedMs(heard, this.#last) < SHOWN_MS;
    for (const [broker, heard] of this.#heard) if (!isRecent(heard)) this.#heard.delete(broker);
    return [...this.#drift.brokers].filter(([broker]) => this.#heard.has(broker));
  }

  /** Forgets all earlier readings, ejections and drift, for a new term. */
  resetAnchor(): void {
    this.#guard = anchorGuard(this.#readClock());
    this.#drift = noDrift;
  }
}

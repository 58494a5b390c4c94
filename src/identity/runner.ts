import type { LeaseTiming } from '../core/reservation.ts';
import { elapsedMs, type Random } from '../core/units.ts';
import type { Identity } from './identity.ts';
import type { GuardedReading } from './settings.ts';
import { type AcquireOutcome, type HeartbeatOutcome, refusalOf } from './state.ts';

/** From the start of a heartbeat that failed to the next: several fit in before the own deadline. */
const RETRY_MS = 1_000;
/** The pause after one that failed late, as calls without an answer do: there is no time left to lose. */
const LATE_RETRY_MS = 100;
/** A ceiling that is waited for is read again at least this often: it may be overtaken, or another worker may leave. */
const MAX_WAIT_STEP_MS = 1_000;
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 5_000;
const MAX_RACE_PAUSE_MS = 250;
/**
 * How often clock and deadline are looked at, also while etcd is silent and nobody allocates. So short that a clock which
 * is slewed as fast as NTP does (8 %) loses no 10 ms from one look to the next, and one that steps back 10 ms does.
 */
const PATROL_MS = 50;
/** After an ejection the clock must keep steady under a new anchor for this long; a frozen one shows after 1 s. */
const PROBATION_MS = 1_500;

/** How often the brokers are asked for the time while an identity is held: a worker that is idle drifts as well. */
const ASK_MS = 60_000;

export interface RunnerOptions {
  readonly identity: Identity;
  readonly timing: LeaseTiming;
  readonly readClock: () => GuardedReading;
  /** Gives the clock guard a new anchor, so that a clock that was ejected can show that it is well again. */
  readonly resetClockAnchor: () => void;
  /** Has the clock guard learn from the brokers' clocks; rejects when none answers. */
  readonly measureDrift?: () => Promise<void>;
  /** Resolves after ms by the monotonic clock, or as soon as the signal aborts; never rejects. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly random: Random;
  /** How long giving the identity back may take at the end. */
  readonly releaseLimitMs: number;
}

/**
 * Keeps an identity for as long as the process wants one: acquires with back-off, sends heartbeats, gives the identity
 * back when the clock is ejected, and acquires anew when the clock is steady again.
 */
export class IdentityRunner {
  readonly #options: RunnerOptions;
  #failures = 0;
  #pause = new AbortController();

  constructor(options: RunnerOptions) {
    this.#options = options;
  }

  /** Ends the present pause, so that the next step comes at once. */
  wake(): void {
    this.#pause.abort();
  }

  /**
   * Runs until the signal aborts, then gives the identity back within its limit. Rejects with NAMESPACE_MISMATCH or
   * NAMESPACE_DAMAGED, after giving the identity back: no worker of this configuration may go on.
   */
  async run(signal: AbortSignal): Promise<void> {
    const ended = new AbortController();
    const stop = AbortSignal.any([signal, ended.signal]);
    const patrol = this.#patrol(stop);
    const asking = this.#sampleClocks(stop);
    try {
      // A step in flight is not waited for: giving the identity back makes it end without effect.
      await Promise.race([this.#steps(stop), aborted(stop)]);
    } finally {
      ended.abort();
      await this.#release();
      await Promise.all([patrol, asking]);
    }
  }

  async #steps(stop: AbortSignal): Promise<void> {
    while (!stop.aborted) {
      this.#pause = new AbortController();
      const pauseMs = await this.#step();
      await this.#options.sleep(pauseMs, AbortSignal.any([stop, this.#pause.signal]));
    }
  }

  /** One step, and how long to pause after it. */
  async #step(): Promise<number> {
    const { identity, readClock } = this.#options;
    const { reading, verdict } = readClock();
    const leftMs = (periodMs: number) => Math.max(0, periodMs - elapsedMs(reading, readClock().reading));
    if (identity.state.workerId !== undefined) {
      return this.#afterHeartbeat(await identity.heartbeat(), leftMs);
    }
    if (verdict.kind === 'eject') {
      await identity.release(refusalOf(verdict));
      this.#options.resetClockAnchor();
      return PROBATION_MS;
    }
    return this.#afterAcquire(await identity.acquire(), leftMs);
  }

  /** `leftMs` tells how much of a period that began with the step is still to come. */
  #afterHeartbeat(outcome: HeartbeatOutcome, leftMs: (periodMs: number) => number): number {
    switch (outcome.kind) {
      case 'held':
        return this.#options.identity.state.mode === 'held' ? leftMs(this.#options.timing.heartbeatMs) : 0;
      case 'ejected':
        return 0;
      case 'failed':
        return Math.max(LATE_RETRY_MS, leftMs(RETRY_MS));
      case 'lost':
      case 'stopped':
        return RETRY_MS;
    }
  }

  #afterAcquire(outcome: AcquireOutcome, leftMs: (periodMs: number) => number): number {
    const { random, timing } = this.#options;
    switch (outcome.kind) {
      case 'held':
        this.#failures = 0;
        return leftMs(timing.heartbeatMs);
      case 'waiting':
        return Math.min(Math.max(outcome.waitMs, 1), MAX_WAIT_STEP_MS);
      case 'raced':
        return random() * MAX_RACE_PAUSE_MS;
      case 'refused':
      case 'failed':
      case 'stopped':
        this.#failures += 1;
        return backOffMs(this.#failures, random);
    }
  }

  /** Closes what must be closed though no step is due: a deadline that has passed, a clock that has gone wrong. */
  async #patrol(stop: AbortSignal): Promise<void> {
    const { identity, readClock, sleep } = this.#options;
    let paused = false;
    while (!stop.aborted) {
      const untilDeadlineMs = identity.remainingMs(readClock().reading);
      await sleep(untilDeadlineMs > 0 ? Math.min(PATROL_MS, Math.ceil(untilDeadlineMs)) : PATROL_MS, stop);
      const { reading, verdict } = readClock();
      if (verdict.kind !== 'eject') identity.check(reading); // by a clock that jumped the deadline would seem to have passed
      const { workerId, refusal } = identity.state;
      const before = paused;
      paused = refusal?.code === 'PROCESS_PAUSED';
      if (paused && !before) this.wake();
      if (verdict.kind !== 'eject') continue;
      const released = workerId === undefined || identity.release(refusalOf(verdict));
      this.wake();
      await released;
    }
  }

  async #sampleClocks(stop: AbortSignal): Promise<void> {
    const { identity, measureDrift, sleep } = this.#options;
    while (!stop.aborted) {
      await sleep(ASK_MS, stop);
      if (stop.aborted || identity.state.mode !== 'held') continue;
      // Brokers that tell nothing now are asked again; what they said last goes on counting.
      await Promise.race([measureDrift?.().catch(() => undefined), aborted(stop)]);
    }
  }

  async #release(): Promise<void> {
    const { identity, releaseLimitMs, sleep } = this.#options;
    const over = new AbortController();
    const released = identity.release({ code: 'NO_IDENTITY', message: 'the worker is stopping' });
    await Promise.race([released, sleep(releaseLimitMs, over.signal)]);
    over.abort();
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Doubles from 500 ms to 5 s; the half that is random keeps workers that failed together apart. */
function backOffMs(failures: number, random: Random): number {
  const fullMs = Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** Math.min(failures - 1, 10));
  return fullMs * (0.5 + random() / 2);
}

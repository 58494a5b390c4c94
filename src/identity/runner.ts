import { Backoff } from '../async/retrying.ts';
import { aborted, atMost } from '../async/waiting.ts';
import type { LeaseTiming } from '../core/reservation.ts';
import { elapsedMs, type Random } from '../core/units.ts';
import type { Identity } from './identity.ts';
import { type AcquireOutcome, type GuardedReading, type HeartbeatOutcome, refusalFor } from './state.ts';

/**
 * From the start of a heartbeat that failed, or that left the term suspended, to the next: several fit in before the
 * own deadline, and an etcd that refuses all writes is asked no more often than this.
 */
const RETRY_MS = 1_000;
/** The pause after a heartbeat that failed late, such as by a timeout: there is no time left to lose. */
const LATE_RETRY_MS = 100;
/** While waiting for a ceiling, etcd is read again at least this often: another worker may take the ID, or leave. */
const MAX_WAIT_STEP_MS = 1_000;
/** Between failed attempts to acquire; with jitter, to spread workers that failed together. */
const BACKOFF_MS = { minMs: 500, maxMs: 5_000 };
const MAX_RACE_PAUSE_MS = 250;
/**
 * How often clock and deadline are checked, even while etcd is silent and no request comes. So short that a clock
 * slewed by NTP at its fastest (8 %) loses less than 10 ms between two checks, while a step back of 10 ms is noticed.
 */
const CHECK_MS = 50;
/** After an ejection the clock must stay steady under a new anchor for this long; a frozen clock shows after 1 s. */
const PROBATION_MS = 1_500;

/** How often the brokers' clocks are sampled while an identity is held: an idle worker drifts too. */
const DRIFT_SAMPLE_MS = 60_000;

export interface RunnerOptions {
  readonly identity: Identity;
  readonly timing: LeaseTiming;
  readonly readClock: () => GuardedReading;
  /** Gives the clock guard a new anchor, so that an ejected clock can prove itself again. */
  readonly resetClockAnchor: () => void;
  /** Feeds the clock guard with the brokers' clocks; rejects when no broker answers. */
  readonly measureDrift?: () => Promise<void>;
  /** Resolves after ms by the monotonic clock, or as soon as the signal aborts; never rejects. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly random: Random;
  /** How long releasing the identity may take at the end. */
  readonly releaseLimitMs: number;
}

/**
 * Keeps an identity for as long as the process runs: acquires with back-off, sends heartbeats, releases the identity
 * when the clock is ejected, and acquires again when the clock is steady.
 */
export class IdentityRunner {
  readonly #options: RunnerOptions;
  readonly #backoff: Backoff;
  #pause = new AbortController();

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#backoff = new Backoff(BACKOFF_MS, options.random);
  }

  /** Ends the current pause, so that the next step runs immediately. */
  wake(): void {
    this.#pause.abort();
  }

  /**
   * Runs until the signal aborts, then releases the identity within its limit. Rejects with NAMESPACE_MISMATCH or
   * NAMESPACE_DAMAGED after releasing the identity: no worker may continue with this configuration.
   */
  async run(signal: AbortSignal): Promise<void> {
    const ended = new AbortController();
    const stop = AbortSignal.any([signal, ended.signal]);
    const patrol = this.#watchDeadline(stop);
    const asking = this.#sampleClocks(stop);
    try {
      // A step in flight is not awaited: the release makes it end without effect.
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
      await identity.release(refusalFor(verdict));
      this.#options.resetClockAnchor();
      return PROBATION_MS;
    }
    return this.#afterAcquire(await identity.acquire(), leftMs);
  }

  /** `leftMs` returns the rest of a period that started with the step. */
  #afterHeartbeat(outcome: HeartbeatOutcome, leftMs: (periodMs: number) => number): number {
    switch (outcome.kind) {
      case 'held':
        return leftMs(this.#options.identity.state.mode === 'held' ? this.#options.timing.heartbeatMs : RETRY_MS);
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
        this.#backoff.reset();
        return leftMs(timing.heartbeatMs);
      case 'waiting':
        return Math.min(Math.max(outcome.waitMs, 1), MAX_WAIT_STEP_MS);
      case 'raced':
        return random() * MAX_RACE_PAUSE_MS;
      case 'failed':
        return outcome.error.code === 'ETCD_REFUSED' ? leftMs(RETRY_MS) : this.#backoff.nextMs();
      case 'refused':
      case 'stopped':
        return this.#backoff.nextMs();
    }
  }

  /** Suspends or releases the identity between steps: when its deadline passes or the clock goes wrong. */
  async #watchDeadline(stop: AbortSignal): Promise<void> {
    const { identity, readClock, sleep } = this.#options;
    let paused = false;
    while (!stop.aborted) {
      const untilDeadlineMs = identity.remainingMs(readClock().reading);
      await sleep(untilDeadlineMs > 0 ? Math.min(CHECK_MS, Math.ceil(untilDeadlineMs)) : CHECK_MS, stop);
      const { reading, verdict } = readClock();
      // By a clock that jumped, the deadline would seem to have passed.
      if (verdict.kind !== 'eject') identity.check(reading);
      const { workerId, refusal } = identity.state;
      const before = paused;
      paused = refusal?.code === 'PROCESS_PAUSED';
      if (paused && !before) this.wake();
      if (verdict.kind !== 'eject') continue;
      const released = workerId === undefined || identity.release(refusalFor(verdict));
      this.wake();
      await released;
    }
  }

  async #sampleClocks(stop: AbortSignal): Promise<void> {
    const { identity, measureDrift, sleep } = this.#options;
    while (!stop.aborted) {
      await sleep(DRIFT_SAMPLE_MS, stop);
      if (stop.aborted || identity.state.mode !== 'held') continue;
      // If no broker answers, the last samples stay in use until the next try.
      await Promise.race([measureDrift?.().catch(() => undefined), aborted(stop)]);
    }
  }

  async #release(): Promise<void> {
    const { identity, releaseLimitMs } = this.#options;
    const refusal = { code: 'NO_IDENTITY', message: 'the worker is stopping' } as const;
    await atMost(this.#options, releaseLimitMs, () => identity.release(refusal));
  }
}

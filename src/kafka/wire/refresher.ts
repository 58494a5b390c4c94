import type { Runtime, Timer } from '../../async/runtime.ts';
import type { Deadlines } from './deadlines.ts';

/** The shortest time between the starts of two refreshes. */
const MIN_INTERVAL_MS = 100;
/** The time to the next periodic refresh. */
const REFRESH_INTERVAL_MS = 10_000;
const URGENT_GAP_MS = 500;

export interface RefresherOptions {
  readonly runtime: Runtime;
  readonly deadlines: Deadlines;
  /** Requests the metadata of everything in use. Rejects when no broker answers. */
  readonly refresh: () => Promise<void>;
  /** Whether any topic is in use. */
  readonly isWanted: () => boolean;
  /** Whether a broker is suspect. */
  readonly isUrgent: () => boolean;
}

/**
 * When the topology is refreshed: on demand, and periodically. One refresh at a time; a caller that comes while one is
 * in progress waits for the next, because its response may be older than the reason for the refresh.
 */
export class Refresher {
  readonly #options: RefresherOptions;
  #running: Promise<void> = Promise.resolve();
  #next: Promise<void> | undefined;
  #startedMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  constructor(options: RefresherOptions) {
    this.#options = options;
  }

  /** Settles with a refresh that starts after this call. */
  next(): Promise<void> {
    this.#next ??= this.#start();
    return this.#next;
  }

  /** Resolves when the refresh in progress, if any, has succeeded or failed. */
  async ended(): Promise<void> {
    await this.#running.catch(() => undefined);
  }

  /** Schedules the next periodic refresh. */
  scheduleNext(): void {
    const { runtime, deadlines, isWanted, isUrgent } = this.#options;
    this.#timer?.cancel();
    this.#timer = undefined;
    if (deadlines.closed || this.#next !== undefined || !isWanted()) return;
    const dueMs = this.#startedMs + (isUrgent() ? URGENT_GAP_MS : REFRESH_INTERVAL_MS);
    this.#timer = runtime.schedule(Math.max(0, dueMs - runtime.monotonicMs()), () => {
      this.#timer = undefined;
      if (isWanted()) this.next().catch(() => undefined); // the next one is scheduled anyway
    });
  }

  close(): void {
    this.#timer?.cancel();
  }

  async #start(): Promise<void> {
    const { runtime, deadlines, refresh } = this.#options;
    try {
      await this.ended();
      const dueMs = this.#startedMs + MIN_INTERVAL_MS;
      if (dueMs > runtime.monotonicMs()) await deadlines.until(dueMs);
    } finally {
      this.#next = undefined;
    }
    this.#startedMs = runtime.monotonicMs();
    this.#running = refresh().finally(() => this.scheduleNext());
    return this.#running;
  }
}

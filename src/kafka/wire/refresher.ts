import type { Runtime, Timer } from '../../core/runtime.ts';
import type { Deadlines } from './deadlines.ts';

/** Two refreshes never begin closer together. */
const LEAST_GAP_MS = 100;
/** How soon the next one begins by itself. */
const CALM_GAP_MS = 10_000;
const URGENT_GAP_MS = 500;

export interface RefresherOptions {
  readonly runtime: Runtime;
  readonly deadlines: Deadlines;
  /** Asks for everything that is in use. Rejects when no broker answers. */
  readonly refresh: () => Promise<void>;
  /** Whether there is anything to ask for. */
  readonly isWanted: () => boolean;
  /** Whether a broker is suspect. */
  readonly isUrgent: () => boolean;
}

/**
 * When the topology is asked for again: on demand, and from time to time. One refresh at a time; whoever
 * comes while one is under way waits for the next, because the answer may be older than the doubt.
 */
export class Refresher {
  readonly #options: RefresherOptions;
  #running: Promise<void> = Promise.resolve();
  #next: Promise<void> | undefined;
  #beganMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  constructor(options: RefresherOptions) {
    this.#options = options;
  }

  /** Resolves with a refresh that begins after this call; rejects as it does. */
  next(): Promise<void> {
    this.#next ??= this.#begin();
    return this.#next;
  }

  /** Resolves when the refresh under way has ended, well or not; at once if there is none. */
  async ended(): Promise<void> {
    await this.#running.catch(() => undefined);
  }

  /** Sees to it that the next one comes by itself. */
  keepGoing(): void {
    const { runtime, deadlines, isWanted, isUrgent } = this.#options;
    this.#timer?.cancel();
    this.#timer = undefined;
    if (deadlines.closed || this.#next !== undefined || !isWanted()) return;
    const dueMs = this.#beganMs + (isUrgent() ? URGENT_GAP_MS : CALM_GAP_MS);
    this.#timer = runtime.schedule(Math.max(0, dueMs - runtime.monotonicMs()), () => {
      this.#timer = undefined;
      if (isWanted()) this.next().catch(() => undefined); // the next one is due all the same
    });
  }

  close(): void {
    this.#timer?.cancel();
  }

  async #begin(): Promise<void> {
    const { runtime, deadlines, refresh } = this.#options;
    try {
      await this.ended();
      const dueMs = this.#beganMs + LEAST_GAP_MS;
      if (dueMs > runtime.monotonicMs()) await deadlines.until(dueMs);
    } finally {
      this.#next = undefined;
    }
    this.#beganMs = runtime.monotonicMs();
    this.#running = refresh().finally(() => this.keepGoing());
    return this.#running;
  }
}

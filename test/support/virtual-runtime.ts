import { setImmediate as turn } from 'node:timers/promises';
import type { Runtime, Timer } from '../../src/async/runtime.ts';

interface Due {
  readonly atMs: number;
  readonly run: () => void;
}

/**
 * A runtime whose time stands still while code runs, and then jumps to the next timer. Driven by `until`; the awaited
 * work must not use real IO.
 */
export class VirtualRuntime implements Runtime {
  nowMs: number;
  #uuids = 0;
  /** Work that waits for the next turn of the event loop. */
  #turning = 0;
  readonly #due = new Set<Due>();

  constructor(startMs = 0) {
    this.nowMs = startMs;
  }

  monotonicMs(): number {
    return this.nowMs;
  }

  wallMs(): number {
    return Math.floor(Date.UTC(2026, 5, 2) + this.nowMs); // as Date.now()
  }

  busyMs(): number {
    return 0;
  }

  schedule(delayMs: number, run: () => void): Timer {
    const due = { atMs: this.nowMs + Math.max(0, delayMs), run };
    this.#due.add(due);
    return { cancel: () => void this.#due.delete(due) };
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const timer = this.schedule(delayMs, resolve);
      signal?.addEventListener('abort', () => {
        timer.cancel();
        resolve();
      });
    });
  }

  async nextTurn(): Promise<void> {
    this.#turning += 1;
    await turn();
    this.#turning -= 1;
  }

  random(): number {
    return 0.5;
  }

  uuid(): string {
    this.#uuids += 1;
    return `00000000-0000-4000-8000-${String(this.#uuids).padStart(12, '0')}`;
  }

  /** The number of pending timers. */
  get pending(): number {
    return this.#due.size;
  }

  /** Lets so much time pass. */
  pass(ms: number): Promise<void> {
    return this.until(this.sleep(ms));
  }

  /** Lets time pass until the work has settled, and settles as it does. Throws if no timer is left. */
  async until<T>(work: Promise<T>): Promise<T> {
    let isSettled = false;
    const settle = () => {
      isSettled = true;
    };
    work.then(settle, settle);
    for (;;) {
      for (let turns = 0, quiet = 0; turns < MOST_TURNS && quiet < QUIET_TURNS && !isSettled; turns += 1) {
        await turn();
        quiet = this.#turning > 0 ? 0 : quiet + 1;
      }
      if (isSettled) return work;
      if (!this.fire())
        throw new Error(`the work is not settled at ${this.nowMs} ms, and no timer is left that could settle it`);
    }
  }

  /** Moves time to the next timer up to then, if there is one, and fires it. */
  protected fire(untilMs = Number.POSITIVE_INFINITY): boolean {
    let next: Due | undefined;
    for (const one of this.#due) if (next === undefined || one.atMs < next.atMs) next = one;
    if (next === undefined || next.atMs > untilMs) return false;
    this.#due.delete(next);
    this.nowMs = Math.max(this.nowMs, next.atMs); // later than due if a test has moved the time
    next.run();
    return true;
  }
}

/**
 * After this many turns of the event loop in which nothing waits for a turn, time moves to the next timer. All promises
 * are followed up within one turn; the other is for what Node itself does in a turn of its own.
 */
const QUIET_TURNS = 2;
/** Time moves after so many in any case. */
const MOST_TURNS = 20;

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
  #nowMs = 0;
  #uuids = 0;
  readonly #due = new Set<Due>();

  monotonicMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return Math.floor(Date.UTC(2026, 5, 2) + this.#nowMs); // as Date.now()
  }

  schedule(delayMs: number, run: () => void): Timer {
    const due = { atMs: this.#nowMs + Math.max(0, delayMs), run };
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

  nextTurn(): Promise<void> {
    return turn();
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

  /** Lets time pass until the work has settled, and settles as it does. Throws if no timer is left. */
  async until<T>(work: Promise<T>): Promise<T> {
    let isSettled = false;
    const settle = () => {
      isSettled = true;
    };
    work.then(settle, settle);
    for (;;) {
      for (let turns = 0; turns < QUIET_TURNS && !isSettled; turns += 1) await turn();
      if (isSettled) return work;
      const next = [...this.#due].reduce<Due | undefined>((first, one) => {
        return first === undefined || one.atMs < first.atMs ? one : first;
      }, undefined);
      if (next === undefined)
        throw new Error(`the work is not settled at ${this.#nowMs} ms, and no timer is left that could settle it`);
      this.#due.delete(next);
      this.#nowMs = next.atMs;
      next.run();
    }
  }
}

/** After this many turns of the event loop without a result, time moves to the next timer. */
const QUIET_TURNS = 20;

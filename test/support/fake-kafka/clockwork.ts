import type { Runtime, Timer } from '../../../src/core/runtime.ts';

/** Time and chance of the simulated servers: a process's own, or a simulation's. */
export type Clockwork = Pick<Runtime, 'monotonicMs' | 'wallMs' | 'schedule' | 'random'>;

/** Timers of which each name has one at most. */
export class KeyedTimers {
  readonly #clock: Clockwork;
  readonly #timers = new Map<string, Timer>();

  constructor(clock: Clockwork) {
    this.#clock = clock;
  }

  /** In place of the one under this name, if there is one. */
  set(name: string, delayMs: number, run: () => void): void {
    this.cancel(name);
    const timer = this.#clock.schedule(delayMs, () => {
      if (this.#timers.get(name) === timer) this.#timers.delete(name);
      run();
    });
    this.#timers.set(name, timer);
  }

  cancel(name: string): void {
    this.#timers.get(name)?.cancel();
    this.#timers.delete(name);
  }

  cancelAll(): void {
    for (const timer of this.#timers.values()) timer.cancel();
    this.#timers.clear();
  }
}

import type { Runtime, Timer } from '../../../src/async/runtime.ts';

/** Time and randomness of the simulated servers: those of the process, or of a simulation. */
export type Clockwork = Pick<Runtime, 'monotonicMs' | 'wallMs' | 'schedule' | 'random'>;

/** Timers, at most one for each name. */
export class KeyedTimers {
  readonly #clock: Clockwork;
  readonly #timers = new Map<string, Timer>();

  constructor(clock: Clockwork) {
    this.#clock = clock;
  }

  /** Replaces the timer of this name, if there is one. */
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

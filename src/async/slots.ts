import type { Runtime } from './runtime.ts';

/** A fair counting semaphore. Callers must hold no other resource while they wait. */
export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** Resolves to the function that releases the slot, which may be called more than once. */
  async take(): Promise<() => void> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    };
  }
}

/**
 * Releases a slot after so long, if that is not done before: work that takes longer no longer counts, so that it does
 * not hold up others. Returns the function that releases it at once.
 */
export function releaseAfter(runtime: Pick<Runtime, 'schedule'>, afterMs: number, release: () => void): () => void {
  const timer = runtime.schedule(afterMs, release);
  return () => {
    timer.cancel();
    release();
  };
}

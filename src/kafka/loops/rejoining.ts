import type { Runtime, Timer } from '../../async/runtime.ts';

/**
 * When a member ends a generation on its own. A generation lasts for a minimum time, and all requests in that time are
 * combined. A join that comes anyway fulfils the request, unless it was sent already.
 */
export class Rejoining {
  readonly #runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>;
  readonly #afterMs: number;
  readonly #begin: () => void;
  #isRequested = false;
  #sinceMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  /** `begin` ends the current generation, if there is one. */
  constructor(runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>, afterMs: number, begin: () => void) {
    this.#runtime = runtime;
    this.#afterMs = afterMs;
    this.#begin = begin;
  }

  /** The same report, but reading it fulfils the request: that join reports everything. */
  watching<T>(report: () => T): () => T {
    return () => {
      this.#isRequested = false;
      return report();
    };
  }

  request(): void {
    this.#isRequested = true;
    this.#arm();
  }

  /** A generation has started. */
  joined(): void {
    this.#sinceMs = this.#runtime.monotonicMs();
    this.#arm();
  }

  end(): void {
    this.#isRequested = false;
    this.#timer?.cancel();
  }

  #arm(): void {
    if (!this.#isRequested) return;
    this.#timer?.cancel();
    const waitMs = Math.max(0, this.#sinceMs + this.#afterMs - this.#runtime.monotonicMs());
    this.#timer = this.#runtime.schedule(waitMs, () => {
      if (this.#isRequested) this.#begin();
    });
  }
}

import type { Runtime } from '../../async/runtime.ts';

/** Exponential backoff with jitter: each wait is twice as long as the one before, up to a limit. */
export class Backoff {
  readonly #runtime: Pick<Runtime, 'random'>;
  readonly #minMs: number;
  readonly #maxMs: number;
  #failures = 0;

  constructor(runtime: Pick<Runtime, 'random'>, minMs: number, maxMs: number) {
    this.#runtime = runtime;
    this.#minMs = minMs;
    this.#maxMs = maxMs;
  }

  /** Failed attempts since the last reset. */
  get failures(): number {
    return this.#failures;
  }

  reset(): void {
    this.#failures = 0;
  }

  /** How long to wait after another failure: a random time between half of the wait and all of it. */
  nextMs(): number {
    const waitMs = Math.min(this.#maxMs, this.#minMs * 2 ** Math.min(this.#failures, MAX_DOUBLINGS));
    this.#failures += 1;
    return waitMs * (1 + this.#runtime.random()) * 0.5;
  }
}

/** Keeps the power finite. */
const MAX_DOUBLINGS = 20;

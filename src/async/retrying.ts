import type { Runtime } from './runtime.ts';

const DEFAULT_WAITS: WaitLimits = { minMs: 50, maxMs: 500 };

export interface Retries {
  /** The time that all attempts together may take. */
  readonly timeoutMs: number;
  /** There is no further attempt with less time left than this; 300 ms by default. */
  readonly minTryMs?: number;
  /** Between two attempts; 50 ms to 500 ms by default. */
  readonly waits?: WaitLimits;
  readonly isTransient: (error: unknown) => boolean;
  /** Ends the current wait. */
  readonly signal?: AbortSignal;
}

/** Retries while the error is transient and there is time; rejects as the last attempt did. */
export async function retrying<T>(
  runtime: Pick<Runtime, 'monotonicMs' | 'sleep'>,
  { timeoutMs, minTryMs = 300, waits = DEFAULT_WAITS, isTransient, signal }: Retries,
  attempt: (leftMs: number) => Promise<T>,
): Promise<T> {
  const untilMs = runtime.monotonicMs() + timeoutMs;
  const backoff = new Backoff(waits);
  for (;;) {
    try {
      return await attempt(untilMs - runtime.monotonicMs());
    } catch (error) {
      const waitMs = backoff.nextMs();
      if (untilMs - runtime.monotonicMs() - waitMs < minTryMs || !isTransient(error)) throw error;
      await runtime.sleep(waitMs, signal);
    }
  }
}

export interface WaitLimits {
  readonly minMs: number;
  readonly maxMs: number;
}

/** Keeps the power finite. */
const MAX_DOUBLINGS = 20;

/** Exponential backoff: each wait is twice as long as the one before, up to a limit. */
export class Backoff {
  readonly #waits: WaitLimits;
  readonly #random: () => number;
  #failures = 0;

  /**
   * `random`, in [0, 1), adds jitter: a wait is between half of its length and all of it. Without it waits are exact.
   */
  constructor(waits: WaitLimits, random: () => number = () => 1) {
    this.#waits = waits;
    this.#random = random;
  }

  /** Failed attempts since the last reset. */
  get failures(): number {
    return this.#failures;
  }

  reset(): void {
    this.#failures = 0;
  }

  /** Counts another failure, and returns how long to wait after it. */
  nextMs(): number {
    const { minMs, maxMs } = this.#waits;
    const waitMs = Math.min(maxMs, minMs * 2 ** Math.min(this.#failures, MAX_DOUBLINGS));
    this.#failures += 1;
    return waitMs * (1 + this.#random()) * 0.5;
  }
}

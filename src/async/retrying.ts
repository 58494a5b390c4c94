import { Backoff, type WaitLimits } from './backoff.ts';
import type { Runtime } from './runtime.ts';

const DEFAULT_WAITS: WaitLimits = { minMs: 50, maxMs: 500 };

export interface Retries {
  /** For all attempts together. */
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

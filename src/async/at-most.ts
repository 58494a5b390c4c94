import type { Runtime } from './runtime.ts';

/**
 * Settles as the work does, or resolves to undefined once `limitMs` have passed. The signal that the work gets aborts
 * in both cases, so that what it left open ends.
 */
export async function atMost<T>(
  runtime: Pick<Runtime, 'sleep'>,
  limitMs: number,
  work: (over: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  const over = new AbortController();
  try {
    return await Promise.race([work(over.signal), runtime.sleep(limitMs, over.signal).then(() => undefined)]);
  } finally {
    over.abort();
  }
}

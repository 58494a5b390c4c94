import type { Runtime } from '../../core/runtime.ts';
import { type FaultName, faultOf } from '../wire/fault.ts';

const MIN_REST_MS = 50;
const MAX_REST_MS = 500;
/** With less time left nothing is tried any more. */
const MIN_TRY_MS = 300;

export interface Retrying {
  /** For all tries together. */
  readonly timeoutMs: number;
  readonly isPassing: (fault: FaultName | undefined) => boolean;
}

/** Tries until it succeeds, for so long as its faults pass and there is time; rejects as the last try did. */
export async function retrying<T>(
  runtime: Runtime,
  { timeoutMs, isPassing }: Retrying,
  attempt: (leftMs: number) => Promise<T>,
): Promise<T> {
  const untilMs = runtime.monotonicMs() + timeoutMs;
  for (let restMs = MIN_REST_MS; ; restMs = Math.min(MAX_REST_MS, restMs * 2)) {
    try {
      return await attempt(untilMs - runtime.monotonicMs());
    } catch (error) {
      const leftMs = untilMs - runtime.monotonicMs() - restMs;
      if (leftMs < MIN_TRY_MS || !isPassing(faultOf(error))) throw error;
      await runtime.sleep(restMs);
    }
  }
}

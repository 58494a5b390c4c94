import type { Runtime } from '../../async/runtime.ts';
import { type KafkaErrorCode, kafkaErrorCode } from '../wire/kafka-error.ts';

const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 500;
/** With less time left there is no further attempt. */
const MIN_TRY_MS = 300;

export interface Retrying {
  /** For all attempts together. */
  readonly timeoutMs: number;
  readonly isTransient: (errorCode: KafkaErrorCode | undefined) => boolean;
}

/** Retries while the error is transient and there is time; rejects as the last attempt did. */
export async function retrying<T>(
  runtime: Runtime,
  { timeoutMs, isTransient }: Retrying,
  attempt: (leftMs: number) => Promise<T>,
): Promise<T> {
  const untilMs = runtime.monotonicMs() + timeoutMs;
  for (let backoffMs = MIN_BACKOFF_MS; ; backoffMs = Math.min(MAX_BACKOFF_MS, backoffMs * 2)) {
    try {
      return await attempt(untilMs - runtime.monotonicMs());
    } catch (error) {
      const leftMs = untilMs - runtime.monotonicMs() - backoffMs;
      if (leftMs < MIN_TRY_MS || !isTransient(kafkaErrorCode(error))) throw error;
      await runtime.sleep(backoffMs);
    }
  }
}

import type { Runtime } from '../../async/runtime.ts';
import { KafkaError } from '../wire/kafka-error.ts';

/** For this long a log that ends below its known end is not believed: the broker may no longer be the leader. */
const SHORT_LOG_MS = 6_000;

/** Distinguishes a log that has lost its tail from a broker that was deposed and does not know the tail yet. */
export class ShortLog {
  readonly #key: string;
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  #sinceMs: number | undefined;

  constructor(key: string, runtime: Pick<Runtime, 'monotonicMs'>) {
    this.#key = key;
    this.#runtime = runtime;
  }

  /** Whether the log is shorter than it should be, and has been so for 6 s. */
  isLasting(end: number, known: number): boolean {
    const nowMs = this.#runtime.monotonicMs();
    this.#sinceMs = end < known ? (this.#sinceMs ?? nowMs) : undefined;
    return this.#sinceMs !== undefined && nowMs - this.#sinceMs >= SHORT_LOG_MS;
  }

  /** Throws OFFSET_OUT_OF_RANGE while the log is shorter than it should be, but has been so for less than 6 s. */
  confirm(end: number, known: number): void {
    if (this.isLasting(end, known) || end >= known) return;
    const message = `${this.#key} ends at offset ${end} according to its leader, but is known up to offset ${known}`;
    throw new KafkaError('OFFSET_OUT_OF_RANGE', message);
  }
}

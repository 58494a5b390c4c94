import type { Runtime } from '../../async/runtime.ts';

/** How long a topic is not sent the time of a decision after it refused one. */
const REMEMBERED_MS = 60_000;
/** Requests name the topics. A topic that is forgotten costs one more append. */
const MAX_REMEMBERED = 1_000;

/**
 * The topics that refused a record for its time, as `message.timestamp.before.max.ms` makes them refuse the reply to a
 * retry: its time is when it was decided. They get the time of sending.
 */
export class UndatedTopics {
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #untilMs = new Map<string, number>();

  constructor(runtime: Pick<Runtime, 'monotonicMs'>) {
    this.#runtime = runtime;
  }

  add(topic: string): void {
    if (this.#untilMs.size >= MAX_REMEMBERED) this.#untilMs.clear();
    this.#untilMs.set(topic, this.#runtime.monotonicMs() + REMEMBERED_MS);
  }

  has(topic: string): boolean {
    const untilMs = this.#untilMs.get(topic);
    return untilMs !== undefined && this.#runtime.monotonicMs() < untilMs;
  }
}

import { KafkaError } from './kafka-error.ts';
import type { Entry, RequestQueue } from './kafkajs-modules.ts';

/**
 * The requests of one connection that wait for their responses. Replaces kafkajs' queue, without its timers, wall-clock
 * time-outs and throttling: every request is sent immediately, and the cluster handles deadlines and throttling.
 */
export class InFlight implements RequestQueue {
  /** In the order of sending, which is that of the responses. Not a Map: see `Bag`. */
  #entries: Entry[] = [];
  readonly #onStray: () => void;
  #end: Error | undefined;
  #lost = 0;

  /** `onStray`: a response arrived that matches no request. */
  constructor(onStray: () => void) {
    this.#onStray = onStray;
  }

  /** How many requests were lost with the connection. */
  get lost(): number {
    return this.#lost;
  }

  push({ entry, sendRequest }: Parameters<RequestQueue['push']>[0]): void {
    if (this.#end !== undefined) throw this.#end;
    this.#entries.push(entry);
    sendRequest();
  }

  fulfillRequest({ correlationId, payload, size }: Parameters<RequestQueue['fulfillRequest']>[0]): void {
    const at = this.#entries.findIndex((one) => one.correlationId === correlationId);
    const [entry] = at === -1 ? [] : this.#entries.splice(at, 1);
    if (entry === undefined) this.#onStray();
    else entry.resolve({ correlationId, entry, size, payload });
  }

  /** The connection has ended: nothing more is sent. */
  rejectAll(cause: Error): void {
    this.#end ??= new KafkaError('CONNECTION_LOST', `the connection ended: ${cause.message}`, { cause });
    const entries = this.#entries;
    this.#entries = [];
    this.#lost += entries.length;
    for (const { reject } of entries) reject(this.#end);
  }

  async waitForPendingRequests(): Promise<void> {}
  maybeThrottle(): void {}
  scheduleRequestTimeoutCheck(): void {}
  destroy(): void {}
}

import type { Timer } from '../async/runtime.ts';
import { inMicrotask } from '../async/waiting.ts';
import { RUNTIME } from '../runtime.ts';
import type { OutgoingRequest, Transport, TransportEvents } from './transport.ts';

/** The answer of workers in memory. */
export interface MemoryReply {
  /** The correlation ID. */
  readonly key: Buffer;
  readonly delayMs: number;
  readonly value: Buffer;
  readonly replayed: boolean;
  readonly retryAfterMs?: number | undefined;
}

/** The link of one client to workers in memory. */
export class MemoryLink implements Transport {
  readonly #accept: (value: Buffer, answer: (reply: MemoryReply) => void) => void;
  readonly #events: TransportEvents;
  readonly #timers = new Set<Timer>();
  dropAll: () => void = () => undefined;

  constructor(events: TransportEvents, accept: (value: Buffer, answer: (reply: MemoryReply) => void) => void) {
    this.#events = events;
    this.#accept = accept;
  }

  async send({ value }: OutgoingRequest): Promise<void> {
    this.#accept(value, ({ delayMs, ...reply }) => {
      const deliver = () => this.#events.onReply(reply);
      if (delayMs === 0) inMicrotask(deliver);
      else this.#later(delayMs, deliver);
    });
  }

  partitionOf(): undefined {
    return undefined;
  }

  trouble(): undefined {
    return undefined;
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
  }

  #later(delayMs: number, deliver: () => void): void {
    const timer = RUNTIME.schedule(delayMs, () => {
      this.#timers.delete(timer);
      deliver();
    });
    this.#timers.add(timer);
  }
}

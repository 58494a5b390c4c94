import { setTimeout as pause } from 'node:timers/promises';
import { idFor } from './home.ts';
import type { Ask, Realm } from './realm.ts';

export interface LoadOptions {
  readonly partitions: number;
  /** Requests sent at once. */
  readonly burst?: number;
  /** Between two bursts. */
  readonly paceMs?: number;
  readonly replyTopic?: string;
  /** Every second burst goes to the partitions behind its own, so that its requests have to be forwarded. */
  readonly goesAstray?: boolean;
}

/** A request that the brokers have acknowledged. */
export interface Sent extends Ask {
  /** When it was sent first, by the monotonic clock. */
  readonly sentMs: number;
}

/** The sender gives up when the brokers refuse one burst for so long. */
const REFUSED_LIMIT_MS = 45_000;
const REFUSED_REST_MS = 100;

/**
 * Requests without end, to each partition in turn; a correlation ID names its partition. A burst without an answer is
 * sent again as it was, as a client would: so the request topic may hold one request twice, and never misses one.
 */
export class Load {
  readonly #realm: Realm;
  readonly #options: LoadOptions;
  readonly #ended: Promise<void>;
  readonly #asks: Sent[] = [];
  #stopping = false;

  constructor(realm: Realm, options: LoadOptions) {
    this.#realm = realm;
    this.#options = options;
    this.#ended = this.#run();
    this.#ended.catch(() => undefined); // stop() tells
  }

  /** All that the brokers have acknowledged. */
  get asks(): readonly Sent[] {
    return this.#asks;
  }

  async stop(): Promise<readonly Sent[]> {
    this.#stopping = true;
    await this.#ended;
    return this.#asks;
  }

  async #run(): Promise<void> {
    const { partitions, burst = 20, paceMs = 25, replyTopic, goesAstray = false } = this.#options;
    for (let sent = 0; !this.#stopping; sent += burst) {
      const astray = goesAstray && (sent / burst) % 2 === 1 ? 1 : 0;
      const asks = Array.from({ length: burst }, (_, i): Ask => {
        const partition = (sent + i) % partitions;
        const correlationId = idFor(`p${partition}-${sent + i}`, partition, partitions);
        const ask = { correlationId, count: 1 + (i % 5), partition: (partition + astray) % partitions };
        return replyTopic === undefined ? ask : { ...ask, replyTopic };
      });
      const sentMs = performance.now();
      await this.#send(asks);
      this.#asks.push(...asks.map((ask) => ({ ...ask, sentMs })));
      await pause(paceMs);
    }
  }

  async #send(asks: readonly Ask[]): Promise<void> {
    const begunMs = performance.now();
    for (;;) {
      try {
        return await this.#realm.send(asks);
      } catch (error) {
        if (performance.now() - begunMs > REFUSED_LIMIT_MS) throw error;
        await pause(REFUSED_REST_MS);
      }
    }
  }
}

/** The partition that the load's correlation ID names. */
export function partitionOf(correlationId: string): number {
  return Number(/^p(\d+)-/.exec(correlationId)?.[1]);
}

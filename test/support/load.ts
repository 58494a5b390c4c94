import { setTimeout as pause } from 'node:timers/promises';
import { idFor } from './home.ts';
import type { Realm, TestRequest } from './realm.ts';

export interface LoadOptions {
  readonly partitions: number;
  /** Requests sent at once. */
  readonly burst?: number;
  /** Pause between two bursts. */
  readonly paceMs?: number;
  readonly replyTopic?: string;
  /** Every second burst is sent to the partitions after its home partitions, so that its requests are forwarded. */
  readonly misroutes?: boolean;
}

/** A request that the brokers have acknowledged. */
export interface Sent extends TestRequest {
  /** When it was first sent, by the monotonic clock. */
  readonly sentMs: number;
}

/** Brokers that refuse one burst for this long are not coming back: restarts on a busy machine take a minute. */
const REFUSED_LIMIT_MS = 150_000;
const REFUSED_REST_MS = 100;

/**
 * An endless stream of requests to each partition in turn; a correlation ID names its partition. A burst without a
 * response is sent again unchanged, as a client would do: so the request topic may have a request twice, but never
 * lacks one.
 */
export class Load {
  readonly #realm: Realm;
  readonly #options: LoadOptions;
  readonly #ended: Promise<void>;
  readonly #acknowledged: Sent[] = [];
  #stopping = false;

  constructor(realm: Realm, options: LoadOptions) {
    this.#realm = realm;
    this.#options = options;
    this.#ended = this.#run();
    this.#ended.catch(() => undefined); // stop() rejects with it
  }

  /** All requests that the brokers have acknowledged. */
  get requests(): readonly Sent[] {
    return this.#acknowledged;
  }

  async stop(): Promise<readonly Sent[]> {
    this.#stopping = true;
    await this.#ended;
    return this.#acknowledged;
  }

  async #run(): Promise<void> {
    const { partitions, burst = 20, paceMs = 25, replyTopic, misroutes = false } = this.#options;
    for (let sent = 0; !this.#stopping; sent += burst) {
      const shift = misroutes && (sent / burst) % 2 === 1 ? 1 : 0;
      const requests = Array.from({ length: burst }, (_, i): TestRequest => {
        const partition = (sent + i) % partitions;
        const correlationId = idFor(`p${partition}-${sent + i}`, partition, partitions);
        const request = { correlationId, count: 1 + (i % 5), partition: (partition + shift) % partitions };
        return replyTopic === undefined ? request : { ...request, replyTopic };
      });
      const sentMs = performance.now();
      await this.#send(requests);
      this.#acknowledged.push(...requests.map((request) => ({ ...request, sentMs })));
      await pause(paceMs);
    }
  }

  async #send(requests: readonly TestRequest[]): Promise<void> {
    const begunMs = performance.now();
    for (;;) {
      try {
        return await this.#realm.send(requests);
      } catch (error) {
        if (performance.now() - begunMs > REFUSED_LIMIT_MS) throw error;
        await pause(REFUSED_REST_MS);
      }
    }
  }
}

/** The home partition of a request of the load, from its correlation ID. */
export function partitionOf(correlationId: string): number {
  return Number(/^p(\d+)-/.exec(correlationId)?.[1]);
}

import { setTimeout as pause } from 'node:timers/promises';
import { IdClient } from '../../src/client/client.ts';
import { UNTIL } from './cluster-scene.ts';
import type { Realm, TestRequest } from './realm.ts';
import { Watchers } from './watchers.ts';

const HTTP_PACE_MS = 100;
const REQUEST_PACE_MS = 20;

/** A load that does not wait for replies, by the client library, which finds other brokers when one is frozen. */
export class RequestLoad implements AsyncDisposable {
  readonly sent: TestRequest[] = [];
  longestMs = 0;
  readonly #client: IdClient;
  readonly #running: Promise<void>;
  readonly #under = new Set<Promise<void>>();
  readonly #watchers = new Watchers();
  readonly #unanswered = new Set<number>();
  #stopping = false;

  private constructor(client: IdClient) {
    this.#client = client;
    this.#running = this.#run();
  }

  static async start({ requestTopic, replyTopic }: Realm, brokers: readonly string[]): Promise<RequestLoad> {
    return new RequestLoad(await IdClient.connect({ brokers, requestTopic, replyTopic, prefetch: false }));
  }

  /** Resolves once every request sent so far, and the next `more`, have a batch. */
  async answered(more: number): Promise<void> {
    const wanted = this.sent.length + more;
    const missing = () => [...this.#unanswered].filter((at) => at < wanted).length;
    const look = () => (this.sent.length >= wanted && missing() === 0 ? true : undefined);
    await this.#watchers.wait({
      what: () => `${wanted} answers; ${this.sent.length} requests were sent, and ${missing()} of them have none`,
      look,
      timeoutMs: UNTIL.timeout,
    });
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#running;
    await Promise.all(this.#under);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client.close();
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      const ask = { correlationId: `asked-${this.sent.length}`, count: 3 };
      const at = this.sent.push(ask) - 1;
      this.#unanswered.add(at);
      const asked = this.#ask(ask, at).finally(() => this.#under.delete(asked));
      this.#under.add(asked);
      await pause(REQUEST_PACE_MS);
    }
  }

  async #ask(ask: TestRequest, at: number): Promise<void> {
    const sentMs = performance.now();
    await this.#client.request({ ...ask, timeoutMs: UNTIL.timeout });
    this.longestMs = Math.max(this.longestMs, Math.round(performance.now() - sentMs));
    this.#unanswered.delete(at);
    this.#watchers.changed();
  }
}
/** Requests an ID over HTTP continuously, and records the requests that did not get one. */
export class HttpLoad {
  readonly refused: string[] = [];
  answered = 0;
  readonly #ended: Promise<void>;
  #stopping = false;

  constructor(api: string) {
    this.#ended = this.#run(api);
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#ended;
  }

  async #run(api: string): Promise<void> {
    while (!this.#stopping) {
      const response = await fetch(`${api}/api/v1/id`, { method: 'POST' });
      if (response.status === 200) this.answered += 1;
      else this.refused.push(`${response.status}: ${await response.text()}`);
      await pause(HTTP_PACE_MS);
    }
  }
}

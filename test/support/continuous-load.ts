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
  #answered = 0;
  #stopping = false;

  private constructor(client: IdClient) {
    this.#client = client;
    this.#running = this.#run();
  }

  static async start({ requestTopic, replyTopic }: Realm, brokers: readonly string[]): Promise<RequestLoad> {
    return new RequestLoad(await IdClient.connect({ brokers, requestTopic, replyTopic, prefetch: false }));
  }

  /** Resolves once every request sent so far, and `more` others, have a batch. */
  async answered(more: number): Promise<void> {
    const wanted = this.sent.length + more;
    const look = () => (this.#answered >= wanted ? true : undefined);
    await this.#watchers.wait({
      what: () => `${wanted} answers; ${this.#answered} came`,
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
      this.sent.push(ask);
      const asked = this.#ask(ask).finally(() => this.#under.delete(asked));
      this.#under.add(asked);
      await pause(REQUEST_PACE_MS);
    }
  }

  async #ask(ask: TestRequest): Promise<void> {
    const sentMs = performance.now();
    await this.#client.request({ ...ask, timeoutMs: UNTIL.timeout });
    this.longestMs = Math.max(this.longestMs, Math.round(performance.now() - sentMs));
    this.#answered += 1;
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

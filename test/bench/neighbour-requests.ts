import { Agent, request as requestHttp } from 'node:http';
import { request as requestTls, Agent as TlsAgent } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Followed } from '../support/followed.ts';
import type { Realm } from '../support/realm.ts';

/** How long small requests waited (ms); Infinity where one in a hundred, or every second one, got no answer. */
export interface Latencies {
  readonly kafka: { readonly p50: number; readonly p99: number };
  readonly http: { readonly p50: number; readonly p99: number };
}

const REPLY_TIMEOUT_MS = 60_000;
const CALL_TIMEOUT_MS = 20_000;
const UNANSWERED = Number.POSITIVE_INFINITY;

const at = (of: readonly number[], share: number) => of.toSorted((a, b) => a - b)[Math.floor(share * of.length)];
const quantilesOf = (of: readonly number[]) => ({ p50: at(of, 0.5) ?? Number.NaN, p99: at(of, 0.99) ?? Number.NaN });

/** The well-behaved requester, which asks for one ID at a time, each as its time comes. */
export class SmallRequests {
  readonly #realm: Realm;
  readonly #replies: Followed;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #port: number;
  readonly #rate: number;
  readonly #agent: Agent;
  readonly #isTls: boolean;

  constructor(
    realm: Realm,
    replies: Followed,
    api: { readonly port: number; readonly token: string; readonly isTls: boolean },
    rate: number,
  ) {
    this.#realm = realm;
    this.#replies = replies;
    this.#port = api.port;
    this.#headers = { authorization: `Bearer ${api.token}` };
    this.#isTls = api.isTls;
    this.#agent = api.isTls
      ? new TlsAgent({ keepAlive: true, rejectUnauthorized: false })
      : new Agent({ keepAlive: true });
    this.#rate = rate;
  }

  /** Sends at the rate over Kafka, and at half of it over HTTP. `phase`: the prefix of the correlation IDs. */
  async latencies(phase: string, seconds: number): Promise<Latencies> {
    const [kafka, http] = await Promise.all([
      this.#overKafka(phase, seconds),
      paced(seconds, this.#rate / 2, () => this.#call()),
    ]);
    const waits = http.map(({ result, endedMs, dueMs }) => (result === 200 ? endedMs - dueMs : UNANSWERED));
    return { kafka: quantilesOf(kafka), http: quantilesOf(waits) };
  }

  close(): void {
    this.#agent.destroy();
  }

  async #overKafka(phase: string, seconds: number): Promise<readonly number[]> {
    const sent = await paced(seconds, this.#rate, async (i) => {
      const correlationId = `${phase}-${i}`;
      await this.#realm.send([{ correlationId, count: 1 }]);
      return correlationId;
    });
    const mine = (seen: Followed['seen']) =>
      seen.filter(({ message }) => message.key?.toString().startsWith(`${phase}-`));
    const areAll = (seen: Followed['seen']) => mine(seen).length >= sent.length;
    await this.#replies.until('every small request is answered', areAll, REPLY_TIMEOUT_MS).catch(() => undefined);
    const found = new Map(mine(this.#replies.seen).map(({ message, atMs }) => [String(message.key), atMs]));
    return sent.map(({ result, dueMs }) => (found.get(result) ?? UNANSWERED) - dueMs);
  }

  /** The status of the answer; undefined without one. */
  async #call(): Promise<number | undefined> {
    const answered = Promise.withResolvers<number | undefined>();
    const request = (this.#isTls ? requestTls : requestHttp)(
      {
        host: '127.0.0.1',
        port: this.#port,
        agent: this.#agent,
        method: 'POST',
        path: '/api/v1/id',
        headers: this.#headers,
        timeout: CALL_TIMEOUT_MS,
      },
      (response) => response.resume().once('close', () => answered.resolve(response.statusCode)),
    );
    request.once('timeout', () => request.destroy()).once('error', () => answered.resolve(undefined));
    request.end();
    return await answered.promise;
  }
}

/** Begins work at a rate for so long; when each was due, and ended, by the monotonic clock. */
async function paced<T>(seconds: number, rate: number, work: (i: number) => Promise<T>) {
  const begunMs = performance.now();
  return await Promise.all(
    Array.from({ length: seconds * rate }, async (_, i) => {
      const dueMs = begunMs + (i * 1_000) / rate;
      await sleep(Math.max(0, dueMs - performance.now()));
      const result = await work(i);
      return { result, dueMs, endedMs: performance.now() };
    }),
  );
}

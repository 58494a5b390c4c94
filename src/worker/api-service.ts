import type { Runtime } from '../async/runtime.ts';
import type { ThrottledLog } from '../async/throttle.ts';
import { type LinkDependencies, openLink } from '../client/kafka-link.ts';
import { type BatchRequest, type OutgoingRequest, Requester, type Transport } from '../client/requester.ts';
import { parseFormKeys } from '../codec/form/keys.ts';
import type { HeaderNames } from '../codec/request-headers.ts';
import type { Layout } from '../core/layout.ts';
import { renewed } from '../core/secret.ts';
import { wallMs } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import { createApi } from '../http/api.ts';
import { ApiListener } from '../http/api-listener.ts';
import { identifyBy, RateLimit, visitorLimit } from '../http/callers.ts';
import { Issuer } from '../http/issuer.ts';
import {
  type AskLedger,
  type IssuedIds,
  type IssuedNumbers,
  type KeyedNumbers,
  type KeyedRequest,
  LedgerIssuer,
} from '../http/ledger-issuer.ts';
import { LoopShare } from '../http/loop-share.ts';
import { seedsOf } from '../kafka/wire/settings.ts';
import type { Allocator } from '../pipeline/ports.ts';
import type { WorkerContext } from './context.ts';

export interface ApiServiceOptions extends Pick<WorkerContext, 'config' | 'log' | 'metrics' | 'gate'> {
  /** The same one as the pipeline's. */
  readonly allocator: Allocator;
  /** Undefined: no Idempotency-Key, and no numbers of sequences. */
  readonly ledger: AskLedger | undefined;
}

/**
 * The HTTP API, if the configuration has one. It answers 503 until the gate opens. Rejects with CONFIG_INVALID when its
 * port can't be taken.
 */
export async function openApi(options: ApiServiceOptions): Promise<ApiListener | undefined> {
  const { config, log, metrics, gate, allocator, ledger } = options;
  const { layout, maxCount, api, drainTimeoutMs } = config;
  if (api === undefined) return undefined;
  const monotonicMs = () => performance.now();
  const rateLimit = api.rateLimit === undefined ? undefined : new RateLimit(api.rateLimit, monotonicMs);
  const issuer = new Issuer({
    layout,
    source: allocator,
    gateReason: () => gate.reason(),
    monotonicMs,
    rateLimit,
    issued: (count) => metrics.addIds(count),
  });
  const ledgerIssuer =
    ledger &&
    new LedgerIssuer({
      ledger,
      rateLimit,
      monotonicMs,
      observe: (outcome, milliseconds) => metrics.observeHttpLedger(outcome, milliseconds),
    });
  const share = new LoopShare(monotonicMs);
  const identify = identifyBy({
    tokens: api.tokens,
    mutualTls: api.tls?.clientCa !== undefined,
    monotonicMs,
  });
  const admitVisitor = visitorLimit(monotonicMs);
  const { formKeys } = api;
  const keys =
    formKeys &&
    renewed(
      () => [formKeys()],
      ([text = '']) => parseFormKeys(text),
      monotonicMs,
    );
  const onError = (error: unknown) =>
    log.warn({ err: error }, 'the certificates of the HTTP API are unusable; the previous ones stay in use');
  const tls = api.tls && { ...api.tls, monotonicMs, wallMs: () => Date.now(), onError };
  return await ApiListener.open({
    host: api.host,
    port: api.port,
    drainMs: drainTimeoutMs,
    createApi: (isEnding) =>
      createApi({
        isEnding,
        layout,
        maxCount,
        issuer,
        ledger: ledgerIssuer,
        share,
        limits: api,
        tls,
        identify,
        admitVisitor,
        formKeys: keys,
        observe: ({ route, status, caller, milliseconds }) => {
          metrics.addHttpRequest(route, status, caller, milliseconds);
        },
        onShed: () => metrics.addShedConnection('api'),
        onError: (error, requestId) =>
          log.error({ err: error, requestId }, 'internal error while serving an HTTP request'),
      }),
    log: (level, message, fields) => log[level](fields, message),
  });
}

type Context = Pick<WorkerContext, 'config' | 'environment' | 'runtime' | 'lines'>;

interface LedgerRequestsOptions {
  readonly wire: LinkDependencies;
  readonly requestTopic: string;
  readonly replyTopic: string;
  readonly headers: HeaderNames;
  readonly layout: Layout;
  readonly lines: ThrottledLog;
}

/** Wall milliseconds at which a look-up has expired, whatever clock the worker has. */
const LONG_AGO_MS = 1;
/** How long a caller waits. A worker that takes a partition over usually answers within that time. */
const WAIT_MS = 10_000;
const RESEND_AFTER_MS = 3_000;
/** The issuer has a bound of its own. */
const MAX_WAITING = 10_000;

/** The requests of a worker whose configuration has the HTTP API and a topic for their replies. */
export function openLedgerRequests({ config, environment, runtime, lines }: Context): LedgerRequests | undefined {
  const { api, topics, headers, kafka, layout } = config;
  const { requests: requestTopic, apiReplies: replyTopic } = topics;
  if (api === undefined || replyTopic === undefined) return undefined;
  const wire = { dialer: environment.dialer, seeds: seedsOf(kafka.brokers), runtime };
  return new LedgerRequests({ wire, requestTopic, replyTopic, headers, layout, lines });
}

/**
 * Sends what has a key over Kafka, as any service does, with a connection and a reply partition of its own: so the
 * ledger decides what the key has, and not this worker. Each request has its own correlation ID, and the key as request
 * ID: one key may then be used for two sequences, or for two counts, at the same time, and workers that share a reply
 * partition don't mix up their replies.
 *
 *   closed -> opening: at the start, and for each request after a failure
 *   opening -> open, or closed with the error, which is logged; requests that wait try again until their time is over
 */
export class LedgerRequests implements AskLedger, AsyncDisposable {
  readonly #options: LedgerRequestsOptions;
  readonly #runtime: Runtime;
  readonly #requester: Requester;
  #link: Promise<Transport> | undefined;
  /** The last error of the link. */
  #fault: { readonly error: Error; readonly atMs: number } | undefined;

  constructor(options: LedgerRequestsOptions) {
    const { runtime } = options.wire;
    this.#options = options;
    this.#runtime = runtime;
    this.#requester = new Requester({
      // What is wrong with the replies is reported by `#causeOf`.
      transport: { send: (request) => this.#send(request), trouble: () => undefined },
      runtime,
      resendAfterMs: RESEND_AFTER_MS,
      maxWaiting: MAX_WAITING,
      onSend: () => undefined,
      onError: (error) => this.#report(error),
    });
    this.#open().catch(() => undefined); // logged there
  }

  /** The IDs of the key. Rejects with the refusal of a worker, or with what `Requester.request` throws. */
  async ids(request: KeyedRequest): Promise<IssuedIds> {
    const { batch, replayed } = await this.#answered((asked) => this.#requester.request(asked), request);
    const { layout } = this.#options;
    if (batch.layoutFingerprint !== layout.fingerprint || batch.epochMs !== layout.epochMs)
      throw new IdallocError('MALFORMED_REPLY', 'the IDs of this key have another layout than this worker knows');
    return { batch: { ranges: batch.ranges, generatedAt: wallMs(batch.generatedAtMs) }, replayed };
  }

  /** Returns the numbers of the key. It rejects as `ids` does. */
  async numbers({ sequence, isLookUp, ...request }: KeyedNumbers): Promise<IssuedNumbers> {
    const ask = (asked: BatchRequest) => this.#requester.requestNumbers({ ...asked, sequence });
    // A request that has expired gets what was decided for its key before, and else a refusal: so it reads without
    // deciding.
    const { numbers, replayed } = await this.#answered(ask, request, isLookUp ? LONG_AGO_MS : undefined);
    return { numbers, replayed };
  }

  /** By default it expires when nobody waits any more. What was decided before is there for a retry. */
  async #answered<T>(
    ask: (request: BatchRequest) => Promise<T>,
    { count, key, signal }: KeyedRequest,
    expiresAtMs = Math.floor(this.#runtime.wallMs()) + WAIT_MS,
  ): Promise<T> {
    const beganMs = this.#runtime.monotonicMs();
    const asked = ask({
      count,
      correlationId: Buffer.from(this.#runtime.uuid()),
      requestId: key,
      replyTopic: this.#options.replyTopic,
      encoding: 'RANGES',
      expiresAtMs,
      timeoutMs: WAIT_MS,
      endsWhenRefused: true, // the caller is told when to retry, and holds no connection meanwhile
      signal,
    });
    return await asked.catch((error: unknown) => {
      throw this.#causeOf(error, beganMs);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#requester.close(
      () => new IdallocError('STOPPING', 'this worker is stopping: retry, with the same key'),
    );
    const link = await this.#link?.catch(() => undefined);
    await link?.close();
  }

  /** Why there was no reply: replies that can't be read, or else workers that don't answer. */
  #causeOf(error: unknown, beganMs: number): unknown {
    const fault = this.#fault;
    if (!(error instanceof IdallocError && error.code === 'NO_REPLY') || fault === undefined) return error;
    return fault.atMs >= beganMs && !this.#requester.hasRepliedSince(fault.atMs) ? fault.error : error;
  }

  async #send(request: OutgoingRequest): Promise<void> {
    const link = await this.#open();
    await link.send(request);
  }

  #open(): Promise<Transport> {
    this.#link ??= this.#connect();
    return this.#link;
  }

  async #connect(): Promise<Transport> {
    const { wire, requestTopic, replyTopic, headers, lines } = this.#options;
    try {
      const onError = (error: Error) => this.#report(error);
      const link = await openLink(
        wire,
        { requestTopic, replyTopic, headers },
        {
          onReply: (reply) => this.#requester.receive(reply),
          onMoved: (topic) => this.#requester.resendAll(topic),
          onError,
        },
      );
      lines('info', { replyTopic }, 'the HTTP API serves Idempotency-Keys and numbers of sequences');
      return link;
    } catch (error) {
      this.#link = undefined;
      this.#report(error);
      throw error;
    }
  }

  #report(error: unknown): void {
    if (error instanceof Error) this.#fault = { error, atMs: this.#runtime.monotonicMs() };
    const text = describeError(error);
    const { replyTopic, lines } = this.#options;
    const what = 'Idempotency-Keys and numbers of sequences over HTTP: Kafka can not be used now';
    lines('warn', { replyTopic, error: text }, what, { about: text });
  }
}

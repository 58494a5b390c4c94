import type { Runtime } from '../async/runtime.ts';
import { Throttle } from '../async/throttle.ts';
import { type LinkDependencies, openLink } from '../client/kafka-link.ts';
import { Requester } from '../client/requester.ts';
import type { OutgoingRequest, Transport } from '../client/transport.ts';
import type { HeaderNames } from '../codec/request-headers.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { NumberRequest, TakenNumbers } from '../http/number-issuer.ts';
import { seedsOf } from '../kafka/wire/settings.ts';
import type { Log } from '../log.ts';
import type { WorkerContext } from './context.ts';

type Context = Pick<WorkerContext, 'config' | 'environment' | 'runtime' | 'log'>;

interface NumberRequestsOptions {
  readonly wire: LinkDependencies;
  readonly requestTopic: string;
  readonly replyTopic: string;
  readonly headers: HeaderNames;
  readonly log: Log;
}

/** How long a caller waits. A worker that takes a partition over usually answers within that time. */
const WAIT_MS = 10_000;
const RESEND_AFTER_MS = 3_000;
/** The issuer has a bound of its own. */
const MAX_WAITING = 10_000;
const LOG_EVERY_MS = 10_000;

/** The requests of a worker whose configuration has the HTTP API and a topic for their replies. */
export function openNumberRequests({ config, environment, runtime, log }: Context): NumberRequests | undefined {
  const { api, topics, headers, kafka } = config;
  const { requests: requestTopic, apiReplies: replyTopic } = topics;
  if (api === undefined || replyTopic === undefined) return undefined;
  const wire = { dialer: environment.dialer, seeds: seedsOf(kafka.brokers), runtime };
  return new NumberRequests({ wire, requestTopic, replyTopic, headers, log });
}

/**
 * Requests numbers over Kafka, as any service does, with a connection and a reply partition of its own: so the ledger decides which
 * numbers a key has, and not this worker. Each request has its own correlation ID, and the caller's key as request ID: two
 * sequences may then be asked under one key at the same time, and workers that share a reply partition don't mix up their replies.
 *
 *   closed -> opening: at the start, and for each request after a failure
 *   opening -> open, or closed with the error, which is logged; requests that wait try again until their time is over
 */
export class NumberRequests implements AsyncDisposable {
  readonly #options: NumberRequestsOptions;
  readonly #runtime: Runtime;
  readonly #requester: Requester;
  readonly #throttle: Throttle;
  #link: Promise<Transport> | undefined;
  /** The last error of the link. */
  #fault: { readonly error: Error; readonly atMs: number } | undefined;

  constructor(options: NumberRequestsOptions) {
    const { runtime } = options.wire;
    this.#options = options;
    this.#runtime = runtime;
    this.#throttle = new Throttle(runtime, LOG_EVERY_MS);
    this.#requester = new Requester({
      transport: { send: (request) => this.#send(request), close: async () => undefined },
      runtime,
      resendAfterMs: RESEND_AFTER_MS,
      maxWaiting: MAX_WAITING,
      onSend: () => undefined,
      onError: (error) => this.#report(error),
    });
    this.#open().catch(() => undefined); // logged there
  }

  /** The numbers of the key. Rejects with the refusal of a worker, or with what `Requester.requestNumbers` throws. */
  take = async ({ sequence, count, key, signal }: NumberRequest): Promise<TakenNumbers> => {
    const beganMs = this.#runtime.monotonicMs();
    const asked = this.#requester.requestNumbers({
      sequence,
      count,
      correlationId: Buffer.from(this.#runtime.uuid()),
      requestId: key,
      replyTopic: this.#options.replyTopic,
      encoding: 'RANGES',
      // Nobody waits for the numbers after that. Those that were decided before are there for a retry.
      expiresAtMs: Math.floor(this.#runtime.wallMs()) + WAIT_MS,
      timeoutMs: WAIT_MS,
      signal,
    });
    const { numbers, replayed } = await asked.catch((error: unknown) => {
      throw this.#causeOf(error, beganMs);
    });
    return { numbers, replayed };
  };

  async [Symbol.asyncDispose](): Promise<void> {
    this.#requester.close(new IdallocError('STOPPING', 'this worker is stopping: retry, with the same key'));
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
    const { wire, requestTopic, replyTopic, headers, log } = this.#options;
    try {
      const onError = (error: Error) => this.#report(error);
      const link = await openLink(
        wire,
        { requestTopic, replyTopic, headers },
        { onReply: (reply) => this.#requester.receive(reply), onError },
      );
      log.info({ replyTopic }, 'the HTTP API serves numbers of sequences');
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
    if (!this.#throttle.passes(text)) return;
    const { replyTopic } = this.#options;
    this.#options.log.warn({ replyTopic, error: text }, 'numbers of sequences over HTTP: Kafka can not be used now');
  }
}

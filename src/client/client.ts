import { checkCorrelationId, checkReplyTopic, MAX_REQUEST_COUNT } from '../codec/id-request.ts';
import type { Layout } from '../core/layout.ts';
import type { Runtime } from '../core/runtime.ts';
import { IdallocError } from '../errors.ts';
import { RUNTIME } from '../runtime.ts';
import type { Foundation, RequestedBatch, RequestOptions, WaitForIds } from './calls.ts';
import { Demand } from './demand.ts';
import { ErrorReporter } from './error-reporter.ts';
import { callHook } from './hooks.ts';
import { connectKafka } from './kafka-link.ts';
import { NumberCheck } from './numbers.ts';
import { type BufferOptions, type BufferSettings, bufferSettings, type IdClientOptions } from './options.ts';
import { Refill } from './refill.ts';
import { awaited, closed, notACount, unfilled } from './refusals.ts';
import { type Answer, bytesOf, Requester } from './requester.ts';
import { IdStock } from './stock.ts';
import type { Transport, TransportEvents } from './transport.ts';
import { WaitingQueue, wait } from './waiting.ts';

/**
 * IDs for a service. next() and take() return prefetched IDs synchronously; takeAsync() waits until there are enough;
 * request() requests one batch by its correlation ID. An open client keeps its process alive.
 */
export class IdClient implements AsyncDisposable {
  readonly #settings: BufferSettings;
  readonly #runtime: Runtime;
  readonly #replyTopic: string;
  readonly #transport: Transport;
  readonly #requester: Requester;
  readonly #demand: Demand;
  readonly #stock: IdStock;
  readonly #refill: Refill;
  readonly #takers: WaitingQueue;
  readonly #watchers: WaitingQueue;
  readonly #numbers = new NumberCheck();
  #layout: Layout | undefined;
  #closed = false;
  #closing: Promise<void> | undefined;

  /**
   * Connects to the brokers, finds the end of the reply topic, and starts to fill the buffer; no worker needs to run yet.
   * Unreachable brokers are retried for 10 s; a rejected login is CONFIG_INVALID immediately.
   *
   * @throws IdallocError CONFIG_INVALID, KAFKA_UNAVAILABLE, TOPIC_INVALID.
   */
  static connect(options: IdClientOptions): Promise<IdClient> {
    const link = (events: TransportEvents) => connectKafka(options, RUNTIME, events);
    return IdClient.over({ runtime: RUNTIME, replyTopic: options.replyTopic, link }, options);
  }

  /** Like connect, over another transport. */
  static async over({ runtime, replyTopic, link }: Foundation, options: BufferOptions): Promise<IdClient> {
    const settings = bufferSettings(options);
    const reporter = new ErrorReporter(runtime, (error) => callHook(settings.hooks, 'onError', error));
    const onError = (error: Error) => reporter.report(error);
    let client: IdClient | undefined;
    const transport = await link({
      onReply: (reply) => {
        if (client !== undefined) client.#requester.receive(reply);
      },
      onError,
    });
    client = new IdClient(settings, runtime, replyTopic, transport, onError);
    if (settings.prefetch) client.#refill.start();
    return client;
  }

  private constructor(
    settings: BufferSettings,
    runtime: Runtime,
    replyTopic: string,
    transport: Transport,
    onError: (error: Error) => void,
  ) {
    this.#settings = settings;
    this.#runtime = runtime;
    this.#replyTopic = replyTopic;
    this.#transport = transport;
    const { hooks, maxAgeMs, maxWaiting, maxCount, resendAfterMs } = settings;
    const monotonicMs = () => runtime.monotonicMs();
    this.#takers = new WaitingQueue(maxWaiting, 'in turn');
    this.#watchers = new WaitingQueue(maxWaiting, 'any');
    this.#requester = new Requester({
      transport,
      runtime,
      resendAfterMs,
      maxWaiting,
      onSend: (id, count, attempt) => callHook(hooks, 'onRequest', { correlationId: id.toString(), count, attempt }),
      onError,
    });
    this.#demand = new Demand(settings, monotonicMs());
    this.#stock = new IdStock({ onLow: () => this.#refill.look(), monotonicMs, maxAgeMs });
    this.#refill = new Refill({
      stock: this.#stock,
      demand: this.#demand,
      runtime,
      maxCount,
      ask: (count) => this.#fetch(count),
      waitedFor: () => ({ taken: this.#takers.needed, buffered: this.#watchers.needed }),
      onBatch: (_answer, count) => this.#filled(count),
      onRefused: (error) => this.#refused(error),
      onError,
    });
    if (!settings.prefetch) this.#stock.withhold(unfilled);
  }

  /** Number of IDs in the buffer: a gauge. */
  get buffered(): number {
    return this.#stock.size;
  }

  /** At this number of IDs in the buffer or fewer, more are requested: a gauge. */
  get lowWater(): number {
    return this.#demand.low;
  }

  /** The layout of the last reply's IDs, for `decode`; undefined before the first reply, or when this version does not know it. */
  get layout(): Layout | undefined {
    return this.#layout;
  }

  /** The next ID. Throws IdallocError BUFFER_EMPTY, also while other callers wait for IDs; CLIENT_CLOSED. */
  next(): bigint {
    return this.#stock.next();
  }

  /** The next `count` IDs, all or none. Throws as next(). */
  take(count: number): bigint[] {
    this.#checkCount(count);
    return this.#stock.take(count);
  }

  /**
   * The next ID as an exact JavaScript number, in a namespace whose layout fits into 53 bits, such as `js-safe`. Throws as
   * next(), and CONFIG_INVALID for any other layout, without taking an ID.
   */
  nextNumber(): number {
    this.#numbers.require();
    return Number(this.next());
  }

  /** The next `count` IDs as JavaScript numbers, all or none. Throws as nextNumber(). */
  takeNumbers(count: number): number[] {
    this.#numbers.require();
    return this.take(count).map(Number);
  }

  /** takeAsync for JavaScript numbers. Rejects as it does, and with CONFIG_INVALID when the layout has larger IDs. */
  async takeNumbersAsync(count: number, options: WaitForIds = {}): Promise<readonly number[]> {
    this.#numbers.require();
    const ids = await this.takeAsync(count, options);
    this.#numbers.require(); // the layout may have been unknown before
    return ids.map(Number);
  }

  /**
   * The next `count` IDs, as soon as there are that many; first come, first served.
   *
   * @throws IdallocError NO_REPLY, QUEUE_FULL, CLIENT_CLOSED, INVALID_COUNT above half of maxBuffered; RequestRefused when
   * the workers reject the request; the signal's reason.
   */
  async takeAsync(count: number, options: WaitForIds = {}): Promise<readonly bigint[]> {
    this.#checkCount(count);
    this.#stock.dropOld();
    if (this.#takers.isEmpty && this.#stock.size >= count && options.signal?.aborted !== true) return this.take(count);
    return this.#wait(this.#takers, count, options);
  }

  /** Waits until the buffer holds `count` IDs, by default enough for coverSeconds. Throws as takeAsync. */
  async ready(count: number = this.#demand.low, options: WaitForIds = {}): Promise<void> {
    this.#checkCount(count);
    if (this.#closed || this.#stock.size < count) await this.#wait(this.#watchers, count, options);
  }

  /**
   * Requests one batch, bypassing the buffer. Until a reply comes the request is resent, which never yields a second batch;
   * nor does another call with the same correlation ID after an error.
   *
   * @throws RequestRefused with the workers' code; IdallocError NO_REPLY, KAFKA_UNAVAILABLE, CONFIG_INVALID, QUEUE_FULL,
   * CLIENT_CLOSED, CONFLICT, INVALID_COUNT, INVALID_CORRELATION_ID, INVALID_REPLY_TOPIC, TOPIC_INVALID, MALFORMED_REPLY; the signal's reason.
   */
  async request(options: RequestOptions): Promise<RequestedBatch> {
    const correlationId = options.correlationId ?? this.#runtime.uuid();
    const { batch, layout, replayed } = await this.#ask({ ...options, correlationId });
    return { correlationId, batch, layout, replayed };
  }

  /** Rejects all waiting calls with CLIENT_CLOSED and closes all connections. IDs in the buffer are discarded. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#closed = true;
    this.#refill.stop();
    this.#stock.withhold(closed);
    const reason = closed();
    this.#requester.close(reason);
    this.#takers.rejectAll(reason);
    this.#watchers.rejectAll(reason);
    await this.#transport.close();
  }

  /** Requests IDs for the buffer. */
  async #fetch(count: number): Promise<Answer> {
    const answer = await this.#ask({ count, timeoutMs: Number.POSITIVE_INFINITY });
    this.#numbers.note(answer);
    return answer;
  }

  async #ask({ count, correlationId, replyTopic, timeoutMs, signal, encoding }: RequestOptions): Promise<Answer> {
    if (!(Number.isInteger(count) && count >= 1 && count <= MAX_REQUEST_COUNT)) throw notACount(count);
    const id = bytesOf(correlationId ?? this.#runtime.uuid());
    const answer = await this.#requester.request({
      count,
      correlationId: checkCorrelationId(id),
      replyTopic: checkReplyTopic(replyTopic ?? this.#replyTopic),
      encoding: encoding ?? 'RANGES',
      timeoutMs: timeoutMs ?? this.#settings.timeoutMs,
      signal,
    });
    const { latencyMs, replayed } = answer;
    this.#layout = answer.layout;
    callHook(this.#settings.hooks, 'onReply', { correlationId: id.toString(), count, latencyMs, replayed });
    return answer;
  }

  async #wait(queue: WaitingQueue, count: number, { timeoutMs, signal }: WaitForIds): Promise<readonly bigint[]> {
    if (this.#closed) throw closed();
    if (!this.#settings.prefetch) throw unfilled();
    const limitMs = timeoutMs ?? this.#settings.timeoutMs;
    const late = () =>
      new IdallocError(
        'NO_REPLY',
        `fewer than ${count} IDs arrived within ${limitMs} ms: check that a worker is running and ready`,
      );
    const waited = wait<readonly bigint[]>(this.#runtime, { timeoutMs: limitMs, signal, late }, (caller) => {
      const leave = queue.join(count, caller);
      this.#share();
      return () => {
        leave();
        this.#serve();
      };
    });
    this.#refill.look();
    return waited;
  }

  #serve(): void {
    if (this.#closed) return;
    const stock = this.#stock;
    this.#takers.serve(
      () => stock.size,
      (count) => stock.takeReserved(count),
    );
    this.#watchers.serve(
      () => stock.size,
      () => [],
    );
    this.#share();
  }

  /** While callers wait, new IDs are reserved for them. */
  #share(): void {
    this.#stock.withhold(this.#takers.isEmpty ? undefined : awaited);
  }

  #filled(count: number): void {
    this.#serve();
    callHook(this.#settings.hooks, 'onBatch', { count, buffered: this.#stock.size, lowWater: this.#demand.low });
  }

  #refused(error: IdallocError): void {
    this.#takers.rejectAll(error);
    this.#watchers.rejectAll(error);
  }

  #checkCount(count: number): void {
    const most = Math.floor(this.#settings.maxBuffered / 2);
    if (Number.isInteger(count) && count >= 1 && count <= most) return;
    throw new IdallocError('INVALID_COUNT', `count must be from 1 to half of maxBuffered, ${most}, not ${count}`);
  }
}

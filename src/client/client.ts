import type { IdBatch } from '../codec/id-batch.ts';
import { checkCorrelationId, checkReplyTopic, type Encoding, MAX_REQUEST_COUNT } from '../codec/id-request.ts';
import type { Runtime } from '../core/runtime.ts';
import { IdallocError } from '../errors.ts';
import { RUNTIME } from '../runtime.ts';
import { Demand } from './demand.ts';
import { FaultReports } from './faults.ts';
import { callHook } from './hooks.ts';
import { connectKafka } from './kafka-link.ts';
import { type BufferOptions, type BufferSettings, bufferSettings, type IdClientOptions } from './options.ts';
import { Refill } from './refill.ts';
import { type Answer, bytesOf, Requester } from './requester.ts';
import { IdStock } from './stock.ts';
import type { Transport, TransportEvents } from './transport.ts';
import { WaitingQueue, wait } from './waiting.ts';

export interface RequestOptions {
  readonly count: number;
  /** 1 to 256 bytes (text: as UTF-8); the same one always gets the same batch. Default: a new one. */
  readonly correlationId?: string | Uint8Array;
  /** Where to reply, if not on the client's own reply topic; it is read from then on, up to 8 of them. */
  readonly replyTopic?: string;
  /** Another limit than the client's. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** How the reply lists its IDs on the wire (default RANGES); no difference to the caller. */
  readonly encoding?: Encoding;
}

/** A batch as the workers gave it. */
export interface RequestedBatch {
  readonly correlationId: string | Uint8Array;
  readonly batch: IdBatch;
  /** It was decided for an earlier sending of this request. */
  readonly replayed: boolean;
}

export interface WaitForIds {
  /** Another limit than the client's. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** What a client stands on, for tests to replace. */
export interface Foundation {
  readonly runtime: Runtime;
  readonly replyTopic: string;
  readonly link: (events: TransportEvents) => Promise<Transport>;
}

/**
 * IDs for a service. next() and take() give what was fetched ahead, at once; takeAsync() waits where there is not
 * enough; request() asks for one batch by its correlation ID. An open client keeps its process alive.
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
  #closed = false;
  #closing: Promise<void> | undefined;

  /**
   * Connects to the brokers, looks for the end of the reply topic, and begins to fill the buffer; workers need not run yet.
   * Brokers that are away are waited for, for 10 s; a login that they refuse is CONFIG_INVALID at once.
   *
   * @throws IdallocError CONFIG_INVALID, KAFKA_UNAVAILABLE, TOPIC_INVALID.
   */
  static connect(options: IdClientOptions): Promise<IdClient> {
    const link = (events: TransportEvents) => connectKafka(options, RUNTIME, events);
    return IdClient.over({ runtime: RUNTIME, replyTopic: options.replyTopic, link }, options);
  }

  /** The same over another way to the workers. */
  static async over({ runtime, replyTopic, link }: Foundation, options: BufferOptions): Promise<IdClient> {
    const settings = bufferSettings(options);
    const faults = new FaultReports(runtime, (error) => callHook(settings.hooks, 'onFault', error));
    const onFault = (error: Error) => faults.report(error);
    let client: IdClient | undefined;
    const transport = await link({
      onReply: (reply) => {
        if (client !== undefined) client.#requester.receive(reply);
      },
      onFault,
    });
    client = new IdClient(settings, runtime, replyTopic, transport, onFault);
    if (settings.prefetch) client.#refill.start();
    return client;
  }

  private constructor(
    settings: BufferSettings,
    runtime: Runtime,
    replyTopic: string,
    transport: Transport,
    onFault: (error: Error) => void,
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
      onFault,
    });
    this.#demand = new Demand(settings, monotonicMs());
    this.#stock = new IdStock({ onLow: () => this.#refill.look(), monotonicMs, maxAgeMs });
    this.#refill = new Refill({
      stock: this.#stock,
      demand: this.#demand,
      runtime,
      maxCount,
      ask: (count) => this.#ask({ count, timeoutMs: Number.POSITIVE_INFINITY }),
      waitedFor: () => ({ taken: this.#takers.needed, buffered: this.#watchers.needed }),
      onBatch: (_answer, count) => this.#filled(count),
      onRefused: (error) => this.#refused(error),
      onFault,
    });
    if (!settings.prefetch) this.#stock.withhold(unfilled);
  }

  /** IDs in the buffer: a gauge. */
  get buffered(): number {
    return this.#stock.size;
  }

  /** With no more IDs than this in the buffer, more are asked for: a gauge. */
  get lowWater(): number {
    return this.#demand.low;
  }

  /** The next ID. Throws IdallocError BUFFER_EMPTY, also while others wait for IDs; CLIENT_CLOSED. */
  next(): bigint {
    return this.#stock.next();
  }

  /** The next `count` IDs, or none of them: throws as next(). */
  take(count: number): bigint[] {
    this.#checkCount(count);
    return this.#stock.take(count);
  }

  /**
   * The next `count` IDs, as soon as there are so many; callers are served in the order in which they came.
   *
   * @throws IdallocError NO_REPLY, QUEUE_FULL, CLIENT_CLOSED, INVALID_COUNT above half of maxBuffered; RequestRefused when
   * the workers refuse; the signal's reason.
   */
  async takeAsync(count: number, options: WaitForIds = {}): Promise<readonly bigint[]> {
    this.#checkCount(count);
    this.#stock.dropOld();
    if (this.#takers.isEmpty && this.#stock.size >= count && options.signal?.aborted !== true) return this.take(count);
    return this.#wait(this.#takers, count, options);
  }

  /** Waits until the buffer holds `count` IDs, by default as many as cover coverSeconds. Throws as takeAsync. */
  async ready(count: number = this.#demand.low, options: WaitForIds = {}): Promise<void> {
    this.#checkCount(count);
    if (this.#closed || this.#stock.size < count) await this.#wait(this.#watchers, count, options);
  }

  /**
   * Asks for one batch, past the buffer. Without a reply the same request is sent again, which never costs a second batch;
   * neither does asking again for a correlation ID after an error.
   *
   * @throws RequestRefused with the workers' code; IdallocError NO_REPLY, KAFKA_UNAVAILABLE, CONFIG_INVALID, QUEUE_FULL,
   * CLIENT_CLOSED, CONFLICT, INVALID_COUNT, INVALID_CORRELATION_ID, INVALID_REPLY_TOPIC, TOPIC_INVALID, MALFORMED_REPLY; the signal's reason.
   */
  async request(options: RequestOptions): Promise<RequestedBatch> {
    const correlationId = options.correlationId ?? this.#runtime.uuid();
    const { batch, replayed } = await this.#ask({ ...options, correlationId });
    return { correlationId, batch, replayed };
  }

  /** Rejects all who wait with CLIENT_CLOSED and ends all connections. What is in the buffer is given up. */
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
    callHook(this.#settings.hooks, 'onReply', { correlationId: id.toString(), count, latencyMs, replayed });
    return answer;
  }

  async #wait(queue: WaitingQueue, count: number, { timeoutMs, signal }: WaitForIds): Promise<readonly bigint[]> {
    if (this.#closed) throw closed();
    if (!this.#settings.prefetch) throw unfilled();
    const limitMs = timeoutMs ?? this.#settings.timeoutMs;
    const late = () => new IdallocError('NO_REPLY', `no ${count} IDs came within ${limitMs} ms: are the workers well?`);
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

  /** While somebody waits, what comes is for those who wait. */
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
    throw new IdallocError('INVALID_COUNT', `${count} IDs can't be taken: from 1 to half of maxBuffered, ${most}`);
  }
}

function notACount(count: number): IdallocError {
  return new IdallocError('INVALID_COUNT', `count ${count} is no whole number from 1 to ${MAX_REQUEST_COUNT}`);
}

function closed(): IdallocError {
  return new IdallocError('CLIENT_CLOSED', 'the client was closed');
}

function awaited(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'others wait for the next IDs: wait with them, by takeAsync');
}

function unfilled(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'the client was made with prefetch: false: ask by request()');
}

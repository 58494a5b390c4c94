import type { Runtime } from '../async/runtime.ts';
import { checkCorrelationId, checkReplyTopic, checkSequence, MAX_REQUEST_COUNT } from '../codec/request-checks.ts';
import type { Layout } from '../core/layout.ts';
import { IdallocError } from '../errors.ts';
import { RUNTIME } from '../runtime.ts';
import { ClientEvents } from './hooks.ts';
import {
  type IdSource,
  type RequestedBatch,
  type RequestOptions,
  type Sequence,
  type SequenceNumbers,
  type SequenceTakeOptions,
  sequenceNumbers,
  type WaitForIds,
} from './id-source.ts';
import { connectKafka } from './kafka-link.ts';
import { type ClientMetrics, MetricsRecorder } from './metrics.ts';
import { type BufferOptions, type BufferSettings, bufferSettings, type IdClientOptions } from './options.ts';
import { Refill } from './refill.ts';
import {
  bytesOf,
  clientClosed,
  expiryOf,
  invalidCount,
  noBuffer,
  noCorrelationId,
  timeoutOf,
  withDetails,
} from './refusals.ts';
import { type BatchReply, type BatchRequest, Requester, type Transport, type TransportEvents } from './requester.ts';
import { type FollowRequest, requestSpans } from './spans.ts';
import { Demand, IdStock } from './stock.ts';
import { Waits } from './waits.ts';

/** The dependencies of a client, for tests to replace. */
export interface ClientDependencies {
  readonly runtime: Runtime;
  readonly replyTopic: string;
  readonly link: (events: TransportEvents) => Promise<Transport>;
  /** Default: requests are not followed. */
  readonly follow?: FollowRequest | undefined;
  /** Called once with a function that drops all IDs in the buffer. */
  readonly onOpen?: (dropAll: () => void) => void;
}

/**
 * IDs for a service. next() and take() return prefetched IDs synchronously; takeAsync() waits until there are enough;
 * request() requests one batch by its correlation ID. IdSource documents its members. An open client keeps its process
 * alive.
 */
export class IdClient implements IdSource, AsyncDisposable {
  readonly #settings: BufferSettings;
  readonly #runtime: Runtime;
  readonly #replyTopic: string;
  readonly #follow: FollowRequest;
  readonly #transport: Transport;
  readonly #requester: Requester;
  readonly #demand: Demand;
  readonly #stock: IdStock;
  readonly #refill: Refill;
  readonly #waits: Waits;
  readonly #metrics: MetricsRecorder;
  readonly #events: ClientEvents;
  readonly #numbers = new NumberCheck();
  #layout: Layout | undefined;
  #closed = false;
  #closing: Promise<void> | undefined;

  /**
   * Connects to the brokers, finds the end of the reply topic, and starts to fill the buffer; no worker needs to run
   * yet. Unreachable brokers are retried for `connectTimeoutMs`; a rejected login is CONFIG_INVALID immediately, unless
   * the options may have another one by then. The options' signal ends it with its reason.
   *
   * @throws IdallocError CONFIG_INVALID, KAFKA_UNAVAILABLE, TOPIC_INVALID.
   */
  static async connect(options: IdClientOptions): Promise<IdClient> {
    if (typeof options !== 'object' || options === null) {
      throw new IdallocError('CONFIG_INVALID', 'connect needs options: at least { brokers, replyTopic }');
    }
    const link = (events: TransportEvents) => connectKafka(options, RUNTIME, events);
    const follow = await requestSpans(options.requestTopic);
    return IdClient.over({ runtime: RUNTIME, replyTopic: options.replyTopic, link, follow }, options);
  }

  /**
   * Like connect, over another transport.
   *
   * @internal
   */
  static async over(dependencies: ClientDependencies, options: BufferOptions): Promise<IdClient> {
    const { runtime, link, onOpen } = dependencies;
    const settings = bufferSettings(options);
    const metrics = new MetricsRecorder();
    const events = new ClientEvents(settings.hooks, runtime, metrics);
    let client: IdClient | undefined;
    const transport = await link({
      onReply: (reply) => {
        if (client !== undefined) client.#requester.receive(reply);
      },
      onMoved: (replyTopic) => {
        if (client !== undefined) client.#requester.resendAll(replyTopic);
      },
      onError: (error) => events.failed(error),
    });
    const opened = new IdClient(settings, dependencies, transport, metrics, events);
    client = opened;
    onOpen?.(() => opened.#stock.dropAll());
    if (settings.prefetch) opened.#refill.start();
    return opened;
  }

  private constructor(
    settings: BufferSettings,
    { runtime, replyTopic, follow }: ClientDependencies,
    transport: Transport,
    metrics: MetricsRecorder,
    events: ClientEvents,
  ) {
    this.#settings = settings;
    this.#runtime = runtime;
    this.#replyTopic = replyTopic;
    this.#follow = follow ?? ((request, _isAhead, send) => send(request));
    this.#transport = transport;
    this.#metrics = metrics;
    this.#events = events;
    const { coverSeconds, maxAgeMs, maxBuffered, maxWaiting, maxCount, resendAfterMs, timeoutMs, prefetch } = settings;
    const onError = (error: Error) => events.failed(error);
    const monotonicMs = () => runtime.monotonicMs();
    this.#requester = new Requester({
      transport,
      runtime,
      resendAfterMs,
      maxWaiting,
      onSend: (id, count, attempt) => {
        metrics.noteSend();
        events.tell('onRequest', { correlationId: id.toString(), count, attempt });
      },
      onError,
    });
    this.#demand = new Demand(settings, monotonicMs());
    const check = () => this.#refill.check();
    const onFailure = (error: IdallocError) => {
      metrics.noteFailure(error);
      if (!prefetch) return;
      this.#demand.lacked(error.count ?? 1);
      check();
    };
    const onTake = (count: number) => this.#demand.took(count);
    this.#stock = new IdStock({ onLow: check, onTake, monotonicMs, maxAgeMs, maxIds: maxBuffered, onFailure });
    const low = () => this.#demand.low;
    const hasRepliedSince = (sinceMs: number) => this.#requester.hasRepliedSince(sinceMs);
    const serving = { stock: this.#stock, runtime, maxWaiting, timeoutMs, prefetch, low };
    const trouble = () => this.#requester.unsent ?? transport.trouble(replyTopic);
    this.#waits = new Waits({ ...serving, onTake, check, hasRepliedSince, trouble });
    this.#refill = new Refill({
      ...{ stock: this.#stock, demand: this.#demand, waits: this.#waits },
      ...{ runtime, coverSeconds, maxAgeMs, maxCount, layout: () => this.#layout },
      request: (correlationId, count, signal) => this.#requestForBuffer(correlationId, count, signal),
      partitionOf: (correlationId) => transport.partitionOf(Buffer.from(correlationId)),
      onBatch: (_reply, count) => this.#filled(count),
      onError,
    });
    if (!prefetch) this.#stock.withhold(noBuffer);
  }

  get buffered(): number {
    return this.#stock.size;
  }

  get lowWater(): number {
    return this.#demand.low;
  }

  get layout(): Layout | undefined {
    return this.#layout;
  }

  next(): bigint {
    return this.#stock.next();
  }

  take(count: number): bigint[] {
    this.#checkCount(count);
    return this.#stock.take(count);
  }

  nextNumber(): number {
    this.#numbers.require();
    return Number(this.next());
  }

  takeNumbers(count: number): number[] {
    this.#numbers.require();
    return this.take(count).map(Number);
  }

  async takeNumbersAsync(count: number, options: WaitForIds = {}): Promise<readonly number[]> {
    this.#numbers.require();
    const ids = await this.takeAsync(count, options);
    this.#numbers.require(); // the layout may have been unknown before
    return ids.map(Number);
  }

  async takeAsync(count: number, options: WaitForIds = {}): Promise<readonly bigint[]> {
    this.#checkCount(count, options.timeoutMs);
    const ids = options.signal?.aborted === true ? undefined : this.#stock.tryTake(count);
    return ids ?? this.#waited(count, options, () => this.#waits.take(count, options));
  }

  async ready(count: number = this.#demand.low, options: WaitForIds = {}): Promise<void> {
    this.#checkCount(count, options.timeoutMs);
    if (!this.#closed && this.#stock.size >= count) return;
    await this.#waited(count, options, () => this.#waits.until(count, options));
  }

  async request(options: RequestOptions): Promise<RequestedBatch> {
    const correlationId = options?.correlationId ?? this.#runtime.uuid();
    const { batch, layout, replayed } = await this.#metrics.counted(this.#request({ ...options, correlationId }));
    return { correlationId, batch, layout, replayed };
  }

  sequence(name: string): Sequence {
    checkSequence(name);
    return { name, take: (count, options) => this.#takeFromSequence(name, count, options) };
  }

  metrics(): ClientMetrics {
    return {
      closed: this.#closed,
      buffered: this.buffered,
      lowWater: this.lowWater,
      idsPerSecond: this.#demand.rate,
      waiting: this.#waits.size,
      pending: this.#requester.pending,
      taken: this.#stock.taken + this.#waits.taken,
      dropped: this.#stock.dropped,
      passedOver: this.#requester.passedOver,
      oldestMs: this.buffered > 0 ? this.#runtime.monotonicMs() - this.#stock.oldestMs : undefined,
      ...this.#metrics.totals(this.#requester.begun),
    };
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#closed = true;
    this.#events.close();
    this.#refill.stop();
    this.#stock.withhold(clientClosed);
    await Promise.all([this.#requester.close(clientClosed), this.#waits.close(), this.#transport.close()]);
  }

  /** Requests IDs for the buffer. */
  async #requestForBuffer(correlationId: string, count: number, signal: AbortSignal): Promise<BatchReply> {
    const reply = await this.#request({ count, correlationId, signal, timeoutMs: Number.POSITIVE_INFINITY }, true);
    this.#numbers.note(reply);
    return reply;
  }

  #request(options: AskedFor, isAhead = false): Promise<BatchReply> {
    return withDetails(options, async () => {
      const request = { ...this.#toRequest(options), endsWhenRefused: isAhead, isAhead };
      const reply = await this.#follow(request, isAhead, (one) => this.#requester.request(one));
      this.#layout = reply.layout;
      this.#noteReply(request, reply);
      return reply;
    });
  }

  async #takeFromSequence(sequence: string, count: number, options: SequenceTakeOptions): Promise<SequenceNumbers> {
    const correlationId = options?.correlationId;
    const asked = withDetails({ ...options, count }, async () => {
      if (correlationId === undefined) throw noCorrelationId(sequence);
      const request = { ...this.#toRequest({ ...options, count }), sequence };
      const reply = await this.#follow(request, false, (one) => this.#requester.requestNumbers(one));
      this.#noteReply(request, reply);
      return reply;
    });
    const { replayed, numbers } = await this.#metrics.counted(asked);
    return sequenceNumbers({ correlationId, sequence, replayed }, numbers);
  }

  #toRequest(options: AskedFor): BatchRequest {
    return toRequest(options, { replyTopic: this.#replyTopic, timeoutMs: this.#settings.timeoutMs });
  }

  #noteReply({ correlationId, count }: BatchRequest, reply: Pick<BatchReply, 'latencyMs' | 'replayed'>): void {
    const { latencyMs, replayed } = reply;
    this.#metrics.noteReply(reply);
    this.#events.tell('onReply', { correlationId: correlationId.toString(), count, latencyMs, replayed });
  }

  #filled(count: number): void {
    this.#waits.serve();
    this.#events.tell('onBatch', { count, buffered: this.#stock.size, lowWater: this.#demand.low });
  }

  #waited<T>(count: number, { signal }: WaitForIds, call: () => Promise<T>): Promise<T> {
    return this.#metrics.counted(withDetails({ count, signal }, call));
  }

  /** Also checks the time limit, which is wrong even if there is no need to wait. */
  #checkCount(count: number, timeoutMs?: number): void {
    timeoutOf(timeoutMs, this.#settings.timeoutMs);
    const maximum = Math.floor(this.#settings.maxBuffered / 2);
    if (Number.isInteger(count) && count >= 1 && count <= maximum) return;
    const message = `count must be from 1 to half of maxBuffered, ${maximum}, not ${count}`;
    throw new IdallocError('INVALID_COUNT', message, { count });
  }
}

/** A call's options, with the correlation ID that its errors name. */
type AskedFor = RequestOptions & { readonly correlationId: string | Uint8Array };

/** Throws INVALID_COUNT, INVALID_CORRELATION_ID, INVALID_REPLY_TOPIC or MALFORMED_REQUEST. */
function toRequest(
  options: AskedFor,
  defaults: { readonly replyTopic: string; readonly timeoutMs: number },
): BatchRequest {
  const { count, correlationId, replyTopic, timeoutMs, signal, encoding, expiresAt } = options;
  if (!(Number.isInteger(count) && count >= 1 && count <= MAX_REQUEST_COUNT)) throw invalidCount(count);
  return {
    count,
    correlationId: checkCorrelationId(bytesOf(correlationId)),
    replyTopic: checkReplyTopic(replyTopic ?? defaults.replyTopic),
    encoding: encoding ?? 'RANGES',
    expiresAtMs: expiryOf(expiresAt),
    timeoutMs: timeoutOf(timeoutMs, defaults.timeoutMs),
    signal,
  };
}

const MAX_NUMBER = BigInt(Number.MAX_SAFE_INTEGER);

/**
 * Whether IDs may be returned as JavaScript numbers. The layout decides, not the IDs: those of a wider layout are small
 * in its first days, and would be rounded later. After the first IDs that do not fit, all calls fail: a namespace has
 * one layout, so this never changes.
 */
class NumberCheck {
  #refusal: string | undefined;

  /** Checks a reply before its IDs are used. */
  note({ batch, layout }: Pick<BatchReply, 'batch' | 'layout'>): void {
    if (layout === undefined) this.#refusal ??= 'have a layout that this version of the client does not know';
    else if (!layout.fitsNumber) {
      this.#refusal ??= `have the layout '${layout.name}', whose IDs exceed the 53 bits of a JavaScript number`;
    }
    const isLarge = batch.ranges.some(({ first, count }) => first + BigInt(count - 1) * batch.step > MAX_NUMBER);
    if (isLarge) this.#refusal ??= 'exceed 2^53, which their layout does not allow';
  }

  /** Throws CONFIG_INVALID once IDs have arrived that do not fit. */
  require(): void {
    if (this.#refusal === undefined) return;
    const remedy = 'use bigints with next(), or a namespace with LAYOUT=js-safe';
    throw new IdallocError('CONFIG_INVALID', `these IDs ${this.#refusal}: ${remedy}`);
  }
}

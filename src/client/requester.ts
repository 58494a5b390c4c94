import type { Runtime, Timer } from '../async/runtime.ts';
import { countIds, expandIds, type IdBatch } from '../codec/id-batch.ts';
import { decodeIdReply, type IdReply } from '../codec/id-reply.ts';
import { type Encoding, encodeIdRequest } from '../codec/id-request.ts';
import type { Numbers } from '../codec/sequence-entry.ts';
import type { Layout } from '../core/layout.ts';
import { layoutFinder } from '../core/layout-choice.ts';
import { type ErrorCode, IdallocError, unlessInvalid } from '../errors.ts';
import { errorFor, inProgress, noReply, notSent, pauseAfter, RequestRefused, unlikeReply } from './refusals.ts';
import { inSlices, type WaitingCaller, wait } from './waiting.ts';

/** A request record to send. */
export interface OutgoingRequest {
  /**
   * What names the request in the ledger, or the name of a sequence. As the record's key, it sends each retry to the
   * partition that decides.
   */
  readonly key: Buffer;
  /** All that it asks for, without the correlation ID. */
  readonly value: Buffer;
  readonly correlationId: Buffer;
  readonly replyTopic: string;
  /** Wall milliseconds of the first send; undefined the first time. */
  readonly firstSentMs?: number | undefined;
  /** Besides the transport's own. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** False once no caller waits for the reply: an unsent request is dropped then. */
  readonly isWanted: () => boolean;
}

/** A record of a reply topic. */
export interface IncomingReply {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly replayed: boolean;
  /** The layout text in the reply's headers, if any; not verified yet. */
  readonly layoutText?: string | undefined;
  /** Of a refusal, if its sender knows when a retry may succeed. */
  readonly retryAfterMs?: number | undefined;
}

/** Sends requests to the workers and receives their replies. */
export interface Transport {
  /**
   * Resolves when the brokers have the request, or it is no longer wanted. Replies are read from before that on.
   * Rejects with IdallocError KAFKA_UNAVAILABLE, CONFIG_INVALID, TOPIC_INVALID or QUEUE_FULL.
   */
  send(request: OutgoingRequest): Promise<void>;
  /** The partition of the request topic for requests with this key; undefined before the first one is sent. */
  partitionOf(key: Buffer): number | undefined;
  /** Why replies on this topic can't be read now; undefined while they can, as far as is known. */
  trouble(replyTopic: string): string | undefined;
  /** Closes all connections within a second; never rejects. */
  close(): Promise<void>;
}

/** Events of a transport. */
export interface TransportEvents {
  readonly onReply: (reply: IncomingReply) => void;
  /**
   * Replies on this topic may be lost, or go where they are no longer read from: what waits for one must be sent again
   * now. It is then sent with the new partition, or fails with the reason.
   */
  readonly onMoved: (replyTopic: string) => void;
  /** A transient error; the transport retries. */
  readonly onError: (error: Error) => void;
}

/** What a reply is compared with. */
interface Asked {
  readonly correlationId: Buffer;
  readonly count: number;
  readonly sequence?: string | undefined;
}

export type Content = { readonly batch: IdBatch } | { readonly numbers: Numbers };

/** What a record under the correlation ID of a request is to it. */
type ReplyReading =
  | { readonly kind: 'content'; readonly content: Content }
  | { readonly kind: 'refusal'; readonly refusal: RequestRefused }
  | Foreign;

/** Nobody has answered the request yet: its own answer may still come. */
export interface Foreign {
  readonly kind: 'foreign';
  /** One of few texts. */
  readonly what: string;
  /** False for what others do as they should: the record answers another request. */
  readonly isFault: boolean;
}

/**
 * What a record means for the request that waits under its correlation ID. Anyone who may write to the reply topic may
 * send one, so that what can't be its answer must not end it: what another client on this reply topic gets of something
 * else, what a replay refuses because it was refused before, and what no worker sends.
 */
function readReply(asked: Asked, { value, retryAfterMs }: Pick<IncomingReply, 'value' | 'retryAfterMs'>): ReplyReading {
  const { correlationId, count, sequence } = asked;
  const reply = unlessInvalid(() => decodeIdReply(value));
  if (reply === undefined) return fault('no readable reply');
  if (!reply.correlationId.equals(correlationId)) return fault('a reply to another correlation ID than its key');
  if ('error' in reply) {
    const { code, message } = reply.error;
    if (code === ('ANSWERED_BEFORE' satisfies ErrorCode)) return another('a refusal of an earlier record');
    return { kind: 'refusal', refusal: new RequestRefused(code, message, { retryAfterMs }) };
  }
  if (('batch' in reply ? undefined : reply.numbers.sequence) !== sequence) return another(kindOf(reply));
  const got = 'batch' in reply ? countIds(reply.batch.ranges) : reply.numbers.count;
  if (got !== count) return another('another count');
  if ('batch' in reply && repeatsIds(reply.batch)) return fault('a batch with an ID twice');
  return { kind: 'content', content: reply };
}

function fault(what: string): Foreign {
  return { kind: 'foreign', what, isFault: true };
}

function another(what: string): Foreign {
  return { kind: 'foreign', what, isFault: false };
}

function kindOf(reply: IdReply): string {
  return 'batch' in reply ? 'IDs in place of numbers' : 'numbers of another sequence, or in place of IDs';
}

/** Workers list ranges in rising order, so that what they send is read through once. */
function repeatsIds({ ranges, step }: IdBatch): boolean {
  let endsAt = -1n;
  for (const { first, count } of ranges) {
    if (first <= endsAt) return new Set(expandIds({ ranges, step })).size < countIds(ranges);
    endsAt = first + BigInt(count - 1) * step;
  }
  return false;
}

/** A request to the workers, for IDs, or for numbers of a sequence. */
export interface BatchRequest {
  readonly sequence?: string | undefined;
  readonly count: number;
  readonly correlationId: Buffer;
  /** Names the request in the ledger in place of the correlation ID. */
  readonly requestId?: Buffer | undefined;
  readonly replyTopic: string;
  readonly encoding: Encoding;
  /** Wall milliseconds. */
  readonly expiresAtMs: number | undefined;
  /** The time limit from the call to the reply; Infinity: until the client is closed. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /**
   * Any refusal ends it; otherwise one after which a retry may succeed does so only when no time is left for the retry.
   */
  readonly endsWhenRefused?: boolean | undefined;
  /** It is one of the few for the buffer, which callers that wait for others do not keep from being filled. */
  readonly isAhead?: boolean | undefined;
  /** Sent with it, unless an equal request is in progress. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** How a reply was delivered. */
export interface Delivered {
  /** True when its content was decided for an earlier copy of this request. */
  readonly replayed: boolean;
  /** Monotonic time of the first send. */
  readonly sentAtMs: number;
  readonly latencyMs: number;
}

/** A batch as it was delivered. */
export interface BatchReply extends Delivered {
  readonly batch: IdBatch;
  /** The layout of its IDs; undefined when this version knows no layout with the batch's fingerprint. */
  readonly layout: Layout | undefined;
}

/** Numbers of a sequence as they were delivered. */
export interface NumbersReply extends Delivered {
  readonly numbers: Numbers;
}

type Reply = BatchReply | NumbersReply;

export interface RequesterOptions {
  readonly transport: Pick<Transport, 'send' | 'trouble'>;
  readonly runtime: Runtime;
  /**
   * A request without a reply is resent after this, doubling each time up to MAX_RESEND_MS or MAX_PATIENT_MS, if it is
   * not longer itself.
   */
  readonly resendAfterMs: number;
  readonly maxWaiting: number;
  readonly onSend: (correlationId: Buffer, count: number, attempt: number) => void;
  readonly onError: (error: Error) => void;
}

const MAX_RESEND_MS = 30_000;
/**
 * The longest pause while the workers answer others: the request is in the topic, and each copy of it is work for them.
 */
const MAX_PATIENT_MS = 120_000;
/** The delay after a failed send. */
const RETRY_UNSENT_MS = 500;
/** What the value of a request depends on. Two request IDs with the same bytes count as different. */
const FORM = ['count', 'replyTopic', 'encoding', 'expiresAtMs', 'requestId', 'sequence'] as const;

/** A request in progress, with all callers that wait for its reply. */
class PendingRequest {
  readonly request: BatchRequest;
  readonly value: Buffer;
  readonly sentAtMs: number;
  /** Each with the monotonic time at which its wait ends. */
  readonly callers = new Map<WaitingCaller<Reply>, number>();
  attempts = 0;
  /** Sends since the workers have last said anything to it. */
  unanswered = 0;
  /**
   * Whoever schedules or begins a send takes the next turn, so that an earlier send that ends later schedules nothing.
   */
  turn = 0;
  /** Wall milliseconds of the first send that may have reached the brokers. */
  firstSentMs: number | undefined;
  lastSentAtMs = Number.NEGATIVE_INFINITY;
  unsent: Error | undefined;
  resend: Timer | undefined;
  refusals = 0;
  lastRefusal: RequestRefused | undefined;
  /** How many records of each kind were not its answer. */
  readonly passedOver = new Map<string, number>();

  constructor(request: BatchRequest, value: Buffer, nowMs: number) {
    this.request = request;
    this.value = value;
    this.sentAtMs = nowMs;
  }
}

/**
 * Sends requests and matches replies to them. A retry sends the same record with the same key, so that it never yields
 * a second batch.
 *
 *   sent -> sent:     no reply in time, or the reply topic moved: the record is sent again
 *   sent -> refused:  a retry may succeed: the record is sent again at the time that the refusal names
 *   sent, refused -> ended for a caller: content, a final refusal, no time left for the next try, timeout, signal,
 *                     close
 */
export class Requester {
  readonly #options: RequesterOptions;
  readonly #layoutOf = layoutFinder();
  readonly #pending = new Map<string, PendingRequest>();
  /** Why the last send of a request for the buffer failed; undefined if it did not. */
  unsent: Error | undefined;
  #closed: (() => Error) | undefined;
  #last: { readonly request: BatchRequest; readonly value: Buffer } | undefined;
  #repliedMs = Number.NEGATIVE_INFINITY;
  #begun = 0;
  /** Callers of all pending requests, without those for the buffer. */
  #callers = 0;
  #passedOver = 0;

  constructor(options: RequesterOptions) {
    this.#options = options;
  }

  /**
   * Sends a request until it is answered.
   *
   * @throws RequestRefused with the workers' code; IdallocError NO_REPLY on timeout, or the reason why it could not be
   * sent (KAFKA_UNAVAILABLE, CONFIG_INVALID, TOPIC_INVALID, QUEUE_FULL); QUEUE_FULL, CONFLICT while this correlation ID
   * is in progress for a different request, CLIENT_CLOSED; the signal's reason.
   */
  async request(request: BatchRequest): Promise<BatchReply> {
    return (await this.#answered(request)) as BatchReply; // readReply has seen to it
  }

  /** Likewise for numbers of `request.sequence`. */
  async requestNumbers(request: BatchRequest): Promise<NumbersReply> {
    return (await this.#answered(request)) as NumbersReply;
  }

  #answered(request: BatchRequest): Promise<Reply> {
    const timeoutError = () => this.#timeoutError(request);
    return wait(this.#options.runtime, { ...request, timeoutError }, (caller) => this.#join(request, caller));
  }

  /** Total number of requests. */
  get begun(): number {
    return this.#begun;
  }

  /** Number of requests without a reply. */
  get pending(): number {
    return this.#pending.size;
  }

  /** Total number of records under the correlation ID of a request that were not its answer. */
  get passedOver(): number {
    return this.#passedOver;
  }

  /** Whether a reply to any request has come since then (monotonic ms). */
  hasRepliedSince(sinceMs: number): boolean {
    return this.#repliedMs > sinceMs;
  }

  /** Handles a record of a reply topic; replies without a waiting caller are ignored. */
  receive(incoming: IncomingReply): void {
    this.#repliedMs = this.#options.runtime.monotonicMs();
    const pending = this.#pending.get(keyOf(incoming.key));
    if (pending === undefined) return;
    const answer = readReply(pending.request, incoming);
    if (answer.kind === 'content') this.#deliver(pending, answer.content, incoming);
    else if (answer.kind === 'refusal') this.#refused(pending, answer.refusal);
    else this.#passOver(pending, answer);
  }

  /**
   * Sends all requests with this reply topic again at once: their replies now go to another partition of it, or did go
   * where nobody reads any more.
   */
  resendAll(replyTopic: string): void {
    for (const pending of this.#pending.values()) {
      if (pending.request.replyTopic !== replyTopic) continue;
      pending.resend?.cancel();
      void this.#send(pending);
    }
  }

  /** Rejects all callers, and further ones, each with an error of its own. */
  async close(reason: () => Error): Promise<void> {
    this.#closed = reason;
    const callers = [...this.#pending.values()].flatMap((pending) => [...pending.callers.keys()]);
    await inSlices(callers, this.#options.runtime, (caller) => caller.reject(reason()));
  }

  #join(request: BatchRequest, caller: WaitingCaller<Reply>): () => void {
    if (this.#closed !== undefined) throw this.#closed();
    const { maxWaiting } = this.#options;
    const counted = request.isAhead === true ? 0 : 1;
    if (this.#callers + counted > maxWaiting)
      throw new IdallocError('QUEUE_FULL', `${maxWaiting} calls are waiting for replies: see maxWaiting`);
    const key = keyOf(request.correlationId);
    const pending = this.#pending.get(key) ?? this.#begin(key, request);
    const isSame = (['count', 'replyTopic', 'sequence'] as const).every((of) => pending.request[of] === request[of]);
    if (!isSame) throw inProgress(pending.request, request);
    pending.callers.set(caller, this.#options.runtime.monotonicMs() + request.timeoutMs);
    this.#callers += counted;
    return () => {
      if (pending.callers.delete(caller)) this.#callers -= counted;
      if (pending.callers.size > 0) return;
      pending.resend?.cancel();
      this.#pending.delete(key);
    };
  }

  #begin(key: string, request: BatchRequest): PendingRequest {
    const pending = new PendingRequest(request, this.#encode(request), this.#options.runtime.monotonicMs());
    this.#pending.set(key, pending);
    this.#begun += 1;
    void this.#send(pending);
    return pending;
  }

  /** Most requests ask for what the one before asked for. Then they share its value. */
  #encode(request: BatchRequest): Buffer {
    const last = this.#last;
    if (last !== undefined && FORM.every((field) => last.request[field] === request[field])) return last.value;
    const value = encodeIdRequest({ ...request, correlationId: undefined });
    this.#last = { request, value };
    return value;
  }

  async #send(pending: PendingRequest): Promise<void> {
    const { transport, runtime, resendAfterMs, onError, onSend } = this.#options;
    const { correlationId, requestId, replyTopic, count, sequence, headers } = pending.request;
    const key = sequence === undefined ? (requestId ?? correlationId) : Buffer.from(sequence);
    pending.attempts += 1;
    pending.unanswered += 1;
    pending.turn += 1;
    const { turn } = pending;
    onSend(correlationId, count, pending.attempts);
    const mostMs = this.hasRepliedSince(pending.lastSentAtMs) ? MAX_PATIENT_MS : MAX_RESEND_MS;
    pending.lastSentAtMs = runtime.monotonicMs();
    let delayMs = Math.max(resendAfterMs, Math.min(mostMs, resendAfterMs * 2 ** (pending.unanswered - 1)));
    try {
      const { value, firstSentMs } = pending;
      pending.firstSentMs ??= Math.floor(runtime.wallMs());
      const isWanted = () => pending.callers.size > 0;
      await transport.send({ key, value, correlationId, replyTopic, firstSentMs, headers, isWanted });
      pending.unsent = undefined;
    } catch (error) {
      const unsent = error instanceof Error ? error : new Error(String(error));
      if (pending.turn === turn) pending.unsent = unsent;
      pending.attempts -= 1;
      pending.unanswered -= 1;
      delayMs = RETRY_UNSENT_MS;
      onError(unsent);
    }
    if (pending.request.endsWhenRefused === true) this.unsent = pending.unsent;
    // Jitter, so that clients do not all resend at the same moment.
    if (pending.turn === turn) this.#sendAfter(pending, delayMs * (1 + runtime.random() / 4));
  }

  #sendAfter(pending: PendingRequest, delayMs: number): void {
    pending.resend?.cancel();
    pending.turn += 1;
    if (pending.callers.size === 0) return;
    pending.resend = this.#options.runtime.schedule(delayMs, () => void this.#send(pending));
  }

  #deliver({ sentAtMs, callers }: PendingRequest, content: Content, { replayed, layoutText }: IncomingReply): void {
    const delivered = { replayed, sentAtMs, latencyMs: this.#options.runtime.monotonicMs() - sentAtMs };
    const reply: Reply =
      'numbers' in content
        ? { ...content, ...delivered }
        : { ...content, layout: this.#layoutOf(content.batch, layoutText), ...delivered };
    for (const caller of callers.keys()) caller.resolve(reply);
  }

  /** While a retry may succeed, callers wait on for as long as their time limit has room for it. */
  #refused(pending: PendingRequest, refusal: RequestRefused): void {
    const { runtime } = this.#options;
    const { callers, request } = pending;
    const { pauseMs, spreadMs } = pauseAfter(refusal, pending.refusals);
    const nowMs = runtime.monotonicMs();
    const isFinal = !refusal.retryable || request.endsWhenRefused === true;
    for (const [caller, untilMs] of callers)
      if (isFinal || untilMs <= nowMs + pauseMs) caller.reject(errorFor(refusal));
    if (callers.size === 0) return;
    pending.lastRefusal = refusal;
    pending.refusals += 1;
    pending.unanswered = 0;
    const lastMs = [...callers.values()].reduce((most, untilMs) => Math.max(most, untilMs));
    this.#sendAfter(pending, pauseMs + runtime.random() * Math.min((lastMs - nowMs - pauseMs) / 2, spreadMs));
  }

  #passOver({ request, passedOver }: PendingRequest, { what, isFault }: Foreign): void {
    this.#passedOver += 1;
    passedOver.set(what, (passedOver.get(what) ?? 0) + 1);
    if (isFault) this.#options.onError(unlikeReply(request, what));
  }

  #timeoutError(request: BatchRequest): IdallocError {
    const { unsent, sentAtMs, lastRefusal, passedOver } = this.#pending.get(keyOf(request.correlationId)) ?? {};
    if (unsent !== undefined) return notSent(request.timeoutMs, unsent);
    if (lastRefusal !== undefined) return errorFor(lastRefusal);
    const isWaiting = sentAtMs !== undefined && this.hasRepliedSince(sentAtMs);
    return noReply(request, { isWaiting, passedOver, trouble: this.#options.transport.trouble(request.replyTopic) });
  }
}

function keyOf(correlationId: Buffer): string {
  return correlationId.toString('latin1');
}

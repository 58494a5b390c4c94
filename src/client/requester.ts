import type { Runtime, Timer } from '../async/runtime.ts';
import { countIds, type IdBatch } from '../codec/id-batch.ts';
import { decodeIdReply } from '../codec/id-reply.ts';
import { type Encoding, encodeIdRequest } from '../codec/id-request.ts';
import type { Numbers } from '../codec/sequence-entry.ts';
import { layoutFinder } from '../core/find-layout.ts';
import type { Layout } from '../core/layout.ts';
import { describeError, type ErrorCode, IdallocError } from '../errors.ts';
import { inProgress, noReply, RequestRefused } from './refusals.ts';
import type { IncomingReply, Transport } from './transport.ts';
import { type WaitingCaller, wait } from './waiting.ts';

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
  /** Whether it rejects with a refusal also when a retry may succeed. */
  readonly endsWhenRefused?: boolean | undefined;
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
  readonly transport: Transport;
  readonly runtime: Runtime;
  /** A request without a reply is resent after this, doubling each time up to MAX_RESEND_MS or MAX_PATIENT_MS, if it is not longer itself. */
  readonly resendAfterMs: number;
  readonly maxWaiting: number;
  readonly onSend: (correlationId: Buffer, count: number, attempt: number) => void;
  readonly onError: (error: Error) => void;
}

const MAX_RESEND_MS = 30_000;
/** The longest pause while the workers answer others: the request is in the topic, and each copy of it is work for them. */
const MAX_PATIENT_MS = 120_000;
/** The delay after a failed send. */
const RETRY_UNSENT_MS = 500;

/** A request in progress, with all callers that wait for its reply. */
interface PendingRequest {
  readonly request: BatchRequest;
  readonly value: Buffer;
  readonly callers: Set<WaitingCaller<Reply>>;
  readonly sentAtMs: number;
  attempts: number;
  /** Sends that were begun: after an earlier one nothing is scheduled. */
  sends: number;
  /** Wall milliseconds of the first send that may have reached the brokers. */
  firstSentMs: number | undefined;
  lastSentAtMs: number;
  unsent: Error | undefined;
  resend: Timer | undefined;
}

/**
 * Sends requests and matches replies to them. A retry sends the same record with the same key, so that it never yields a
 * second batch.
 */
export class Requester {
  readonly #options: RequesterOptions;
  readonly #layoutOf = layoutFinder();
  readonly #pending = new Map<string, PendingRequest>();
  #closed: Error | undefined;
  #repliedMs = Number.NEGATIVE_INFINITY;
  #begun = 0;

  constructor(options: RequesterOptions) {
    this.#options = options;
  }

  /**
   * Sends a request until it is answered.
   *
   * @throws RequestRefused with the workers' code; IdallocError NO_REPLY on timeout, or the reason why it could not be sent
   * (KAFKA_UNAVAILABLE, CONFIG_INVALID, TOPIC_INVALID, QUEUE_FULL); QUEUE_FULL, CONFLICT while this correlation ID is in
   * progress for a different request, MALFORMED_REPLY, CLIENT_CLOSED; the signal's reason.
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

  /** Whether a reply to any request has come since then (monotonic ms). */
  hasRepliedSince(sinceMs: number): boolean {
    return this.#repliedMs > sinceMs;
  }

  /** Handles a record of a reply topic; replies without a waiting caller are ignored. */
  receive({ key, value, replayed, layoutText }: IncomingReply): void {
    this.#repliedMs = this.#options.runtime.monotonicMs();
    const pending = this.#pending.get(keyOf(key));
    if (pending === undefined) return;
    const { sentAtMs, request } = pending;
    let settle: (caller: WaitingCaller<Reply>) => void;
    try {
      const content = readReply(request, value);
      if (content === undefined) return;
      const delivered = { replayed, sentAtMs, latencyMs: this.#options.runtime.monotonicMs() - sentAtMs };
      const reply: Reply =
        'numbers' in content
          ? { ...content, ...delivered }
          : { ...content, layout: this.#layoutOf(content.batch, layoutText), ...delivered };
      settle = (caller) => caller.resolve(reply);
    } catch (error) {
      settle = (caller) => caller.reject(error);
    }
    for (const caller of pending.callers) settle(caller);
  }

  /** Sends all requests with this reply topic again at once: their replies now go to another partition of it, or did go where nobody reads any more. */
  resendAll(replyTopic: string): void {
    for (const pending of this.#pending.values()) {
      if (pending.request.replyTopic !== replyTopic) continue;
      pending.resend?.cancel();
      void this.#send(pending);
    }
  }

  close(reason: Error): void {
    this.#closed = reason;
    for (const { callers } of this.#pending.values()) for (const caller of callers) caller.reject(reason);
  }

  #join(request: BatchRequest, caller: WaitingCaller<Reply>): () => void {
    if (this.#closed !== undefined) throw this.#closed;
    const key = keyOf(request.correlationId);
    const pending = this.#pending.get(key) ?? this.#begin(key, request);
    const isSame = (['count', 'replyTopic', 'sequence'] as const).every((of) => pending.request[of] === request[of]);
    if (!isSame) throw inProgress(pending.request, request);
    pending.callers.add(caller);
    return () => {
      pending.callers.delete(caller);
      if (pending.callers.size > 0) return;
      pending.resend?.cancel();
      this.#pending.delete(key);
    };
  }

  #begin(key: string, request: BatchRequest): PendingRequest {
    const { maxWaiting, runtime } = this.#options;
    if (this.#pending.size >= maxWaiting) {
      throw new IdallocError('QUEUE_FULL', `${maxWaiting} requests are waiting for replies: see maxWaiting`);
    }
    const nowMs = runtime.monotonicMs();
    const pending: PendingRequest = {
      request,
      value: encodeIdRequest(request),
      callers: new Set(),
      sentAtMs: nowMs,
      lastSentAtMs: nowMs,
      attempts: 0,
      sends: 0,
      firstSentMs: undefined,
      unsent: undefined,
      resend: undefined,
    };
    this.#pending.set(key, pending);
    this.#begun += 1;
    void this.#send(pending);
    return pending;
  }

  async #send(pending: PendingRequest): Promise<void> {
    const { transport, runtime, resendAfterMs, onError, onSend } = this.#options;
    const { correlationId, requestId, replyTopic, count, sequence, headers } = pending.request;
    const key = sequence === undefined ? (requestId ?? correlationId) : Buffer.from(sequence);
    pending.attempts += 1;
    pending.sends += 1;
    const { sends } = pending;
    onSend(correlationId, count, pending.attempts);
    const mostMs = this.hasRepliedSince(pending.lastSentAtMs) ? MAX_PATIENT_MS : MAX_RESEND_MS;
    pending.lastSentAtMs = runtime.monotonicMs();
    let delayMs = Math.max(resendAfterMs, Math.min(mostMs, resendAfterMs * 2 ** (pending.attempts - 1)));
    try {
      const { value, firstSentMs } = pending;
      pending.firstSentMs ??= Math.floor(runtime.wallMs());
      await transport.send({ key, value, replyTopic, firstSentMs, headers, isWanted: () => pending.callers.size > 0 });
      pending.unsent = undefined;
    } catch (error) {
      pending.unsent = error instanceof Error ? error : new Error(String(error));
      pending.attempts -= 1;
      delayMs = RETRY_UNSENT_MS;
      onError(pending.unsent);
    }
    // Jitter, so that clients do not all resend at the same moment.
    delayMs *= 1 + runtime.random() / 4;
    const isLast = pending.sends === sends;
    if (isLast && pending.callers.size > 0) pending.resend = runtime.schedule(delayMs, () => void this.#send(pending));
  }

  #timeoutError(request: BatchRequest): IdallocError {
    const { timeoutMs } = request;
    const { unsent, sentAtMs } = this.#pending.get(keyOf(request.correlationId)) ?? {};
    if (unsent !== undefined) {
      const message = `the request could not be sent within ${timeoutMs} ms: ${describeError(unsent)}`;
      const code = unsent instanceof IdallocError ? unsent.code : 'KAFKA_UNAVAILABLE';
      return new IdallocError(code, message, { cause: unsent });
    }
    const isWaiting = sentAtMs !== undefined && this.hasRepliedSince(sentAtMs);
    return noReply(request, isWaiting);
  }
}

function keyOf(correlationId: Buffer): string {
  return correlationId.toString('latin1');
}

/**
 * What a reply has; undefined for one that answers another record under this correlation ID: what another client on this reply topic gets of
 * something else, and what a replay refuses because it was refused before. Nobody has answered the record that waits here yet.
 */
function readReply(
  { correlationId, count, sequence }: BatchRequest,
  value: Buffer,
): { readonly batch: IdBatch } | { readonly numbers: Numbers } | undefined {
  const reply = decodeIdReply(value);
  if (!reply.correlationId.equals(correlationId)) {
    throw new IdallocError('MALFORMED_REPLY', 'the key and the value of a reply have different correlation IDs');
  }
  if ('error' in reply) {
    if (reply.error.code === ('ANSWERED_BEFORE' satisfies ErrorCode)) return undefined;
    throw new RequestRefused(reply.error.code, reply.error.message);
  }
  const what = 'batch' in reply ? undefined : reply.numbers.sequence;
  if (what !== sequence) return undefined;
  const got = 'batch' in reply ? countIds(reply.batch.ranges) : reply.numbers.count;
  const kind = sequence === undefined ? 'IDs' : 'numbers';
  if (got !== count)
    throw new IdallocError('MALFORMED_REPLY', `the reply has ${got} ${kind}, but ${count} were requested`);
  return reply;
}

/**
 * The bytes of a correlation ID. Rejects strings with unpaired surrogates: UTF-8 would map different ones to the same bytes.
 * Throws IdallocError INVALID_CORRELATION_ID.
 */
export function bytesOf(correlationId: string | Uint8Array): Buffer {
  if (correlationId instanceof Uint8Array) return Buffer.from(correlationId);
  const bytes = Buffer.from(String(correlationId));
  if (bytes.toString() === correlationId) return bytes;
  throw new IdallocError(
    'INVALID_CORRELATION_ID',
    'a correlation ID must be bytes, or a string without unpaired surrogates',
  );
}

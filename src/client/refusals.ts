import { MAX_REQUEST_COUNT } from '../codec/request-checks.ts';
import { addDetails, describeError, ERRORS, type ErrorCode, type ErrorDetails, IdallocError } from '../errors.ts';

/** The workers rejected the request. `serverCode` is their code; `code` is REFUSED if this version does not know it. */
export class RequestRefused extends IdallocError {
  readonly serverCode: string;

  constructor(serverCode: string, message: string, details: ErrorDetails = {}) {
    super(Object.hasOwn(ERRORS, serverCode) ? (serverCode as ErrorCode) : 'REFUSED', message, details);
    this.name = 'RequestRefused';
    this.serverCode = serverCode;
  }

  /** Also of a code that this version does not know, if the worker has said when. */
  override get retryable(): boolean {
    return super.retryable || this.retryAfterMs !== undefined;
  }
}

/** The same error for one of several callers, with what that one asked for. */
export function errorFor(error: IdallocError, count?: number): IdallocError {
  const { code, message } = error;
  const about = { ...error, ...(count === undefined ? {} : { count }) };
  return error instanceof RequestRefused
    ? new RequestRefused(error.serverCode, message, about)
    : new IdallocError(code, message, about);
}

/** The result of a call, whose error says what was asked for. The reason of a signal is the caller's own. */
export async function withDetails<T>(
  { correlationId, count, signal }: ErrorDetails & { readonly signal?: AbortSignal | undefined },
  call: () => Promise<T>,
): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof IdallocError) || error === signal?.reason) throw error;
    addDetails(error, error.code === 'INVALID_CORRELATION_ID' ? { count } : { correlationId, count });
    throw error;
  }
}

/**
 * Pauses after refusals: where they name no time, the first and the longest one; where they do, the shortest and the
 * longest.
 */
const PAUSE_MS = { first: 1_000, longest: 30_000, shortestNamed: 50, longestNamed: 3_600_000 } as const;
const MAX_DOUBLINGS = 5;

/**
 * When to send a request again that was refused so often before, and over what time to spread that: requests that share
 * a quota are all told the same time, and only some of them get IDs then, so each refusal spreads them further.
 */
export function pauseAfter(
  { retryAfterMs }: IdallocError,
  refusedBefore: number,
): { readonly pauseMs: number; readonly spreadMs: number } {
  const { first, longest, shortestNamed, longestNamed } = PAUSE_MS;
  const times = 2 ** Math.min(refusedBefore, MAX_DOUBLINGS);
  if (retryAfterMs === undefined) {
    const pauseMs = Math.min(longest, first * times);
    return { pauseMs, spreadMs: pauseMs / 4 };
  }
  const pauseMs = Math.min(longestNamed, Math.max(shortestNamed, retryAfterMs));
  return { pauseMs, spreadMs: Math.min(longest, (pauseMs * times) / 4) };
}

export function invalidCount(count: number): IdallocError {
  return new IdallocError('INVALID_COUNT', `count must be an integer from 1 to ${MAX_REQUEST_COUNT}, not ${count}`);
}

/** Wall milliseconds of an optional expiry. Throws MALFORMED_REQUEST for one that a request can't hold. */
export function expiryOf(expiresAt: Date | undefined): number | undefined {
  if (expiresAt === undefined) return undefined;
  const expiresAtMs = typeof expiresAt.getTime === 'function' ? expiresAt.getTime() : Number.NaN; // a Date of any realm
  if (expiresAtMs >= 0) return expiresAtMs;
  throw new IdallocError('MALFORMED_REQUEST', 'expiresAt must be a Date of 1970 or later');
}

const MAX_TIMEOUT_MS = 86_400_000;

/** The time limit of a call, by default that of the client. Throws MALFORMED_REQUEST for one that no timer keeps. */
export function timeoutOf(timeoutMs: number | undefined, defaultMs: number): number {
  if (timeoutMs === undefined) return defaultMs;
  if (
    timeoutMs === Number.POSITIVE_INFINITY ||
    (timeoutMs >= 1 && timeoutMs <= MAX_TIMEOUT_MS && typeof timeoutMs === 'number')
  )
    return timeoutMs;
  const range = `a number from 1 to ${MAX_TIMEOUT_MS}, or Infinity`;
  throw new IdallocError('MALFORMED_REQUEST', `timeoutMs must be ${range}, not ${String(timeoutMs)}`);
}

/**
 * The bytes of a correlation ID. Rejects strings with unpaired surrogates: UTF-8 would map different ones to the same
 * bytes. Throws IdallocError INVALID_CORRELATION_ID.
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

export function clientClosed(count?: number): IdallocError {
  return new IdallocError('CLIENT_CLOSED', 'the client is closed', { count });
}

/** `cause`: why its last send failed. */
export function notSent(timeoutMs: number, cause: Error): IdallocError {
  const message = `the request could not be sent within ${timeoutMs} ms: ${describeError(cause)}`;
  return new IdallocError(cause instanceof IdallocError ? cause.code : 'KAFKA_UNAVAILABLE', message, { cause });
}

/** What is known about a request that was not answered in time. */
interface Unanswered {
  /** The workers have answered other requests meanwhile. */
  readonly isWaiting: boolean;
  /** Why replies can't be read now. */
  readonly trouble?: string | undefined;
  /** How many records of each kind came under its correlation ID and were not its answer. */
  readonly passedOver?: ReadonlyMap<string, number> | undefined;
}

export function noReply(request: WantedBatch & { readonly timeoutMs: number }, known: Unanswered): IdallocError {
  const { replyTopic, timeoutMs } = request;
  const cause = known.trouble ?? causeOf(request, known);
  const retry = 'Retrying with the same correlation ID never yields a second batch';
  return new IdallocError('NO_REPLY', `no reply on '${replyTopic}' within ${timeoutMs} ms: ${cause}. ${retry}`);
}

function causeOf(request: WantedBatch, { isWaiting, passedOver = new Map() }: Unanswered): string {
  if (passedOver.size > 0) {
    const kinds = [...passedOver].map(([what, times]) => (times === 1 ? what : `${what} (${times} times)`));
    return `what came under its correlation ID was not its answer: ${kinds.join(', ')}; find out who else uses this correlation ID, or writes to this topic`;
  }
  return isWaiting
    ? `workers answer other requests, so this one for ${contentOf(request)} waits its turn, or its partition is not served: while more IDs are ` +
        'requested than workers can allocate, large requests wait for minutes; set a longer timeoutMs, or request fewer'
    : 'check that a worker is running and ready (/readyz), and that REPLY_TOPIC_PREFIX allows this topic';
}

/** A record that no worker sends, under the correlation ID of a request. */
export function unlikeReply(
  { correlationId, replyTopic }: WantedBatch & { readonly correlationId: Buffer },
  what: string,
): IdallocError {
  const message = `${what} came on '${replyTopic}' under the correlation ID of a request, which waits on: find out who else writes to this topic`;
  return new IdallocError('MALFORMED_REPLY', message, { correlationId });
}

/** `trouble`: why requests can't be sent, or replies not be read. */
export function tooFewIds(
  count: number,
  timeoutMs: number,
  { isWaiting, trouble }: { readonly isWaiting: boolean; readonly trouble?: Error | string | undefined },
): IdallocError {
  const what = `fewer than ${count} IDs arrived within ${timeoutMs} ms`;
  if (trouble instanceof Error) {
    const code = trouble instanceof IdallocError ? trouble.code : 'KAFKA_UNAVAILABLE';
    const message = `${what}, because requests can't be sent: ${describeError(trouble)}`;
    return new IdallocError(code, message, { cause: trouble, count });
  }
  const usual = isWaiting
    ? 'workers answer, but more slowly than IDs are requested: wait for longer, or request fewer'
    : 'check that a worker is running and ready';
  return new IdallocError('NO_REPLY', `${what}: ${trouble ?? usual}`, { count });
}

/** The reply to a request for the buffer whose IDs may be too old. */
export function cameTooLate(count: number, latencyMs: number, maxAgeMs: number): IdallocError {
  const message = `a reply took ${Math.round(latencyMs)} ms, and its IDs may be older than maxAgeMs (${maxAgeMs}), so they are dropped: find out why workers answer so slowly, or increase maxAgeMs`;
  return new IdallocError('NO_REPLY', message, { count });
}

export function noBuffer(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'there is no buffer (prefetch: false): use request()');
}

type WantedBatch = Readonly<{ sequence?: string | undefined; count: number; replyTopic: string }>;

/** `pending`: the request in progress under the same correlation ID. */
export function inProgress(pending: WantedBatch, request: WantedBatch): IdallocError {
  const both = `a request for ${textOf(pending)} is in progress under this correlation ID, and this one is for ${textOf(request)}`;
  return new IdallocError('CONFLICT', `${both}: ${remedyOf(pending, request)}`);
}

/** Another correlation ID would give a document a second number of the same sequence. */
function remedyOf(pending: WantedBatch, { sequence }: WantedBatch): string {
  return sequence !== undefined && sequence === pending.sequence
    ? 'a document has its numbers of a sequence once: wait for the first, and ask for the same count on the same topic'
    : `errors don't say which of them they answer: wait for the first, or use a correlation ID for each, such as '${sequence ?? 'ids'}:' before the document's ID`;
}

function textOf(wanted: WantedBatch): string {
  return `${contentOf(wanted)} on '${wanted.replyTopic}'`;
}

function contentOf({ sequence, count }: WantedBatch): string {
  const what = `${sequence === undefined ? 'ID' : 'number'}${count === 1 ? '' : 's'}`;
  return `${count} ${what}${sequence === undefined ? '' : ` of ${sequence}`}`;
}

export function noCorrelationId(sequence: string): IdallocError {
  const message = `numbers of ${sequence} need a correlation ID of yours, such as that of the document: without one, a retry would take others and leave a gap`;
  return new IdallocError('INVALID_CORRELATION_ID', message);
}

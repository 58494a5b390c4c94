import { MAX_REQUEST_COUNT } from '../codec/request-checks.ts';
import { ERRORS, type ErrorCode, IdallocError } from '../errors.ts';

/** The workers rejected the request. `serverCode` is their code; `code` is REFUSED if this version does not know it. */
export class RequestRefused extends IdallocError {
  readonly serverCode: string;

  constructor(serverCode: string, message: string) {
    super(Object.hasOwn(ERRORS, serverCode) ? (serverCode as ErrorCode) : 'REFUSED', message);
    this.name = 'RequestRefused';
    this.serverCode = serverCode;
  }
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

export function clientClosed(count?: number): IdallocError {
  return new IdallocError('CLIENT_CLOSED', 'the client is closed', { count });
}

/** `isWaiting`: the workers have answered other requests meanwhile. */
export function noReply(request: Wanted & { readonly timeoutMs: number }, isWaiting: boolean): IdallocError {
  const { replyTopic, timeoutMs } = request;
  const cause = isWaiting
    ? `workers answer other requests, so this one for ${contentOf(request)} waits its turn, or its partition is not served: while more IDs are ` +
      'requested than workers can allocate, large requests wait for minutes; set a longer timeoutMs, or request fewer'
    : 'check that a worker is running and ready (/readyz), and that REPLY_TOPIC_PREFIX allows this topic';
  const retry = 'Retrying with the same correlation ID never yields a second batch';
  return new IdallocError('NO_REPLY', `no reply on '${replyTopic}' within ${timeoutMs} ms: ${cause}. ${retry}`);
}

/** `isWaiting` as for `noReply`. */
export function tooFewIds(count: number, timeoutMs: number, isWaiting: boolean): IdallocError {
  const cause = isWaiting
    ? 'workers answer, but more slowly than IDs are requested: wait for longer, or request fewer'
    : 'check that a worker is running and ready';
  return new IdallocError('NO_REPLY', `fewer than ${count} IDs arrived within ${timeoutMs} ms: ${cause}`);
}

export function noBuffer(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'there is no buffer (prefetch: false): use request()');
}

type Wanted = Readonly<{ sequence?: string | undefined; count: number; replyTopic: string }>;

/** `pending`: the request in progress under the same correlation ID. */
export function inProgress(pending: Wanted, request: Wanted): IdallocError {
  const both = `a request for ${textOf(pending)} is in progress under this correlation ID, and this one is for ${textOf(request)}`;
  return new IdallocError('CONFLICT', `${both}: ${remedyOf(pending, request)}`);
}

/** Another correlation ID would give a document a second number of the same sequence. */
function remedyOf(pending: Wanted, { sequence }: Wanted): string {
  return sequence !== undefined && sequence === pending.sequence
    ? 'a document has its numbers of a sequence once: wait for the first, and ask for the same count on the same topic'
    : `errors don't say which of them they answer: wait for the first, or use a correlation ID for each, such as '${sequence ?? 'ids'}:' before the document's ID`;
}

function textOf(wanted: Wanted): string {
  return `${contentOf(wanted)} on '${wanted.replyTopic}'`;
}

function contentOf({ sequence, count }: Wanted): string {
  const what = `${sequence === undefined ? 'ID' : 'number'}${count === 1 ? '' : 's'}`;
  return `${count} ${what}${sequence === undefined ? '' : ` of ${sequence}`}`;
}

export function noCorrelationId(sequence: string): IdallocError {
  const message = `numbers of ${sequence} need a correlation ID of yours, such as that of the document: without one, a retry would take others and leave a gap`;
  return new IdallocError('INVALID_CORRELATION_ID', message);
}

import { IdallocError } from '../errors.ts';
import type { Framing } from './framing.ts';
import { ID_REPLY_FINGERPRINT } from './id-reply.ts';
import { decodeIdRequest, type Encoding, type IdRequest, readBodyAddress } from './id-request.ts';
import { checkCorrelationId, checkReplyTopic, checkRequestId } from './request-checks.ts';
import {
  DEFAULT_HEADER_NAMES,
  type HeaderNames,
  type RecordHeaders,
  type RequestHeaders,
  type Route,
  readCorrelationId,
  readReplyPartition,
  readReplyTopic,
  readRequestHeaders,
  readRequestId,
  readRoute,
  readTrace,
  type Trace,
} from './request-headers.ts';

/** A complete request: body and headers merged, every field in range. */
export interface FullRequest {
  readonly count: number;
  /** The reply repeats it, and nothing else depends on it, if there is a request ID. */
  readonly correlationId: Buffer;
  /** What names the request, if that is not the correlation ID: see decidingIdOf. */
  readonly requestId?: Buffer;
  readonly replyTopic: string;
  readonly replyPartition?: number;
  readonly expiresAtMs?: number;
  readonly encoding: Encoding;
  /** The reply's framing, which is the request's. */
  readonly framing: Framing;
  /** The fingerprint of the reply schema that answers this request's schema, little endian. */
  readonly schemaFingerprint: Buffer;
  readonly trace: Trace;
  readonly route: Route;
  /** Set if numbers of this sequence are wanted instead of IDs. */
  readonly sequence?: string;
}

/** What a request asks for: all of it but the correlation ID, with the hash by which equal ones are recognised. */
export interface RequestForm extends Omit<FullRequest, 'correlationId'> {
  /** `requestHash` of the count and the reply topic. */
  readonly hash: Buffer;
}

/** Where an error reply can be sent. */
export interface ReplyAddress {
  readonly correlationId?: Buffer | undefined;
  readonly requestId?: Buffer | undefined;
  readonly replyTopic?: string | undefined;
  readonly replyPartition?: number | undefined;
  readonly trace?: Trace;
  /** The request's framing; default: single-object. */
  readonly framing?: Framing;
}

/**
 * What names a request: requests with the same one get the same batch, and are decided in its home partition. The
 * request ID if there is one, for senders that can't choose the correlation ID of each try; else the correlation ID.
 */
export function decidingIdOf({ requestId, correlationId }: Pick<FullRequest, 'requestId' | 'correlationId'>): Buffer {
  return requestId ?? correlationId;
}

/**
 * What decides the home partition: the sequence's name, since its numbers are given out in one place; else what names
 * the request.
 */
export function homeKeyOf(request: Pick<FullRequest, 'requestId' | 'correlationId' | 'sequence'>): Buffer {
  return request.sequence === undefined ? decidingIdOf(request) : Buffer.from(request.sequence, 'latin1');
}

/**
 * Merges value and headers of a record. A field that is in both must agree. An empty or null value is a request if the
 * count header is present. Throws IdallocError: MALFORMED_REQUEST, UNKNOWN_SCHEMA, INVALID_COUNT,
 * INVALID_CORRELATION_ID (also if it is missing), INVALID_REPLY_TOPIC (likewise).
 */
export function mergeRequest(
  value: Buffer | null,
  headers: RecordHeaders,
  names: HeaderNames = DEFAULT_HEADER_NAMES,
): FullRequest {
  const inHeaders = readRequestHeaders(headers, names);
  const body = isEmpty(value) ? bodyless(inHeaders, names) : decodeIdRequest(value);
  const count = agreed('count', body.count, names.count, inHeaders.count) ?? body.count;
  const correlationId = agreed('correlation_id', body.correlationId, names.correlationId, inHeaders.correlationId);
  if (correlationId === undefined)
    throw absent('INVALID_CORRELATION_ID', 'correlation ID', names.correlationId, 'correlation_id');
  const replyTopic = agreed('reply_topic', body.replyTopic, names.replyTopic, inHeaders.replyTopic);
  if (replyTopic === undefined) throw absent('INVALID_REPLY_TOPIC', 'reply topic', names.replyTopic, 'reply_topic');
  const request: { -readonly [field in keyof FullRequest]: FullRequest[field] } = {
    count,
    correlationId,
    replyTopic,
    encoding: body.encoding ?? 'RANGES',
    framing: 'SINGLE_OBJECT',
    schemaFingerprint: ID_REPLY_FINGERPRINT,
    trace: inHeaders.trace,
    route: readRoute(headers),
  };
  const requestId = agreed('request_id', body.requestId, names.requestId, inHeaders.requestId);
  const sequence = agreed('sequence', body.sequence, names.sequence, inHeaders.sequence);
  if (requestId !== undefined) request.requestId = requestId;
  if (sequence !== undefined) request.sequence = sequence;
  if (inHeaders.replyPartition !== undefined) request.replyPartition = inHeaders.replyPartition;
  if (body.expiresAtMs !== undefined) request.expiresAtMs = body.expiresAtMs;
  return request;
}

/** Whether the value of a request that `mergeRequest` accepted has a correlation ID, or a request ID. */
export function isNamedInBody(value: Buffer | null): boolean {
  if (isEmpty(value)) return false;
  const { correlationId, requestId } = decodeIdRequest(value);
  return correlationId !== undefined || requestId !== undefined;
}

/**
 * The readable parts of a rejected request's reply address. Never throws; headers win over the body where they
 * disagree. Only for addressing errors, never for serving a request.
 */
export function salvageAddress(
  value: Buffer | null,
  headers: RecordHeaders,
  names: HeaderNames = DEFAULT_HEADER_NAMES,
): ReplyAddress {
  const body = attempt(() => (isEmpty(value) ? undefined : readBodyAddress(value)));
  const either = <T>(
    read: (from: RecordHeaders, by: HeaderNames) => T | undefined,
    inBody: T | null | undefined,
    check: (of: T) => T,
  ) => attempt(() => read(headers, names)) ?? attempt(() => (inBody ? check(inBody) : undefined));
  const correlationId = either(readCorrelationId, body?.correlationId, checkCorrelationId);
  const replyTopic = either(readReplyTopic, body?.replyTopic, checkReplyTopic);
  const requestId = either(readRequestId, body?.requestId, checkRequestId);
  const replyPartition = attempt(() => readReplyPartition(headers, names));
  const trace = attempt(() => readTrace(headers)) ?? {};
  return { correlationId, requestId, replyTopic, replyPartition, trace };
}

/** The result, or undefined if `read` throws. */
function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    // The request was rejected already, and the reason is reported; this only looks for the address.
    return undefined;
  }
}

function isEmpty(value: Buffer | null): value is null {
  return value === null || value.length === 0;
}

function bodyless(inHeaders: RequestHeaders, names: HeaderNames): IdRequest {
  if (inHeaders.count !== undefined) return { count: inHeaders.count };
  throw new IdallocError(
    'MALFORMED_REQUEST',
    `the value is empty and there is no header ${names.count}: send one of them`,
  );
}

function absent(code: 'INVALID_CORRELATION_ID' | 'INVALID_REPLY_TOPIC', what: string, header: string, field: string) {
  return new IdallocError(code, `there is no ${what}: send header ${header} or the field ${field}`);
}

/** What field and header say. Throws MALFORMED_REQUEST if they disagree. */
function agreed<T extends number | string | Buffer>(
  field: string,
  inBody: T | undefined,
  header: string,
  inHeader: T | undefined,
): T | undefined {
  if (inBody === undefined || inHeader === undefined || isSame(inBody, inHeader)) return inHeader ?? inBody;
  throw new IdallocError(
    'MALFORMED_REQUEST',
    `field ${field} and header ${header} disagree: send one of them, or the same in both`,
  );
}

function isSame(one: number | string | Buffer, other: number | string | Buffer): boolean {
  return one === other || (Buffer.isBuffer(one) && Buffer.isBuffer(other) && one.equals(other));
}

import type { Slice } from '../core/slice.ts';
import { IdallocError } from '../errors.ts';
import { checkCorrelationId, checkCount, checkReplyTopic, checkRequestId, checkSequence } from './request-checks.ts';

/** Record headers as the Kafka client has them; a repeated header is an array. */
export type RecordHeaders = Readonly<
  Record<string, Buffer | string | null | readonly (Buffer | string | null)[] | undefined>
>;

/** The headers whose names are configurable. */
export interface HeaderNames {
  readonly correlationId: string;
  readonly replyTopic: string;
  readonly replyPartition: string;
  readonly count: string;
  readonly requestId: string;
  readonly sequence: string;
  readonly replayed: string;
  /** On replies with IDs of a custom layout: its text. */
  readonly layout: string;
  /** On error replies after which a retry may succeed: when. */
  readonly retryAfterMs: string;
}

/** The names of Spring Kafka and NestJS, and idalloc's own. */
export const DEFAULT_HEADER_NAMES: HeaderNames = Object.freeze({
  correlationId: 'kafka_correlationId',
  replyTopic: 'kafka_replyTopic',
  replyPartition: 'kafka_replyPartition',
  count: 'idalloc-count',
  requestId: 'idalloc-request-id',
  sequence: 'idalloc-sequence',
  replayed: 'idalloc-replayed',
  layout: 'idalloc-layout',
  retryAfterMs: 'idalloc-retry-after-ms',
});

const NEST_DISPOSED = 'kafka_nest-is-disposed';
const NEST_ERROR = 'kafka_nest-err';
const TRACEPARENT = 'traceparent';
const TRACESTATE = 'tracestate';
/** A longer trace header is not copied, so that it can't make replies large. */
export const MAX_TRACE_BYTES = 1024;

/** Four fields with the longest labels take less. */
const MAX_LAYOUT_BYTES = 512;

const DECIMAL = /^[0-9]{1,20}$/;
/** Twelve digits are up to thirty years. */
const MILLISECONDS = /^[0-9]{1,12}$/;
const MAX_PARTITION = 0x7fff_ffff;

/** W3C trace context, copied from request to reply without being parsed. */
export interface Trace {
  readonly traceparent?: Buffer;
  readonly tracestate?: Buffer;
}

/** The parsed headers of a request. */
export interface RequestHeaders {
  readonly correlationId: Buffer | undefined;
  readonly replyTopic: string | undefined;
  readonly replyPartition: number | undefined;
  readonly count: number | undefined;
  readonly requestId: Buffer | undefined;
  readonly sequence: string | undefined;
  readonly trace: Trace;
}

/**
 * Reads the headers of a request. Throws IdallocError: MALFORMED_REQUEST for a repeated header, an invalid partition,
 * request ID or sequence, INVALID_COUNT, INVALID_CORRELATION_ID, INVALID_REPLY_TOPIC for values out of range. A trace
 * header that is repeated or too long is dropped instead: tracing must not fail a request.
 */
export function readRequestHeaders(headers: RecordHeaders, names: HeaderNames = DEFAULT_HEADER_NAMES): RequestHeaders {
  return {
    correlationId: readCorrelationId(headers, names),
    replyTopic: readReplyTopic(headers, names),
    replyPartition: readReplyPartition(headers, names),
    count: readCount(headers, names),
    requestId: readRequestId(headers, names),
    sequence: readSequence(headers, names),
    trace: readTrace(headers),
  };
}

/** The header's bytes, 1..256 of them; undefined when it is absent. */
export function readCorrelationId(headers: RecordHeaders, names: HeaderNames): Buffer | undefined {
  const bytes = singleHeader(headers, names.correlationId);
  return bytes === undefined ? undefined : checkCorrelationId(bytes);
}

/** The request ID of a request or a reply, 1..256 bytes; undefined when the header is absent. */
export function readRequestId(headers: RecordHeaders, names: HeaderNames): Buffer | undefined {
  const bytes = singleHeader(headers, names.requestId);
  return bytes === undefined ? undefined : checkRequestId(bytes);
}

/** The header's text; undefined when it is absent. */
export function readReplyTopic(headers: RecordHeaders, names: HeaderNames): string | undefined {
  const bytes = singleHeader(headers, names.replyTopic);
  if (bytes === undefined) return undefined;
  if (lastReplyTopic?.bytes.equals(bytes) === true) return lastReplyTopic.text;
  const text = checkReplyTopic(bytes.toString('utf8'));
  lastReplyTopic = { bytes: Buffer.from(bytes), text };
  return text;
}

/** Requests that follow each other mostly name the same topic. */
let lastReplyTopic: { readonly bytes: Buffer; readonly text: string } | undefined;

/**
 * Four bytes, big-endian, as Spring Kafka sends them, or decimal digits, as NestJS does. Four digit characters are read
 * as digits: as bytes they would be a partition above 808 million.
 */
export function readReplyPartition(headers: RecordHeaders, names: HeaderNames): number | undefined {
  const bytes = singleHeader(headers, names.replyPartition);
  if (bytes === undefined) return undefined;
  const text = bytes.length <= 20 ? bytes.toString('latin1') : '';
  const isDecimal = DECIMAL.test(text);
  const partition = isDecimal || bytes.length !== 4 ? Number(isDecimal ? text : Number.NaN) : bytes.readInt32BE(0);
  if (partition >= 0 && partition <= MAX_PARTITION) return partition;
  throw new IdallocError(
    'MALFORMED_REQUEST',
    `header ${names.replyPartition} is not a partition: send decimal digits or a 32-bit integer`,
  );
}

/** The trace headers that are copied to the reply. */
export function readTrace(headers: RecordHeaders): Trace {
  const traceparent = copyable(headers, TRACEPARENT);
  if (traceparent === undefined) return {};
  const tracestate = copyable(headers, TRACESTATE);
  return tracestate === undefined ? { traceparent } : { traceparent, tracestate };
}

/** The text of the layout that a reply's IDs have; undefined if it carries none that is readable. */
export function readLayoutText(headers: RecordHeaders, names: HeaderNames): string | undefined {
  const value = own(headers, names.layout);
  if (value === undefined || Array.isArray(value)) return undefined;
  const bytes = toBytes(value as Buffer | string);
  return bytes.length <= MAX_LAYOUT_BYTES ? bytes.toString('latin1') : undefined;
}

/** When the sender of an error reply expects a retry to succeed; undefined if it does not say so in decimal digits. */
export function readRetryAfterMs(headers: RecordHeaders, names: HeaderNames): number | undefined {
  const value = own(headers, names.retryAfterMs);
  if (value === undefined || Array.isArray(value)) return undefined;
  const text = toBytes(value as Buffer | string).toString('latin1');
  return MILLISECONDS.test(text) ? Number(text) : undefined;
}

/** The input of `replyHeaders`. */
export interface ReplyHeaderFields {
  readonly names: HeaderNames;
  readonly correlationId: Buffer | Slice;
  /** If the request has one. */
  readonly requestId?: Buffer | undefined;
  /** The request was decided before it was read this time. */
  readonly replayed: boolean;
  /** The text of the IDs' layout, if that is not a preset. */
  readonly layout?: string | undefined;
  /** An error reply has it, if it is known. */
  readonly retryAfterMs?: number | undefined;
  readonly trace: Trace;
  /** Add the headers that NestJS's ClientKafka expects. */
  readonly nest?: boolean;
  /** With `nest`: the message of an error reply. */
  readonly nestError?: string;
}

/** The headers of a reply; correlation ID and request ID have the same header names as in the request. */
export function replyHeaders(fields: ReplyHeaderFields): Record<string, Buffer | Slice | string> {
  const { names, trace } = fields;
  const headers: Record<string, Buffer | Slice | string> = { [names.correlationId]: fields.correlationId };
  if (fields.requestId !== undefined) headers[names.requestId] = fields.requestId;
  if (fields.replayed) headers[names.replayed] = '1';
  if (fields.layout !== undefined) headers[names.layout] = fields.layout;
  if (fields.retryAfterMs !== undefined) headers[names.retryAfterMs] = String(fields.retryAfterMs);
  if (trace.traceparent !== undefined) headers[TRACEPARENT] = trace.traceparent;
  if (trace.tracestate !== undefined) headers[TRACESTATE] = trace.tracestate;
  if (fields.nest === true) {
    headers[NEST_DISPOSED] = '1';
    if (fields.nestError !== undefined) headers[NEST_ERROR] = fields.nestError;
  }
  return headers;
}

function readCount(headers: RecordHeaders, names: HeaderNames): number | undefined {
  const bytes = singleHeader(headers, names.count);
  if (bytes === undefined) return undefined;
  const text = bytes.length <= 20 ? bytes.toString('latin1') : '';
  if (DECIMAL.test(text)) return checkCount(BigInt(text));
  throw new IdallocError('INVALID_COUNT', `header ${names.count} is not a count: send decimal digits`);
}

function readSequence(headers: RecordHeaders, names: HeaderNames): string | undefined {
  const bytes = singleHeader(headers, names.sequence);
  return bytes === undefined ? undefined : checkSequence(bytes.toString('utf8'));
}

function copyable(headers: RecordHeaders, name: string): Buffer | undefined {
  const value = own(headers, name);
  if (value === undefined || Array.isArray(value)) return undefined;
  const bytes = toBytes(value as Buffer | string);
  return bytes.length <= MAX_TRACE_BYTES ? bytes : undefined;
}

/** The only value of a header. A repeated header is rejected, since its meaning is ambiguous. */
function singleHeader(headers: RecordHeaders, name: string): Buffer | undefined {
  const value = own(headers, name);
  if (value === undefined) return undefined;
  if (!Array.isArray(value)) return toBytes(value as Buffer | string);
  throw new IdallocError('MALFORMED_REQUEST', `header ${name} appears ${value.length} times: send it once`);
}

/** Own properties only, so that nothing is read from a prototype; null, which Kafka allows, counts as absent. */
function own(headers: RecordHeaders, name: string): RecordHeaders[string] {
  const value = headers[name];
  return value !== undefined && value !== null && Object.hasOwn(headers, name) ? value : undefined;
}

function toBytes(value: Buffer | string): Buffer {
  return typeof value === 'string' ? Buffer.from(value, 'utf8') : value;
}

/** Where and when a request was first appended: `partition/offset/append time`, in decimal digits. */
export const ORIGIN = 'idalloc-origin';
/** How often a request was forwarded to another partition: decimal digits. */
export const HOPS = 'idalloc-hops';
/** On a request that a client resends: when it was first sent, in milliseconds since 1970, decimal digits. */
export const FIRST_SENT = 'idalloc-first-sent';
/**
 * On a request that is forwarded, whose record had been answered before it was read this time: `1`. Who writes it by
 * hand gets what the ledger has, and nothing new.
 */
export const ANSWERED_BEFORE = 'idalloc-answered-before';

/** Where and when a request was first appended. Forwarding and resending keep it, so that its age is known. */
export interface Origin {
  readonly partition: number;
  readonly offset: number;
  /** By the broker's clock. */
  readonly appendedAtMs: number;
}

/** The route of a request, from its headers. */
export interface Route {
  /** Undefined if the record itself is the first one, according to its headers. */
  readonly origin: Origin | undefined;
  readonly hops: number;
  readonly firstSentMs: number | undefined;
  /** The record from which it was forwarded had been answered before, so nothing is decided for it any more. */
  readonly wasAnswered: boolean;
}

export const DIRECT_ROUTE: Route = Object.freeze({
  origin: undefined,
  hops: 0,
  firstSentMs: undefined,
  wasAnswered: false,
});

const ORIGIN_TEXT = /^([0-9]{1,9})\/([0-9]{1,15})\/([0-9]{1,15})$/;

/**
 * Throws MALFORMED_REQUEST for headers that neither workers nor clients of idalloc write: a request with an unreadable
 * age must not count as a recent one.
 */
export function readRoute(headers: RecordHeaders): Route {
  const origin = textOf(headers, ORIGIN);
  const hops = textOf(headers, HOPS);
  const firstSent = textOf(headers, FIRST_SENT);
  const wasAnswered = headers[ANSWERED_BEFORE] !== undefined;
  if (origin === undefined && hops === undefined && firstSent === undefined && !wasAnswered) return DIRECT_ROUTE;
  return {
    origin: origin === undefined ? undefined : parseOrigin(origin),
    hops: hops === undefined ? 0 : parseNumber(HOPS, hops, /^[0-9]{1,3}$/),
    firstSentMs: firstSent === undefined ? undefined : parseNumber(FIRST_SENT, firstSent, /^[0-9]{1,15}$/),
    wasAnswered,
  };
}

/**
 * The earliest time at which any record of the request may have been decided, in milliseconds; undefined for a first
 * one.
 */
export function earliestDecisionMs({ origin, firstSentMs }: Route): number | undefined {
  if (origin === undefined || firstSentMs === undefined) return origin?.appendedAtMs ?? firstSentMs;
  return Math.min(origin.appendedAtMs, firstSentMs);
}

/**
 * Headers of a request that is forwarded: where it was first appended, how often it has been forwarded, and what its
 * home must know.
 */
export function routeHeaders(
  origin: Origin,
  hops: number,
  { wasAnswered }: { readonly wasAnswered: boolean },
): Readonly<Record<string, string>> {
  return { [ORIGIN]: originText(origin), [HOPS]: String(hops), ...(wasAnswered && { [ANSWERED_BEFORE]: '1' }) };
}

export function originText({ partition, offset, appendedAtMs }: Origin): string {
  return `${partition}/${offset}/${appendedAtMs}`;
}

function parseOrigin(text: string): Origin {
  const [, partition, offset, appendedAtMs] = ORIGIN_TEXT.exec(text) ?? [];
  if (appendedAtMs === undefined) throw malformed(ORIGIN);
  return { partition: Number(partition), offset: Number(offset), appendedAtMs: Number(appendedAtMs) };
}

function parseNumber(header: string, text: string, shape: RegExp): number {
  if (!shape.test(text)) throw malformed(header);
  return Number(text);
}

function textOf(headers: RecordHeaders, header: string): string | undefined {
  return singleHeader(headers, header)?.toString('latin1');
}

function malformed(header: string): IdallocError {
  const remedy = 'it is written by workers and clients of idalloc: keep it unchanged, or remove it';
  return new IdallocError('MALFORMED_REQUEST', `header ${header} can't be read; ${remedy}`);
}

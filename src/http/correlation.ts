import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** Header names in lower case, as Node has them. */
export const REQUEST_ID = 'x-request-id';
export const TRACE_PARENT = 'traceparent';

/** Characters that need no escape in a log, a shell or a URL's query. A header that is repeated has a comma, and is none. */
const WELL_FORMED_ID = /^[A-Za-z0-9._~:@=+/-]{1,128}$/;
/**
 * version "-" trace-id "-" parent-id "-" flags, all in lower case. Of version 00 that is all; a later one may continue after
 * another "-". Version ff is forbidden.
 */
const PARENT = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const ONLY_ZEROS = /^0+$/;
/** The one flag of version 00; all others must be sent as 0. */
const SAMPLED = 0x01;

/** The ID of a request: its own if it is well formed, else a new one. */
export function requestIdOf(headers: IncomingHttpHeaders): string {
  const id = headers[REQUEST_ID];
  return typeof id === 'string' && WELL_FORMED_ID.test(id) ? id : randomUUID();
}

/**
 * The `traceparent` of a response, as W3C Trace Context says: the trace of the request, if it names a valid one, as version 00;
 * else a new one that nobody records. A worker records no spans, so it passes the parent on and makes none.
 */
export function traceParentOf(headers: IncomingHttpHeaders): string {
  const sent = headers[TRACE_PARENT];
  if (typeof sent !== 'string') return newTrace();
  const [, version, trace = '', parent = '', flags = '', rest] = PARENT.exec(sent) ?? [];
  const isValid = trace !== '' && !ONLY_ZEROS.test(trace) && !ONLY_ZEROS.test(parent);
  if (!isValid || (version === '00' && rest !== undefined)) return newTrace();
  return `00-${trace}-${parent}-${Number.parseInt(flags, 16) & SAMPLED ? '01' : '00'}`;
}

/** Both headers of a response. */
export function correlationOf(headers: IncomingHttpHeaders): Readonly<Record<string, string>> {
  return { [REQUEST_ID]: requestIdOf(headers), [TRACE_PARENT]: traceParentOf(headers) };
}

/** The random digits of two UUIDs; what a UUID fixes keeps each ID from being all zeros. Each response needs it, so it is quick. */
function newTrace(): string {
  const [trace, parent] = [randomUUID(), randomUUID()];
  const traceId = trace.slice(0, 8) + trace.slice(9, 13) + trace.slice(14, 18) + trace.slice(19, 23) + trace.slice(24);
  return `00-${traceId}-${parent.slice(14, 18)}${parent.slice(24)}-00`;
}

import { randomFillSync, randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** Header names in lower case, as Node has them. */
export const REQUEST_ID = 'x-request-id';
export const TRACE_PARENT = 'traceparent';

/**
 * Characters that need no escape in a log, a shell or a URL's query. A header that is repeated has a comma, and is
 * none.
 */
const WELL_FORMED_ID = /^[A-Za-z0-9._~:@=+/-]{1,128}$/;
/**
 * version "-" trace-id "-" parent-id "-" flags, all in lower case. Of version 00 that is all; a later one may continue
 * after another "-". Version ff is forbidden.
 */
const PARENT = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const ONLY_ZEROS = /^0+$/;
/** The one flag of version 00; all others must be sent as 0. */
const SAMPLED = 0x01;
/** A trace ID and a parent ID have so many bytes together. */
const TRACE_BYTES = 24;

/** The ID of a request: its own if it is well formed, else a new one. */
export function requestIdOf(headers: IncomingHttpHeaders): string {
  const id = headers[REQUEST_ID];
  return typeof id === 'string' && WELL_FORMED_ID.test(id) ? id : randomUUID();
}

/**
 * The `traceparent` of a response, as W3C Trace Context says: the trace of the request, if it names a valid one, as
 * version 00; else a new one that nobody records. A worker records no spans, so it passes the parent on and makes none.
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

/** Random bytes for the next responses: a call for each would cost more than the rest of its headers. */
const RANDOM = Buffer.alloc(TRACE_BYTES * 512);
let used = RANDOM.length;

/** A trace ID and a parent ID, neither of which is all zeros. */
function newTrace(): string {
  if (used === RANDOM.length) {
    randomFillSync(RANDOM);
    used = 0;
  }
  const digits = RANDOM.toString('hex', used, used + TRACE_BYTES);
  used += TRACE_BYTES;
  const [trace, parent] = [digits.slice(0, 32), digits.slice(32)];
  return ONLY_ZEROS.test(trace) || ONLY_ZEROS.test(parent) ? newTrace() : `00-${trace}-${parent}-00`;
}

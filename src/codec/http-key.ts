import { MAX_ID_BYTES } from './request-checks.ts';

/**
 * The request ID of IDs that were requested over HTTP with an Idempotency-Key:
 *
 *   http/CALLER/KEY
 *
 * CALLER is the caller's name, nothing for whoever has none; a certificate's name may have slashes, so they are
 * escaped, and two callers never share IDs. Numbers of a sequence have no such prefix: their key is the document's ID,
 * whoever asks.
 */
const PREFIX = 'http/';
const ESCAPED = /[%/]/g;

/** The bytes of an Idempotency-Key that the request ID of this caller has room for; below 1 for none. */
export function maxHttpKeyBytes(caller: string): number {
  return MAX_ID_BYTES - prefixOf(caller).length;
}

export function httpRequestId(caller: string, key: Buffer): Buffer {
  return Buffer.concat([prefixOf(caller), key]);
}

/** Whether it looks like one: a service that requests over Kafka may choose any request ID. */
export function isHttpRequestId(requestId: Buffer): boolean {
  return requestId.toString('latin1', 0, PREFIX.length) === PREFIX;
}

function prefixOf(caller: string): Buffer {
  return Buffer.from(`${PREFIX}${caller.replace(ESCAPED, encodeURIComponent)}/`);
}

import type { ReplyPolicy } from './reply-policy.ts';
import type { FullRequest } from './request.ts';
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

/**
 * Why a request may not name its reply topic, though others may; undefined if it may. Every worker reads all that comes
 * on the topic of the HTTP API, so it is only for what the API asks: its requests have an ID of their own, and short
 * replies.
 */
export function apiRepliesViolation(
  request: Pick<FullRequest, 'replyTopic' | 'requestId' | 'sequence' | 'encoding'>,
  { apiReplies }: ReplyPolicy,
): string | undefined {
  const { replyTopic, requestId, sequence, encoding } = request;
  if (replyTopic !== apiReplies) return undefined;
  const isOfApi = requestId !== undefined && (sequence !== undefined || isHttpRequestId(requestId));
  if (isOfApi && encoding === 'RANGES') return undefined;
  return `the reply topic ${replyTopic} is only for the workers' HTTP API (API_REPLY_TOPIC): name one of your own`;
}

function prefixOf(caller: string): Buffer {
  return Buffer.from(`${PREFIX}${caller.replace(ESCAPED, encodeURIComponent)}/`);
}

import { IdallocError } from '../errors.ts';
import type { Long } from './long.ts';
import { TOPIC_NAME } from './reply-policy.ts';

/** Counts are 32-bit in replies and in the ledger; every layout allows far less. */
export const MAX_REQUEST_COUNT = 0x7fff_ffff;
/** The most bytes of a correlation ID or a request ID. */
export const MAX_ID_BYTES = 256;
const SEQUENCE_NAME = /^[A-Za-z0-9._/-]{1,64}$/;

/** The count as a number, or INVALID_COUNT. */
export function checkCount(count: Long): number {
  if (count >= 1 && count <= MAX_REQUEST_COUNT) return Number(count);
  throw new IdallocError(
    'INVALID_COUNT',
    `count ${count} is out of range: request at least 1, and at most what the layout allows`,
  );
}

/** The same bytes, or INVALID_CORRELATION_ID. */
export function checkCorrelationId(correlationId: Buffer): Buffer {
  const { length } = correlationId;
  if (length >= 1 && length <= MAX_ID_BYTES) return correlationId;
  throw new IdallocError('INVALID_CORRELATION_ID', `the correlation ID has ${length} bytes; it must have 1 to 256`);
}

/** The same bytes, or MALFORMED_REQUEST. */
export function checkRequestId(requestId: Buffer): Buffer {
  const { length } = requestId;
  if (length >= 1 && length <= MAX_ID_BYTES) return requestId;
  throw new IdallocError('MALFORMED_REQUEST', `the request ID has ${length} bytes; it must have 1 to 256`);
}

/** Correlation IDs and request IDs are bytes; those that are not plain text are shown in hex, which begins with 0x. */
export function textOfId(id: Buffer): string {
  const text = id.toString('utf8');
  return /^[\x21-\x7e]+$/.test(text) && !text.startsWith('0x') ? text : `0x${id.toString('hex')}`;
}

/** The ID that is shown as this text, or INVALID_CORRELATION_ID. Any other text is taken as UTF-8. */
export function idOfText(text: string): Buffer {
  return checkCorrelationId(/^0x([0-9a-f]{2})+$/i.test(text) ? Buffer.from(text.slice(2), 'hex') : Buffer.from(text));
}

/** The same text, or MALFORMED_REQUEST when no sequence can have that name. */
export function checkSequence(name: string): string {
  if (SEQUENCE_NAME.test(name)) return name;
  throw new IdallocError(
    'MALFORMED_REQUEST',
    'that is not the name of a sequence: use 1 to 64 letters, digits, dots, underscores, slashes and hyphens',
  );
}

/** The same text, or INVALID_REPLY_TOPIC when no Kafka topic can have that name. */
export function checkReplyTopic(replyTopic: string): string {
  if (TOPIC_NAME.test(replyTopic)) return replyTopic;
  throw new IdallocError(
    'INVALID_REPLY_TOPIC',
    'the reply topic is not a Kafka topic name: use 1 to 249 letters, digits, dots, underscores and hyphens',
  );
}

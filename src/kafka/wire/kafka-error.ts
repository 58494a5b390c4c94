/**
 * How a call can fail without a response from the broker:
 *
 * - UNREACHABLE: no connection, so nothing was sent.
 * - CONNECTION_LOST: the connection ended before the response; the broker may have executed the call.
 * - NO_RESPONSE: the deadline passed; the broker may have executed the call, or may still do so.
 * - LOGIN_REFUSED: the broker rejects the login, or does not speak TLS where we do.
 * - CLOSED: this side was closed.
 * - MALFORMED_RESPONSE: the broker's response can't be decoded.
 */
const LINK_ERRORS = [
  'UNREACHABLE',
  'CONNECTION_LOST',
  'NO_RESPONSE',
  'LOGIN_REFUSED',
  'CLOSED',
  'MALFORMED_RESPONSE',
] as const;
type LinkErrorCode = (typeof LINK_ERRORS)[number];

/** Whether the call failed without a usable response from the broker. */
export function isLinkError(errorCode: KafkaErrorCode | undefined): errorCode is LinkErrorCode {
  return LINK_ERRORS.some((one) => one === errorCode);
}

/** A link error, or Kafka's name of an error as kafkajs spells it (`NOT_LEADER_FOR_PARTITION`). */
export type KafkaErrorCode = LinkErrorCode | (string & {});

/** A call to Kafka that failed. */
export class KafkaError extends Error {
  readonly errorCode: KafkaErrorCode;

  constructor(errorCode: KafkaErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'KafkaError';
    this.errorCode = errorCode;
  }
}

/** The code of a KafkaError, searched along the error's causes; undefined for any other error. */
export function kafkaErrorCode(error: unknown): KafkaErrorCode | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < MAX_DEPTH; at = at.cause, depth += 1) {
    if (at instanceof KafkaError) return at.errorCode;
  }
  return undefined;
}

const MAX_DEPTH = 5;

import type { KafkaErrorCode } from '../../kafka/wire/kafka-error.ts';

type ErrorCodes = ReadonlySet<KafkaErrorCode | undefined>;

/** Errors of the records themselves: the topic may accept others. */
const RECORD_ERRORS: ErrorCodes = new Set([
  'MESSAGE_TOO_LARGE',
  'RECORD_LIST_TOO_LARGE',
  'INVALID_RECORD',
  'INVALID_TIMESTAMP',
]);

export function isRecordError(errorCode: KafkaErrorCode | undefined): errorCode is KafkaErrorCode {
  return RECORD_ERRORS.has(errorCode);
}

/** Errors of the topic that waiting does not fix. */
const TOPIC_ERRORS: ErrorCodes = new Set([
  'UNKNOWN_TOPIC_OR_PARTITION',
  'INVALID_TOPIC_EXCEPTION',
  'TOPIC_AUTHORIZATION_FAILED',
]);

export function isTopicError(errorCode: KafkaErrorCode | undefined): errorCode is KafkaErrorCode {
  return TOPIC_ERRORS.has(errorCode);
}

/**
 * Transient errors of the topic, which end with a leader election, or when a replica returns or a broker knows all
 * partitions.
 */
const WEAKNESSES: ErrorCodes = new Set([
  'LEADER_NOT_AVAILABLE',
  'NOT_ENOUGH_REPLICAS',
  'NOT_ENOUGH_REPLICAS_AFTER_APPEND',
  'PARTITIONS_MISSING',
]);

export function isWeakness(errorCode: KafkaErrorCode | undefined): errorCode is KafkaErrorCode {
  return WEAKNESSES.has(errorCode);
}

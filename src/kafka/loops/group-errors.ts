import type { KafkaErrorCode } from '../wire/kafka-error.ts';

/** All members must rejoin the group. */
export const REBALANCING = 'REBALANCE_IN_PROGRESS';
/** Another process has joined with the same instance ID. */
export const FENCED = 'FENCED_INSTANCE_ID';
/** The group has no member of this ID. */
export const UNKNOWN_MEMBER = 'UNKNOWN_MEMBER_ID';

/** The group continues without this member, or in a generation that it has not joined. */
export const EXPELLED: ReadonlySet<KafkaErrorCode | undefined> = new Set([UNKNOWN_MEMBER, 'ILLEGAL_GENERATION']);

/** Retries don't help until the configuration or the rights change. */
export const PERSISTENT: ReadonlySet<KafkaErrorCode | undefined> = new Set([
  'GROUP_AUTHORIZATION_FAILED',
  'GROUP_MAX_SIZE_REACHED',
  'INCONSISTENT_GROUP_PROTOCOL',
  'INVALID_GROUP_ID',
  'INVALID_SESSION_TIMEOUT',
  'LOGIN_REFUSED',
]);

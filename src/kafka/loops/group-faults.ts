import type { FaultName } from '../wire/fault.ts';

/** The group is joined anew, by everybody. */
export const REBALANCING = 'REBALANCE_IN_PROGRESS';
/** Another process has joined with the same instance ID. */
export const FENCED = 'FENCED_INSTANCE_ID';
/** The group has no member of this ID. */
export const STRANGER = 'UNKNOWN_MEMBER_ID';

/** The group goes on without this member, or in a generation that it has not joined. */
export const DISOWNED: ReadonlySet<FaultName | undefined> = new Set([STRANGER, 'ILLEGAL_GENERATION']);

/** No further try helps until somebody changes something. */
export const LASTING: ReadonlySet<FaultName | undefined> = new Set([
  'GROUP_AUTHORIZATION_FAILED',
  'GROUP_MAX_SIZE_REACHED',
  'INCONSISTENT_GROUP_PROTOCOL',
  'INVALID_GROUP_ID',
  'INVALID_SESSION_TIMEOUT',
  'LOGIN_REFUSED',
]);

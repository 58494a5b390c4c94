import type { FaultName } from '../../kafka/wire/fault.ts';

type Faults = ReadonlySet<FaultName | undefined>;

/** Faults of the records themselves: the topic may accept others. */
const RECORD_FAULTS: Faults = new Set([
  'MESSAGE_TOO_LARGE',
  'RECORD_LIST_TOO_LARGE',
  'INVALID_RECORD',
  'INVALID_TIMESTAMP',
]);

export function isRecordFault(fault: FaultName | undefined): fault is FaultName {
  return RECORD_FAULTS.has(fault);
}

/** Faults of the topic that waiting does not fix. */
const TOPIC_FAULTS: Faults = new Set([
  'UNKNOWN_TOPIC_OR_PARTITION',
  'INVALID_TOPIC_EXCEPTION',
  'TOPIC_AUTHORIZATION_FAILED',
]);

export function isTopicFault(fault: FaultName | undefined): fault is FaultName {
  return TOPIC_FAULTS.has(fault);
}

/** Transient faults of the topic, which end with a leader election or when a replica returns. */
const WEAKNESSES: Faults = new Set(['LEADER_NOT_AVAILABLE', 'NOT_ENOUGH_REPLICAS', 'NOT_ENOUGH_REPLICAS_AFTER_APPEND']);

export function isWeakness(fault: FaultName | undefined): fault is FaultName {
  return WEAKNESSES.has(fault);
}

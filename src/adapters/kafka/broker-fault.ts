/** Causes of causes are followed so far. */
const MAX_DEPTH = 5;

/** The broker's name for a fault, where it told one; looks through the wrapping that kafkajs' retries add. */
export function brokerFault(error: unknown): string | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < MAX_DEPTH; at = at.cause, depth += 1) {
    const type = (at as { type?: unknown }).type;
    if (typeof type === 'string') return type;
  }
  return undefined;
}

/** Faults of the records themselves: the same topic may take others. */
const RECORD_FAULTS: ReadonlySet<string | undefined> = new Set([
  'MESSAGE_TOO_LARGE',
  'RECORD_LIST_TOO_LARGE',
  'INVALID_RECORD',
  'INVALID_TIMESTAMP',
]);

export function isRecordFault(fault: string | undefined): fault is string {
  return RECORD_FAULTS.has(fault);
}

/** Faults of the topic that waiting does not mend. */
const TOPIC_FAULTS: ReadonlySet<string | undefined> = new Set([
  'UNKNOWN_TOPIC_OR_PARTITION',
  'INVALID_TOPIC_EXCEPTION',
  'TOPIC_AUTHORIZATION_FAILED',
]);

export function isTopicFault(fault: string | undefined): fault is string {
  return TOPIC_FAULTS.has(fault);
}

/** Faults of the topic that may pass, with an election or with a replica that comes back. */
const WEAKNESSES: ReadonlySet<string | undefined> = new Set([
  'LEADER_NOT_AVAILABLE',
  'NOT_ENOUGH_REPLICAS',
  'NOT_ENOUGH_REPLICAS_AFTER_APPEND',
]);

export function isWeakness(fault: string | undefined): fault is string {
  return WEAKNESSES.has(fault);
}

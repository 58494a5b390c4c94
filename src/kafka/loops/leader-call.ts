import type { Runtime } from '../../async/runtime.ts';
import type { BrokerResponse } from '../wire/api.ts';
import type { Cluster, Lane } from '../wire/cluster.ts';
import { isLinkError, KafkaError, type KafkaErrorCode, kafkaErrorCode } from '../wire/kafka-error.ts';
import type { BrokerLink } from '../wire/port.ts';

/** With less time left nothing is sent, so that a late caller does not make a broker suspect. */
const MIN_CALL_MS = 250;

/** Errors of a broker that does not lead the partition, or does not know its leader yet. */
const LEADERSHIP_ERRORS: ReadonlySet<KafkaErrorCode> = new Set([
  'NOT_LEADER_FOR_PARTITION',
  'LEADER_NOT_AVAILABLE',
  'REPLICA_NOT_AVAILABLE',
  'UNKNOWN_TOPIC_OR_PARTITION',
  'FENCED_LEADER_EPOCH',
  'UNKNOWN_LEADER_EPOCH',
  'KAFKA_STORAGE_ERROR',
  'NETWORK_EXCEPTION',
]);

export interface LeaderCall {
  readonly topic: string;
  readonly partition: number;
  readonly lane: Lane;
  /** For the whole call: finding the leader, connecting, and the response. */
  readonly timeoutMs: number;
}

/** Makes one call to the leader of a partition, sent at most once. `leftMs` is the time left when it is made. */
export async function callLeader<R extends BrokerResponse>(
  cluster: Pick<Cluster, 'leader' | 'call' | 'markStale'>,
  runtime: Runtime,
  { topic, partition, lane, timeoutMs }: LeaderCall,
  use: (link: BrokerLink, leftMs: number) => Promise<R>,
): Promise<{ readonly response: R; readonly node: number }> {
  const startedMs = runtime.monotonicMs();
  const node = await cluster.leader(topic, partition, timeoutMs);
  const leftMs = timeoutMs - (runtime.monotonicMs() - startedMs);
  if (leftMs < MIN_CALL_MS) {
    throw new KafkaError('UNREACHABLE', `no time was left to call the leader of ${topic}/${partition}`);
  }
  try {
    return { response: await cluster.call(node, lane, leftMs, (link) => use(link, leftMs)), node };
  } catch (error) {
    if (isLinkError(kafkaErrorCode(error))) cluster.markStale(topic);
    throw error;
  }
}

/** The KafkaError for a partition's error code in a response. A leadership error marks the cached leader as stale. */
export function partitionError(
  cluster: Pick<Cluster, 'markStale'>,
  { topic, partition }: { readonly topic: string; readonly partition: number },
  errorCode: KafkaErrorCode,
): KafkaError {
  if (LEADERSHIP_ERRORS.has(errorCode)) cluster.markStale(topic);
  return new KafkaError(errorCode, `partition ${partition} of topic ${topic}: ${errorCode}`);
}

import type { Runtime } from '../../async/runtime.ts';
import { encodeBatch } from '../records/encode.ts';
import type { NewRecord } from '../records/record.ts';
import type { Cluster } from '../wire/cluster.ts';
import { callLeader, type LeaderCall, partitionError } from './leader-call.ts';

/** An append: one record batch, or the records of one. */
export type Appending = LeaderCall & {
  /** How long the broker may wait for its followers. Shortened so that its response arrives before our deadline. */
  readonly replicationTimeoutMs: number;
} & ({ readonly records: readonly NewRecord[] } | { readonly batch: Buffer });

export interface AppendedBatch {
  readonly baseOffset: number;
  /** By the broker's clock if the topic has LogAppendTime, else -1. */
  readonly appendedAtMs: number;
  readonly logStartOffset: number;
  /** The node ID of the broker that answered. */
  readonly node: number;
}

/** Time allowed for the broker's response to arrive. */
const RESPONSE_MARGIN_MS = 500;

/**
 * Appends one record batch to one partition, acknowledged by all in-sync replicas. Sent at most once: one response, or
 * none. Rejects with a KafkaError; after CONNECTION_LOST, NO_RESPONSE, MALFORMED_RESPONSE and REQUEST_TIMED_OUT the batch may
 * be in the log, or may still be appended.
 */
export async function append(
  cluster: Pick<Cluster, 'leader' | 'call' | 'markStale'>,
  runtime: Runtime,
  appending: Appending,
): Promise<AppendedBatch> {
  const { topic, partition, replicationTimeoutMs } = appending;
  const batch = 'batch' in appending ? appending.batch : encodeBatch(appending.records, runtime.wallMs());
  const { response, node } = await callLeader(cluster, runtime, appending, (link, leftMs) => {
    const timeoutMs = Math.round(Math.max(1, Math.min(replicationTimeoutMs, leftMs - RESPONSE_MARGIN_MS)));
    return link.call('produce', { topic, partition, batch, acks: -1, timeoutMs });
  });
  const { errorCode, baseOffset, appendedAtMs, logStartOffset } = response;
  if (errorCode !== undefined) throw partitionError(cluster, appending, errorCode);
  return { baseOffset, appendedAtMs, logStartOffset, node };
}

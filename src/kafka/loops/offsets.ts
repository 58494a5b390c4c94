import type { Runtime } from '../../async/runtime.ts';
import type { Cluster } from '../wire/cluster.ts';
import { KafkaError } from '../wire/kafka-error.ts';
import type { FetchRequest } from '../wire/record-apis.ts';
import { callLeader, type LeaderCall, partitionError } from './leader-call.ts';

export interface OffsetQuery extends Omit<LeaderCall, 'lane'> {
  /** With read_committed the end is the last stable offset. */
  readonly isolation: FetchRequest['isolation'];
}

export const START = -2;
export const END = -1;

/** The bounds of a partition: [logStart, end). */
export interface PartitionBounds {
  readonly logStart: number;
  readonly end: number;
}

type LeaderCluster = Pick<Cluster, 'leader' | 'call' | 'markStale'>;

/**
 * The offset at a time: START, END, or that of the first record not older; -1 if there is none. Sent once; rejects with a
 * KafkaError.
 */
export async function offsetAt(
  cluster: LeaderCluster,
  runtime: Runtime,
  query: OffsetQuery,
  timestampMs: number,
): Promise<number> {
  const { topic, partition, isolation } = query;
  const partitions = [{ topic, partition, timestampMs }];
  const { response } = await callLeader(cluster, runtime, { ...query, lane: 'control' }, (link) =>
    link.call('listOffsets', { isolation, partitions }),
  );
  const found = response.partitions.find((one) => one.topic === topic && one.partition === partition);
  if (found === undefined)
    throw new KafkaError('MALFORMED_RESPONSE', `the response has no offset of ${topic}/${partition}`);
  if (found.errorCode !== undefined) throw partitionError(cluster, query, found.errorCode);
  return found.offset;
}

/** Where a partition starts and ends now. Sent once; rejects with a KafkaError. */
export async function boundsOf(cluster: LeaderCluster, runtime: Runtime, query: OffsetQuery): Promise<PartitionBounds> {
  // Two requests: a broker rejects one that has a partition twice.
  const [logStart, end] = await Promise.all([START, END].map((at) => offsetAt(cluster, runtime, query, at)));
  if (logStart === undefined || end === undefined || logStart < 0 || end < logStart) {
    const message = `invalid bounds of ${query.topic}/${query.partition}: ${logStart} to ${end}`;
    throw new KafkaError('MALFORMED_RESPONSE', message);
  }
  return { logStart, end };
}

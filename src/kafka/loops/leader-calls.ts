import type { Runtime } from '../../async/runtime.ts';
import { encodeBatch } from '../records/encode.ts';
import type { NewRecord } from '../records/record.ts';
import type { BrokerResponse } from '../wire/api.ts';
import type { Purpose } from '../wire/broker.ts';
import type { Cluster } from '../wire/cluster.ts';
import { isLinkError, meaningOf } from '../wire/error-codes.ts';
import { KafkaError, type KafkaErrorCode, kafkaErrorCode } from '../wire/kafka-error.ts';
import type { BrokerLink } from '../wire/port.ts';
import type { FetchedPartition, FetchRequest, ListOffsetsRequest } from '../wire/record-apis.ts';

/** The part of a cluster that calls to leaders need. */
export type LeaderCluster = Pick<Cluster, 'leader' | 'call' | 'markStale'>;

/** With less time left nothing is sent, so that a late caller does not make a broker suspect. */
const MIN_CALL_MS = 250;

export interface LeaderCall {
  readonly topic: string;
  readonly partition: number;
  readonly purpose: Purpose;
  /** For the whole call: finding the leader, connecting, and the response. */
  readonly timeoutMs: number;
}

/** Makes one call to the leader of a partition, sent at most once. `leftMs` is the time left when it is made. */
export async function callLeader<R extends BrokerResponse>(
  cluster: LeaderCluster,
  runtime: Runtime,
  { topic, partition, purpose, timeoutMs }: LeaderCall,
  use: (link: BrokerLink, leftMs: number) => Promise<R>,
): Promise<{ readonly response: R; readonly node: number }> {
  const startedMs = runtime.monotonicMs();
  const node = await cluster.leader(topic, partition, timeoutMs);
  const leftMs = timeoutMs - (runtime.monotonicMs() - startedMs);
  if (leftMs < MIN_CALL_MS) {
    throw new KafkaError('UNREACHABLE', `no time was left to call the leader of ${topic}/${partition}`);
  }
  try {
    return { response: await cluster.call(node, purpose, leftMs, (link) => use(link, leftMs)), node };
  } catch (error) {
    if (isLinkError(kafkaErrorCode(error))) cluster.markStale(topic);
    throw error;
  }
}

/** The KafkaError for a partition's error code in a response. A leadership error marks the cached leader as stale. */
export function partitionError(
  cluster: Pick<Cluster, 'markStale'>,
  { topic, partition, node }: { readonly topic: string; readonly partition: number; readonly node?: number },
  errorCode: KafkaErrorCode,
): KafkaError {
  if (meaningOf(errorCode).leaderMoved) cluster.markStale(topic);
  const options = node === undefined ? {} : { node };
  return new KafkaError(errorCode, `partition ${partition} of topic ${topic}: ${errorCode}`, options);
}

export interface FetchQuery extends LeaderCall, Pick<FetchRequest, 'isolation' | 'rack'> {
  readonly offset: number;
  readonly maxBytes: number;
}

/** What a partition's leader has from an offset on, or its error code. Sent once; rejects with a KafkaError. */
export async function fetchAt(
  cluster: LeaderCluster,
  runtime: Runtime,
  query: FetchQuery,
): Promise<{ readonly fetched: FetchedPartition; readonly node: number }> {
  const { topic, partition, offset, maxBytes, isolation, rack = '' } = query;
  const partitions = [{ topic, partition, offset, maxBytes }];
  const { response, node } = await callLeader(cluster, runtime, query, (link) =>
    link.call('fetch', { maxWaitMs: 0, maxBytes, isolation, rack, partitions }),
  );
  const fetched = response.partitions.find((one) => one.topic === topic && one.partition === partition);
  if (fetched === undefined) throw new KafkaError('MALFORMED_RESPONSE', `the response lacks ${topic}/${partition}`);
  return { fetched, node };
}

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
 * none. Rejects with a KafkaError; after CONNECTION_LOST, NO_RESPONSE, MALFORMED_RESPONSE and REQUEST_TIMED_OUT the
 * batch may be in the log, or may still be appended.
 */
export async function append(cluster: LeaderCluster, runtime: Runtime, appending: Appending): Promise<AppendedBatch> {
  const { topic, partition, replicationTimeoutMs } = appending;
  const batch = 'batch' in appending ? appending.batch : encodeBatch(appending.records, runtime.wallMs());
  const { response, node } = await callLeader(cluster, runtime, appending, (link, leftMs) => {
    const timeoutMs = Math.round(Math.max(1, Math.min(replicationTimeoutMs, leftMs - RESPONSE_MARGIN_MS)));
    return link.call('produce', { topic, partition, batch, acks: -1, timeoutMs });
  });
  const { errorCode, baseOffset, appendedAtMs, logStartOffset } = response;
  if (errorCode !== undefined) throw partitionError(cluster, { ...appending, node }, errorCode);
  return { baseOffset, appendedAtMs, logStartOffset, node };
}

export interface OffsetQuery extends Omit<LeaderCall, 'purpose'> {
  /** With read_committed the end is the last stable offset. */
  readonly isolation: ListOffsetsRequest['isolation'];
}

export const START = -2;
export const END = -1;

/** The bounds of a partition: [logStart, end). */
export interface PartitionBounds {
  readonly logStart: number;
  readonly end: number;
}

/**
 * The offset at a time: START, END, or that of the first record not older; -1 if there is none. Sent once; rejects with
 * a KafkaError.
 */
export async function offsetAt(
  cluster: LeaderCluster,
  runtime: Runtime,
  query: OffsetQuery,
  timestampMs: number,
): Promise<number> {
  const { topic, partition, isolation } = query;
  const partitions = [{ topic, partition, timestampMs }];
  const { response } = await callLeader(cluster, runtime, { ...query, purpose: 'control' }, (link) =>
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

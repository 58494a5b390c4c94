import { retrying } from '../../../async/retrying.ts';
import type { Runtime } from '../../../async/runtime.ts';
import { describeError, IdallocError } from '../../../errors.ts';
import { boundsOf, END, offsetAt } from '../../../kafka/loops/leader-calls.ts';
import type { Cluster } from '../../../kafka/wire/cluster.ts';
import { kafkaErrorCode } from '../../../kafka/wire/kafka-error.ts';
import { asUnavailable, CALL_TIMEOUT_MS, PATIENT, UNSEEN } from '../brokers.ts';

/** The records of one partition at the offsets [from, to); one reading has at most one span per partition. */
export interface Span {
  readonly topic: string;
  readonly partition: number;
  readonly from: number;
  readonly to: number;
}

/** The cluster that topics are read from. */
export interface Source {
  readonly cluster: Cluster;
  readonly runtime: Runtime;
}

/**
 * Like the reads of workers: ledger and witness are written without transactions, and another producer's must not hide
 * records.
 */
export const ISOLATION = 'read_uncommitted';
/** How workers read requests: those of a transaction that was aborted were never sent. */
export const OF_REQUESTS = 'read_committed';
export type Isolation = typeof ISOLATION | typeof OF_REQUESTS;
const QUERY = { isolation: ISOLATION, timeoutMs: CALL_TIMEOUT_MS } as const;

/**
 * Everything that a topic holds now, one span per partition.
 *
 * @throws IdallocError TOPIC_INVALID for a topic that does not exist, KAFKA_UNAVAILABLE.
 */
export async function wholeTopic(source: Source, topic: string, isolation: Isolation = ISOLATION): Promise<Span[]> {
  return await forEachPartition(source, topic, (partition) => spanOf(source, topic, partition, isolation));
}

/** Likewise for several topics, each named once or more often. */
export async function wholeTopics(
  source: Source,
  topics: readonly string[],
  isolation: Isolation = ISOLATION,
): Promise<Span[]> {
  return (await Promise.all([...new Set(topics)].map((topic) => wholeTopic(source, topic, isolation)))).flat();
}

/** Likewise for one partition. */
export async function wholePartition(source: Source, topic: string, partition: number): Promise<Span> {
  return await asking(source, topic, () => spanOf(source, topic, partition));
}

async function spanOf(
  { cluster, runtime }: Source,
  topic: string,
  partition: number,
  isolation: Isolation = ISOLATION,
): Promise<Span> {
  const { logStart, end } = await boundsOf(cluster, runtime, { ...QUERY, isolation, topic, partition });
  return { topic, partition, from: logStart, to: end };
}

/**
 * The offset of the first record of that time or later in each partition, or the partition's end. Times are those of
 * the records: the broker's only if the topic has LogAppendTime.
 *
 * @throws IdallocError as wholeTopic does.
 */
export async function offsetsAtTime(
  source: Source,
  topic: string,
  timeMs: number,
): Promise<ReadonlyMap<number, number>> {
  const offsets = await forEachPartition(source, topic, (partition) => firstSince(source, topic, partition, timeMs));
  return new Map(offsets.entries());
}

/** Likewise for one partition. */
export async function offsetAtTime(source: Source, topic: string, partition: number, timeMs: number): Promise<number> {
  return await asking(source, topic, () => firstSince(source, topic, partition, timeMs));
}

async function firstSince(
  { cluster, runtime }: Source,
  topic: string,
  partition: number,
  timeMs: number,
): Promise<number> {
  const query = { ...QUERY, topic, partition };
  const found = await offsetAt(cluster, runtime, query, Math.max(0, timeMs));
  return found >= 0 ? found : offsetAt(cluster, runtime, query, END);
}

/** The number of partitions of a topic. Rejects as wholeTopic does. */
export async function partitionsOf(source: Source, topic: string): Promise<number> {
  return await asking(source, topic, () => countPartitions(source, topic));
}

/** The results of `query` for each partition of a topic, in order. */
function forEachPartition<T>(source: Source, topic: string, query: (partition: number) => Promise<T>): Promise<T[]> {
  return asking(source, topic, async () => {
    const count = await countPartitions(source, topic);
    return Promise.all(Array.from({ length: count }, (_, partition) => query(partition)));
  });
}

/** What `ask` returns; retried when a leader has moved. */
async function asking<T>(source: Source, topic: string, ask: () => Promise<T>): Promise<T> {
  try {
    return await retrying(source.runtime, PATIENT, ask);
  } catch (error) {
    const errorCode = kafkaErrorCode(error);
    if (error instanceof IdallocError || errorCode === undefined || errorCode === 'LOGIN_REFUSED')
      throw asUnavailable(error);
    const message = `the offsets of topic '${topic}' can't be read: ${describeError(error)}`;
    throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
  }
}

async function countPartitions({ cluster }: Source, topic: string): Promise<number> {
  try {
    return await cluster.partitions(topic, CALL_TIMEOUT_MS);
  } catch (error) {
    if (!UNSEEN.has(kafkaErrorCode(error))) throw error;
    const remedy = `check the name ('idalloc topics init' creates the workers' topics, with --reply-topic ${topic} this one too)`;
    const message = `topic '${topic}' does not exist, or this user may not describe it: ${remedy}`;
    throw new IdallocError('TOPIC_INVALID', message, { cause: error });
  }
}

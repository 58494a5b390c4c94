import { retrying } from '../async/retrying.ts';
import type { Runtime } from '../async/runtime.ts';
import { IdallocError } from '../errors.ts';
import { END, offsetAt } from '../kafka/loops/leader-calls.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import { isUnusableTopic, meaningOf } from '../kafka/wire/error-codes.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';

/** Where replies are read from. */
export interface ReplyPosition {
  readonly partition: number;
  readonly offset: number;
}

export interface ReplyPositionQuery {
  readonly requestTopic: string;
  readonly replyTopic: string;
  /** Undefined: a random one. */
  readonly partition: number | undefined;
  /** The time limit of the whole search. */
  readonly timeoutMs: number;
  /** Whether a login that is refused may succeed at the next attempt. */
  readonly isLoginChanging: boolean;
  /** Called for each attempt that failed for a reason that may pass. */
  readonly onFailure: () => void;
  /** Ends the search. */
  readonly signal: AbortSignal;
}

const CALL_TIMEOUT_MS = 3_000;
const WAITS = { minMs: 200, maxMs: 200 };

/**
 * Finds the partition of the reply topic to read, and its current end offset. Transient errors are retried.
 *
 * @throws IdallocError TOPIC_INVALID when a topic or the partition does not exist or is not authorized; otherwise
 * KafkaError.
 */
export function findReplyPosition(
  cluster: Cluster,
  runtime: Runtime,
  query: ReplyPositionQuery,
): Promise<ReplyPosition> {
  const { timeoutMs, signal, isLoginChanging, onFailure } = query;
  const isTransient = (error: unknown) => {
    const errorCode = kafkaErrorCode(error);
    const { refuses } = meaningOf(errorCode);
    const isLasting = refuses !== undefined && refuses !== 'login';
    if (errorCode === undefined || errorCode === 'CLOSED' || isLasting) return false;
    onFailure();
    return refuses === undefined || isLoginChanging;
  };
  return retrying(runtime, { timeoutMs, waits: WAITS, isTransient, signal }, (leftMs) =>
    findOnce(cluster, runtime, query, runtime.monotonicMs() + leftMs),
  );
}

async function findOnce(
  cluster: Cluster,
  runtime: Runtime,
  query: ReplyPositionQuery,
  untilMs: number,
): Promise<ReplyPosition> {
  const { requestTopic, replyTopic: topic } = query;
  const limitMs = () => Math.min(CALL_TIMEOUT_MS, untilMs - runtime.monotonicMs());
  const partitions = await countPartitions(cluster, requestTopic, topic, limitMs());
  const partition = query.partition ?? Math.floor(runtime.random() * partitions);
  if (!(Number.isInteger(partition) && partition >= 0 && partition < partitions)) {
    cluster.markStale(topic); // the next search sees whether it has got one
    throw new IdallocError('TOPIC_INVALID', `'${topic}' has no partition ${partition}: it has ${partitions}`);
  }
  const where = { topic, partition, isolation: 'read_committed', timeoutMs: limitMs() } as const;
  return { partition, offset: await offsetAt(cluster, runtime, where, END) };
}

/** The number of partitions of the reply topic. Checks both topics, so that one error reports both. */
async function countPartitions(
  cluster: Cluster,
  requestTopic: string,
  replyTopic: string,
  timeoutMs: number,
): Promise<number> {
  const names = [...new Set([requestTopic, replyTopic])];
  const found = await Promise.allSettled(names.map((name) => cluster.partitions(name, timeoutMs)));
  const refused = found.flatMap((one, i) =>
    one.status === 'rejected'
      ? [{ name: `'${names[i]}'`, error: one.reason, errorCode: kafkaErrorCode(one.reason) }]
      : [],
  );
  const missing = refused.filter(({ errorCode }) => meaningOf(errorCode).isAbsent).map(({ name }) => name);
  if (missing.length > 0) {
    const message = `no topic ${missing.join(', ')}: correct its name, or create it: idalloc topics init --reply-topic ${replyTopic}`;
    throw new IdallocError('TOPIC_INVALID', message);
  }
  const hidden = refused.filter(({ errorCode }) => isUnusableTopic(errorCode)).map(({ name }) => name);
  if (hidden.length > 0)
    throw new IdallocError('TOPIC_INVALID', `this user is not authorized for ${hidden.join(', ')}`);
  if (refused[0] !== undefined) throw refused[0].error;
  const last = found.at(-1);
  return last?.status === 'fulfilled' ? last.value : 0;
}

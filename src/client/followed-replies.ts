import { retrying } from '../async/retrying.ts';
import type { Runtime } from '../async/runtime.ts';
import { describeError, IdallocError } from '../errors.ts';
import { END, offsetAt } from '../kafka/loops/leader-calls.ts';
import { Tail } from '../kafka/loops/tail.ts';
import type { Followed } from '../kafka/loops/tail-port.ts';
import type { FetchedRecord } from '../kafka/records/record.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import { isUnusableTopic, meaningOf } from '../kafka/wire/error-codes.ts';
import { type KafkaError, kafkaErrorCode } from '../kafka/wire/kafka-error.ts';
import { loginRefused } from '../kafka/wire/settings.ts';
import { clientClosed } from './refusals.ts';
import type { TransportEvents } from './requester.ts';

export interface FollowedRepliesOptions {
  readonly cluster: Cluster;
  readonly runtime: Runtime;
  readonly requestTopic: string;
  /** The topic that `partition` is one of; of others a random one is read. */
  readonly replyTopic: string;
  /** Undefined: a random one. */
  readonly partition: number | undefined;
  /** Whether a login that is refused may succeed at the next attempt. */
  readonly isLoginChanging: boolean;
  readonly events: TransportEvents;
  readonly deliver: (records: readonly FetchedRecord[]) => Promise<void>;
  /** Called for each call that failed. */
  readonly onFailure: () => void;
}

const FETCH_WAIT_MS = 500;
const FETCH_BYTES = 8 * 1024 * 1024;
const PARTITION_BYTES = 1024 * 1024;
const MAX_REPLY_TOPICS = 8;
/** Enough for a broker to restart, and usually for a leader election. */
const FIND_TIMEOUT_MS = 10_000;
/** A broker that starts, or that has just begun or ceased to lead, may not know a partition for a moment. */
const GONE_MS = 2_000;

/** A topic that is read. */
interface ReadTopic {
  readonly followed: Followed;
  /** Why its partition can't be read now; undefined if it can. */
  trouble: string | undefined;
  /** Since when brokers say that the partition does not exist (monotonic ms); undefined if they don't. */
  goneSinceMs: number | undefined;
}

/**
 * The reply topics of a client: one partition of each, from its end at the time of the topic's first request.
 *
 *   unknown   -> searching   at a request
 *   searching -> read, or unknown with the error that the requests get
 *   read      -> unknown     brokers have said for GONE_MS that the partition does not exist; what waits is sent again,
 *                            and searches
 */
export class FollowedReplies {
  readonly #options: FollowedRepliesOptions;
  readonly #tail: Tail;
  readonly #positions = new Map<string, Promise<ReplyPosition>>();
  readonly #read = new Map<string, ReadTopic>();
  readonly #closing = new AbortController();

  constructor(options: FollowedRepliesOptions) {
    this.#options = options;
    this.#tail = new Tail({
      cluster: options.cluster,
      runtime: options.runtime,
      purpose: 'replies',
      isolation: 'read_committed',
      maxWaitMs: FETCH_WAIT_MS,
      maxBytes: FETCH_BYTES,
      maxBytesPerPartition: PARTITION_BYTES,
      onError: (topic, partition, error) => this.#failed(topic, partition, error),
    });
  }

  /** Where the replies on a topic are read: from before this resolves. Rejects with IdallocError. */
  positionOf(topic: string, timeoutMs = FIND_TIMEOUT_MS): Promise<ReplyPosition> {
    const known = this.#positions.get(topic);
    if (known !== undefined) return known;
    if (this.#closing.signal.aborted) return Promise.reject(clientClosed());
    if (this.#positions.size >= MAX_REPLY_TOPICS) {
      const message = `this client already reads ${MAX_REPLY_TOPICS} reply topics: use another client for '${topic}'`;
      return Promise.reject(new IdallocError('QUEUE_FULL', message));
    }
    const position = this.#follow(topic, timeoutMs);
    this.#positions.set(topic, position);
    position.catch(() => this.#positions.delete(topic));
    return position;
  }

  /** Why replies on a topic can't be read now; undefined if they can, or if nobody needed them. */
  trouble(topic: string): string | undefined {
    return this.#read.get(topic)?.trouble;
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#tail.close();
  }

  async #follow(topic: string, timeoutMs: number): Promise<ReplyPosition> {
    const { cluster, runtime, replyTopic, partition, events, deliver, ...more } = this.#options;
    const { signal } = this.#closing;
    const own = topic === replyTopic ? partition : undefined;
    const query = { ...more, replyTopic: topic, partition: own, timeoutMs, signal };
    const position = await findReplyPosition(cluster, runtime, query).catch((error: unknown) => {
      throw linkFailure(`the replies on '${topic}' cannot be read`, error);
    });
    const followed = this.#tail.follow(
      { topic, ...position },
      {
        deliver: ({ records }) => deliver(records),
        fetched: () => {
          read.trouble = undefined;
          read.goneSinceMs = undefined;
        },
        // The topic was recreated or truncated. What waits is sent again, and answered behind this end; the log may
        // hold weeks before it.
        outOfRange: ({ end }) => {
          events.onMoved(topic);
          return end;
        },
      },
    );
    const read: ReadTopic = { followed, trouble: undefined, goneSinceMs: undefined };
    this.#read.set(topic, read);
    return position;
  }

  #failed(topic: string, partition: number, error: KafkaError): void {
    const { runtime, events, onFailure } = this.#options;
    const problem = linkFailure(`partition ${partition} of '${topic}' cannot be read now`, error);
    onFailure();
    events.onError(problem);
    const read = this.#read.get(topic);
    if (read === undefined) return;
    read.trouble = problem.message;
    if (error.errorCode !== 'UNKNOWN_TOPIC_OR_PARTITION') return;
    read.goneSinceMs ??= runtime.monotonicMs();
    if (runtime.monotonicMs() - read.goneSinceMs >= GONE_MS) this.#lose(topic, read);
  }

  /** Requests in progress name a partition that is gone. */
  #lose(topic: string, { followed }: ReadTopic): void {
    followed.stop();
    this.#read.delete(topic);
    this.#positions.delete(topic);
    this.#options.events.onMoved(topic);
  }
}

export function linkFailure(what: string, cause: unknown): IdallocError {
  if (cause instanceof IdallocError) return cause;
  if (cause instanceof Error && cause.cause instanceof IdallocError) return cause.cause; // of the options' functions
  if (kafkaErrorCode(cause) === 'LOGIN_REFUSED') return loginRefused(cause, "the client's options ssl and sasl");
  return new IdallocError('KAFKA_UNAVAILABLE', `${what}: ${describeError(cause)}`, { cause });
}

/** Where replies are read from. */
export interface ReplyPosition {
  readonly partition: number;
  readonly offset: number;
}

interface ReplyPositionQuery {
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
function findReplyPosition(cluster: Cluster, runtime: Runtime, query: ReplyPositionQuery): Promise<ReplyPosition> {
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

import type { Runtime } from '../../../core/runtime.ts';
import { describeError, IdallocError } from '../../../errors.ts';
import { boundsOf, END, offsetAt } from '../../../kafka/loops/offsets.ts';
import type { Cluster } from '../../../kafka/wire/cluster.ts';
import { faultOf } from '../../../kafka/wire/fault.ts';
import { asUnavailable, CALL_TIMEOUT_MS, withRetries } from '../brokers.ts';

/** The records of one partition from an offset to before another; one reading has at most one for each partition. */
export interface Span {
  readonly topic: string;
  readonly partition: number;
  readonly from: number;
  readonly to: number;
}

/** Where topics are read from. */
export interface Source {
  readonly cluster: Cluster;
  readonly runtime: Runtime;
}

/** Workers write without transactions, and read ledger and witness so: a transaction of somebody else's hides nothing. */
export const ISOLATION = 'read_uncommitted';
const QUERY = { isolation: ISOLATION, timeoutMs: CALL_TIMEOUT_MS } as const;

/**
 * All that a topic holds now, a span for each partition.
 *
 * @throws IdallocError TOPIC_INVALID for a topic that does not exist, KAFKA_UNAVAILABLE.
 */
export async function wholeTopic(source: Source, topic: string): Promise<Span[]> {
  const bounds = await forEachPartition(source, topic, ({ cluster, runtime }, partition) =>
    boundsOf(cluster, runtime, { ...QUERY, topic, partition }),
  );
  return bounds.map(({ logStart, end }, partition) => ({ topic, partition, from: logStart, to: end }));
}

/**
 * The first offset of each partition whose record is of that time or later, and the end where there is none. Times are
 * those of the topic's records: the broker's only where it says LogAppendTime.
 *
 * @throws IdallocError as wholeTopic does.
 */
export async function offsetsAtTime(
  source: Source,
  topic: string,
  timeMs: number,
): Promise<ReadonlyMap<number, number>> {
  const offsets = await forEachPartition(source, topic, async ({ cluster, runtime }, partition) => {
    const query = { ...QUERY, topic, partition };
    const found = await offsetAt(cluster, runtime, query, Math.max(0, timeMs));
    return found >= 0 ? found : offsetAt(cluster, runtime, query, END);
  });
  return new Map(offsets.entries());
}

/** What `ask` gives for each partition of a topic, in their order; asked again when a leader has moved. */
async function forEachPartition<T>(
  source: Source,
  topic: string,
  ask: (source: Source, partition: number) => Promise<T>,
): Promise<readonly T[]> {
  try {
    return await withRetries(source, async () => {
      const count = await countPartitions(source, topic);
      return Promise.all(Array.from({ length: count }, (_, partition) => ask(source, partition)));
    });
  } catch (error) {
    const fault = faultOf(error);
    if (error instanceof IdallocError || fault === undefined || fault === 'LOGIN_REFUSED') throw asUnavailable(error);
    const message = `the offsets of topic '${topic}' can't be had: ${describeError(error)}`;
    throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
  }
}

const UNSEEN: ReadonlySet<string | undefined> = new Set(['UNKNOWN_TOPIC_OR_PARTITION', 'TOPIC_AUTHORIZATION_FAILED']);

async function countPartitions({ cluster }: Source, topic: string): Promise<number> {
  try {
    return await cluster.partitions(topic, CALL_TIMEOUT_MS);
  } catch (error) {
    if (!UNSEEN.has(faultOf(error))) throw error;
    const remedy = "check the name ('idalloc topics init' makes the workers' own)";
    const message = `there is no topic '${topic}', or this user may not see it: ${remedy}`;
    throw new IdallocError('TOPIC_INVALID', message, { cause: error });
  }
}

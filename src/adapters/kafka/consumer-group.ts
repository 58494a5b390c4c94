import { type CommittedPosition, decodePosition, encodeMetadata } from '../../codec/request-position.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { type DescribedGroup, describeBy } from '../../kafka/loops/described-group.ts';
import { decodeAssignment, decodeStandbys } from '../../kafka/loops/member-claims.ts';
import { meaningOf } from '../../kafka/wire/error-codes.ts';
import { kafkaErrorCode } from '../../kafka/wire/kafka-error.ts';
import { type Brokers, callCoordinator, requireNoError } from './brokers.ts';

/** A group of either of Kafka's protocols; undefined if it does not exist. Rejects with a KafkaError. */
export async function describeGroup(brokers: Brokers, groupId: string): Promise<DescribedGroup | undefined> {
  const { group } = await callCoordinator(brokers, groupId, async (link) => ({
    throttleMs: 0,
    group: await describeBy(link, groupId),
  }));
  return group;
}

/** A worker in the request group. */
export interface DescribedMember {
  /** Its instance ID, by which it keeps its partitions across restarts. */
  readonly name: string;
  /** The address from which it connects, as the coordinator sees it. */
  readonly host: string;
  /** The partitions that it answers, and those of which it keeps a copy for that. */
  readonly owned: readonly number[];
  readonly standbys: readonly number[];
}

/** The members of a group of workers, by name; none if it does not exist. Rejects with a KafkaError. */
export async function groupMembers(brokers: Brokers, groupId: string): Promise<readonly DescribedMember[]> {
  const members = (await describeGroup(brokers, groupId))?.members ?? [];
  const named = members.map(({ memberId, clientHost, assignment }) => {
    const name = memberId.replace(STATIC_SUFFIX, '');
    return { name, host: hostOf({ clientHost }), ...shareOf(assignment) };
  });
  return named.sort((one, other) => (one.name < other.name ? -1 : 1));
}

/** A member's address, which brokers write after a slash. */
export function hostOf({ clientHost }: Pick<DescribedGroup['members'][number], 'clientHost'>): string {
  return clientHost.replace(/^\//, '');
}

/** What brokers append to a member's instance ID, to tell its lives apart. */
const STATIC_SUFFIX = /-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** What the leader has assigned; nothing that another version wrote in an unknown format. */
function shareOf(assignment: Buffer): Pick<DescribedMember, 'owned' | 'standbys'> {
  try {
    const { assigned, userData } = decodeAssignment(assignment);
    const { standbys = [] } = (userData === null ? undefined : decodeStandbys(userData)) ?? {};
    return { owned: assigned.flatMap(({ partitions }) => partitions).sort((a, b) => a - b), standbys };
  } catch (error) {
    if (error instanceof RangeError) return { owned: [], standbys: [] };
    throw error;
  }
}

/** A committed offset. */
export interface Committed {
  readonly offset: number;
  /**
   * What is answered, as the worker says that committed the offset; undefined if another program did, which says
   * nothing about that.
   */
  readonly position: CommittedPosition | undefined;
}

/** The committed offsets of a group of workers, for the partitions that have one. Rejects with a KafkaError. */
export async function committedOffsets(
  brokers: Brokers,
  groupId: string,
  topic: string,
  partitions: readonly number[],
): Promise<ReadonlyMap<number, Committed>> {
  const requested = partitions.map((partition) => ({ topic, partition }));
  const response = await callCoordinator(brokers, groupId, async (link) => {
    const found = await link.call('offsetFetch', { groupId, partitions: requested });
    for (const { partition, errorCode } of found.partitions) {
      if (errorCode !== 'UNKNOWN_TOPIC_OR_PARTITION') requireNoError(errorCode, `offset of partition ${partition}`);
    }
    return found;
  });
  const committed = response.partitions.filter(({ offset }) => offset >= 0);
  return new Map(
    committed.map(({ partition, offset, metadata }) => {
      return [partition, { offset, position: decodePosition(offset, metadata) }];
    }),
  );
}

/**
 * Commits offsets from outside a group of workers, which must have no members. None may be above the one that a worker
 * committed: workers take everything below for answered. So they are those of one cluster, and each attempt first asks
 * the coordinator, over the same connection, whether it belongs to that one: behind the same addresses there may be
 * another by then.
 *
 * @throws IdallocError GROUP_ACTIVE when it has a member, CLUSTER_CHANGED, KAFKA_UNAVAILABLE.
 */
export async function setOffsets(
  brokers: Brokers,
  groupId: string,
  topic: string,
  { clusterId, offsets }: { readonly clusterId: string; readonly offsets: ReadonlyMap<number, number> },
): Promise<void> {
  const partitions = [...offsets].map(([partition, offset]) => {
    return { topic, partition, offset, metadata: encodeMetadata({ next: offset, small: offset }) };
  });
  try {
    await callCoordinator(brokers, groupId, async (link) => {
      requireCluster(clusterId, await link.call('metadata', { topics: [] }));
      const response = await link.call('offsetCommit', { groupId, generation: -1, memberId: '', partitions });
      for (const { partition, errorCode } of response.partitions)
        requireNoError(errorCode, `offset of partition ${partition}`);
      return response;
    });
  } catch (error) {
    const errorCode = kafkaErrorCode(error);
    if (errorCode === undefined) throw error;
    // A group with members rejects a commit from outside as it would one from a member that it has lost.
    const code = meaningOf(errorCode).member !== undefined ? 'GROUP_ACTIVE' : 'KAFKA_UNAVAILABLE';
    const message = `the offsets of group '${groupId}' could not be set: ${describeError(error)}`;
    throw new IdallocError(code, message, { cause: error });
  }
}

/** Throws CLUSTER_CHANGED if brokers belong to another cluster than the one whose offsets are known. */
export function requireCluster(clusterId: string, found: { readonly clusterId: string }): void {
  if (found.clusterId === clusterId) return;
  const message = `the offsets are those of the Kafka cluster ${clusterId}, but these brokers belong to the cluster ${found.clusterId}: nothing was set back there; run the command again`;
  throw new IdallocError('CLUSTER_CHANGED', message);
}

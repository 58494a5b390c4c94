import { describeError, IdallocError } from '../../errors.ts';
import type { DescribeGroupsResponse } from '../../kafka/wire/group-apis.ts';
import { type KafkaErrorCode, kafkaErrorCode } from '../../kafka/wire/kafka-error.ts';
import { type Brokers, callCoordinator, requireNoError } from './brokers.ts';

type Group = Pick<DescribeGroupsResponse['groups'][number], 'state' | 'members'>;

/** The state and the members of a group; undefined if it does not exist. Rejects with a KafkaError. */
export async function describeGroup(brokers: Brokers, groupId: string): Promise<Group | undefined> {
  const { groups } = await callCoordinator(brokers, groupId, async (link) => {
    const response = await link.call('describeGroups', { groupIds: [groupId] });
    for (const { errorCode } of response.groups)
      if (errorCode !== NOT_FOUND) requireNoError(errorCode, `group ${groupId}`);
    return response;
  });
  return groups.find((group) => group.groupId === groupId && group.errorCode === undefined && group.state !== 'Dead');
}

const NOT_FOUND = 'GROUP_ID_NOT_FOUND';

/** The committed offsets of a group, for the partitions that have one. Rejects with a KafkaError. */
export async function committedOffsets(
  brokers: Brokers,
  groupId: string,
  topic: string,
  partitions: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const requested = partitions.map((partition) => ({ topic, partition }));
  const response = await callCoordinator(brokers, groupId, async (link) => {
    const found = await link.call('offsetFetch', { groupId, partitions: requested });
    for (const { partition, errorCode } of found.partitions) {
      if (errorCode !== 'UNKNOWN_TOPIC_OR_PARTITION') requireNoError(errorCode, `offset of partition ${partition}`);
    }
    return found;
  });
  const committed = response.partitions.filter(({ offset }) => offset >= 0);
  return new Map(committed.map(({ partition, offset }) => [partition, offset]));
}

/** The errors by which a coordinator rejects an outside commit to a group with members. */
const ACTIVE: ReadonlySet<KafkaErrorCode | undefined> = new Set([
  'UNKNOWN_MEMBER_ID',
  'ILLEGAL_GENERATION',
  'REBALANCE_IN_PROGRESS',
]);

/**
 * Commits offsets from outside a group, which must have no members.
 *
 * @throws IdallocError GROUP_ACTIVE when it has a member, KAFKA_UNAVAILABLE.
 */
export async function setOffsets(
  brokers: Brokers,
  groupId: string,
  topic: string,
  offsets: ReadonlyMap<number, number>,
): Promise<void> {
  const partitions = [...offsets].map(([partition, offset]) => ({ topic, partition, offset }));
  try {
    await callCoordinator(brokers, groupId, async (link) => {
      const response = await link.call('offsetCommit', { groupId, generation: -1, memberId: '', partitions });
      for (const { partition, errorCode } of response.partitions)
        requireNoError(errorCode, `offset of partition ${partition}`);
      return response;
    });
  } catch (error) {
    const errorCode = kafkaErrorCode(error);
    if (errorCode === undefined) throw error;
    const code = ACTIVE.has(errorCode) ? 'GROUP_ACTIVE' : 'KAFKA_UNAVAILABLE';
    const message = `the offsets of group '${groupId}' could not be set: ${describeError(error)}`;
    throw new IdallocError(code, message, { cause: error });
  }
}

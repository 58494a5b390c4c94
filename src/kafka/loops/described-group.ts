import type { DescribeGroupsResponse } from '../wire/group-apis.ts';
import { KafkaError, kafkaErrorCode } from '../wire/kafka-error.ts';
import type { BrokerLink } from '../wire/port.ts';
import { STICKY } from './member-claims.ts';

type Group = DescribeGroupsResponse['groups'][number];

/** A group as its coordinator describes it. */
export interface DescribedGroup extends Pick<Group, 'state' | 'members'> {
  /** The members of which it is certain that they are not workers. */
  readonly foreign: Group['members'];
}

/**
 * Asks the coordinator for a group, of either of Kafka's protocols; undefined if there is none. A group of the classic
 * protocol that has an assigner has one kind of members. In one of the new protocol, workers take part by the classic
 * one.
 */
export async function describeBy(link: BrokerLink, groupId: string): Promise<DescribedGroup | undefined> {
  const classic = await link.call('describeGroups', { groupIds: [groupId] });
  const group = existing(classic.groups, groupId);
  if (group !== undefined) {
    const { state, members, protocol = '' } = group;
    return { state, members, foreign: protocol === '' || protocol === STICKY ? [] : members };
  }
  try {
    const modern = await link.call('consumerGroupDescribe', { groupIds: [groupId] });
    const found = existing(modern.groups, groupId);
    return found && { ...found, foreign: found.members.filter(({ isClassic }) => !isClassic) };
  } catch (error) {
    if (kafkaErrorCode(error) === 'UNSUPPORTED_VERSION') return undefined; // older brokers have no such groups
    throw error;
  }
}

function existing<G extends Group>(groups: readonly G[], groupId: string): G | undefined {
  const group = groups.find((one) => one.groupId === groupId);
  if (group === undefined || group.state === 'Dead' || group.errorCode === 'GROUP_ID_NOT_FOUND') return undefined;
  if (group.errorCode === undefined) return group;
  throw new KafkaError(group.errorCode, `group ${groupId}: ${group.errorCode}`);
}

/** A group may have any number of members, with client IDs of up to 32 KiB, and their names are shown in one line. */
const MAX_NAMED = 5;
const MAX_NAME = 100;

/** The names of members for their operator, with their addresses, which brokers write after a slash. */
export function memberNames(members: readonly Pick<Group['members'][number], 'clientId' | 'clientHost'>[]): string[] {
  const named = members.slice(0, MAX_NAMED).map(({ clientId, clientHost }) => {
    const name = clientId.length > MAX_NAME ? `${clientId.slice(0, MAX_NAME)}…` : clientId;
    return `'${name}' at ${clientHost.replace(/^\//, '')}`;
  });
  const others = members.length - named.length;
  return others === 0 ? named : [...named, `${others} more`];
}

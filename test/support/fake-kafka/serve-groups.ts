import type { GROUP_APIS } from '../../../src/kafka/wire/group-apis.ts';
import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { Broker } from './broker.ts';
import type { Handlers } from './calls.ts';
import type { Group } from './group.ts';
import { addressOf } from './view.ts';

/** The calls that a broker serves as the coordinator of groups. */
export function groupHandlers(broker: Broker): Pick<Handlers, keyof typeof GROUP_APIS> {
  const { cluster, node } = broker;
  const { groups } = cluster;
  const throttled = () => ({ throttleMs: cluster.throttleMs });
  /** Why this broker can't serve a group. */
  const refusal = (groupId: string): KafkaErrorCode | undefined => {
    if (groups.get(groupId) === undefined || groups.coordinatorOf(groupId, node) !== node)
      return 'NOT_COORDINATOR_FOR_GROUP';
    return groups.isLoading(groupId) ? 'GROUP_LOAD_IN_PROGRESS' : undefined;
  };
  const withGroup = (
    groupId: string,
    reply: { refuse(errorCode: KafkaErrorCode): void },
    use: (group: Group) => void,
  ): void => {
    const group = groups.get(groupId);
    const errorCode = refusal(groupId);
    if (group === undefined || errorCode !== undefined) reply.refuse(errorCode ?? 'NOT_COORDINATOR_FOR_GROUP');
    else use(group);
  };
  const settle = (reply: { give(answer: { throttleMs: number }): void; refuse(errorCode: KafkaErrorCode): void }) => {
    return (errorCode: KafkaErrorCode | undefined): void =>
      errorCode === undefined ? reply.give(throttled()) : reply.refuse(errorCode);
  };
  return {
    findCoordinator: ({ groupId }, reply) => {
      const known = broker.view.coordinators.get(groupId) ?? cluster.coordinatorOf(groupId);
      if (known === undefined || !broker.view.nodes.includes(known))
        return reply.refuse('GROUP_COORDINATOR_NOT_AVAILABLE');
      reply.give({ ...throttled(), ...addressOf(known) });
    },
    joinGroup: (request, reply, client) =>
      withGroup(request.groupId, reply, (group) => group.join(client, request, reply)),
    syncGroup: (request, reply) => withGroup(request.groupId, reply, (group) => group.sync(request, reply)),
    heartbeat: (request, reply) =>
      withGroup(request.groupId, reply, (group) => settle(reply)(group.heartbeat(request))),
    leaveGroup: (request, reply) => withGroup(request.groupId, reply, (group) => settle(reply)(group.leave(request))),
    offsetCommit: (request, reply) => {
      const errorCode = refusal(request.groupId);
      const refused = () =>
        request.partitions.map(({ topic, partition }) => ({ topic, partition, errorCode: errorCode ?? '' }));
      reply.give({ ...throttled(), partitions: errorCode === undefined ? groups.commit(request) : refused() });
    },
    offsetFetch: (request, reply) =>
      withGroup(request.groupId, reply, () => reply.give({ ...throttled(), partitions: groups.fetch(request) })),
    describeGroups: ({ groupIds }, reply) => {
      const described = groupIds.map((groupId) => {
        const group = groups.get(groupId);
        const errorCode = refusal(groupId);
        if (group === undefined) return { groupId, state: 'Dead', members: [] };
        return errorCode === undefined
          ? { groupId, ...group.describe() }
          : { groupId, errorCode, state: '', members: [] };
      });
      reply.give({ ...throttled(), groups: described });
    },
    consumerGroupDescribe: ({ groupIds }, reply) => {
      const described = groupIds.map((groupId) => groups.get(groupId)?.describeModern(groupId) ?? unknown(groupId));
      reply.give({ ...throttled(), groups: described });
    },
  };
}

function unknown(groupId: string) {
  return { groupId, errorCode: 'GROUP_ID_NOT_FOUND', state: '', members: [] };
}

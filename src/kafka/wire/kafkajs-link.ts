import { byTopic, flat } from './by-topic.ts';
import { KafkaError } from './kafka-error.ts';
import type { Calls } from './kafkajs-calls.ts';
import type { WireConnection } from './kafkajs-connection.ts';
import { errorIn, requireSuccess, safeInteger } from './kafkajs-errors.ts';
import { Encoder, type Protocol } from './kafkajs-modules.ts';
import { fetchResponse, produceProtocol, produceResponses } from './kafkajs-records.ts';
import { apiKeys, requests, type Throttled } from './kafkajs-requests.ts';
import { aclsProtocol, operationsProtocol } from './kafkajs-rights.ts';
import type * as port from './port.ts';
import { ProduceQueue } from './produce-queue.ts';

const READ_UNCOMMITTED = 0;
const READ_COMMITTED = 1;
const TOPIC_RESOURCE = 2;

/** The calls of the port over one connection that is open and logged in. */
export class KafkajsLink implements port.BrokerLink {
  readonly #connection: WireConnection;
  readonly #calls: Calls;
  readonly #produceQueue: ProduceQueue;

  constructor(connection: WireConnection, calls: Calls) {
    this.#connection = connection;
    this.#calls = calls;
    this.#produceQueue = new ProduceQueue((requests) =>
      calls.send(produceProtocol(requests), (decoded) => produceResponses(decoded, requests)),
    );
  }

  get ended(): Promise<void> {
    return this.#connection.ended;
  }

  close(): void {
    this.#connection.end(new Error('closed by this side'));
  }

  metadata({ topics }: Parameters<port.BrokerLink['metadata']>[0]): Promise<port.MetadataResponse> {
    const options = { topics: topics === 'all' ? [] : topics, allowAutoTopicCreation: false };
    const protocol = this.#calls.protocol(apiKeys.Metadata, requests.Metadata, options);
    const request =
      topics !== 'all' && topics.length === 0 ? { ...protocol, request: noTopics(protocol.request) } : protocol;
    return this.#calls.send(request, (decoded) => ({
      throttleMs: throttleOf(decoded),
      clusterId: decoded.clusterId ?? '',
      controllerId: decoded.controllerId,
      brokers: decoded.brokers.map(({ nodeId, host, port }) => ({ nodeId, host, port })),
      topics: decoded.topicMetadata.map(({ topicErrorCode, topic, partitionMetadata }) => ({
        name: topic,
        ...errorIn(topicErrorCode),
        partitions: inOrder(topic, partitionMetadata),
      })),
    }));
  }

  produce(request: port.ProduceRequest): Promise<port.ProduceResponse> {
    return this.#produceQueue.produce(request);
  }

  fetch({ maxWaitMs, maxBytes, isolation, partitions }: port.FetchRequest): Promise<port.FetchResponse> {
    const { request } = this.#calls.protocol(apiKeys.Fetch, requests.Fetch, {
      maxWaitTime: maxWaitMs,
      minBytes: 1,
      maxBytes,
      isolationLevel: levelOf(isolation),
      topics: byTopic(partitions, (at) => ({
        partition: at.partition,
        fetchOffset: String(at.offset),
        maxBytes: at.maxBytes,
      })),
    });
    return this.#calls.send({ request, response: fetchResponse }, (response) => response);
  }

  listOffsets({ isolation, partitions }: port.ListOffsetsRequest): Promise<port.ListOffsetsResponse> {
    const options = {
      isolationLevel: levelOf(isolation),
      topics: byTopic(partitions, ({ partition, timestampMs }) => ({ partition, timestamp: timestampMs })),
    };
    return this.#calls.request(apiKeys.ListOffsets, requests.ListOffsets, options, (decoded) => ({
      throttleMs: throttleOf(decoded),
      partitions: flat(decoded.responses, ({ partition, errorCode, offset }) => ({
        partition,
        ...errorIn(errorCode),
        offset: safeInteger(offset),
      })),
    }));
  }

  findCoordinator(request: Parameters<port.BrokerLink['findCoordinator']>[0]): Promise<port.FindCoordinatorResponse> {
    return this.#calls.request(apiKeys.GroupCoordinator, requests.GroupCoordinator, request, (decoded) => {
      requireSuccess(decoded.errorCode);
      return { throttleMs: throttleOf(decoded), ...decoded.coordinator };
    });
  }

  joinGroup(request: port.JoinGroupRequest): Promise<port.JoinGroupResponse> {
    const options = {
      ...memberOf(request),
      sessionTimeout: request.sessionTimeoutMs,
      rebalanceTimeout: request.rebalanceTimeoutMs,
      protocolType: request.protocolType,
      groupProtocols: request.protocols,
    };
    return this.#calls.request(apiKeys.JoinGroup, requests.JoinGroup, options, (decoded) => {
      const { errorCode } = errorIn(decoded.errorCode);
      if (errorCode !== 'MEMBER_ID_REQUIRED') requireSuccess(decoded.errorCode);
      return {
        throttleMs: throttleOf(decoded),
        ...(errorCode === undefined ? {} : { errorCode }),
        generation: decoded.generationId,
        protocol: decoded.groupProtocol ?? '',
        leaderId: decoded.leaderId ?? '',
        memberId: decoded.memberId ?? '',
        members: decoded.members.map(({ memberId, groupInstanceId, memberMetadata }) => ({
          memberId,
          ...(groupInstanceId == null ? {} : { instanceId: groupInstanceId }),
          metadata: memberMetadata,
        })),
      };
    });
  }

  syncGroup(request: port.SyncGroupRequest): Promise<port.SyncGroupResponse> {
    const options = {
      ...memberOf(request),
      generationId: request.generation,
      groupAssignment: request.assignments.map(({ memberId, assignment }) => ({
        memberId,
        memberAssignment: assignment,
      })),
    };
    return this.#calls.request(apiKeys.SyncGroup, requests.SyncGroup, options, (decoded) => {
      requireSuccess(decoded.errorCode);
      return { throttleMs: throttleOf(decoded), assignment: decoded.memberAssignment ?? Buffer.alloc(0) };
    });
  }

  heartbeat(request: port.MemberRequest): Promise<port.BrokerResponse> {
    const options = { ...memberOf(request), groupGenerationId: request.generation };
    return this.#calls.request(apiKeys.Heartbeat, requests.Heartbeat, options, (decoded) => {
      requireSuccess(decoded.errorCode);
      return { throttleMs: throttleOf(decoded) };
    });
  }

  leaveGroup(request: Omit<port.MemberRequest, 'generation'>): Promise<port.BrokerResponse> {
    return this.#calls.request(apiKeys.LeaveGroup, requests.LeaveGroup, memberOf(request), (decoded) => {
      for (const { errorCode } of [decoded, ...(decoded.members ?? [])]) requireSuccess(errorCode);
      return { throttleMs: throttleOf(decoded) };
    });
  }

  commitOffsets({
    groupId,
    generation,
    memberId,
    partitions,
  }: port.OffsetCommitRequest): Promise<port.OffsetCommitResponse> {
    const options = {
      groupId,
      groupGenerationId: generation,
      memberId,
      topics: byTopic(partitions, ({ partition, offset, metadata = '' }) => ({
        partition,
        offset: String(offset),
        metadata,
      })),
    };
    return this.#calls.request(apiKeys.OffsetCommit, requests.OffsetCommit, options, (decoded) => ({
      throttleMs: throttleOf(decoded),
      partitions: flat(decoded.responses, ({ partition, errorCode }) => ({ partition, ...errorIn(errorCode) })),
    }));
  }

  fetchOffsets({ groupId, partitions }: port.OffsetFetchRequest): Promise<port.OffsetFetchResponse> {
    const options = { groupId, topics: byTopic(partitions, ({ partition }) => ({ partition })) };
    return this.#calls.request(apiKeys.OffsetFetch, requests.OffsetFetch, options, (decoded) => {
      requireSuccess(decoded.errorCode);
      return {
        throttleMs: throttleOf(decoded),
        partitions: flat(decoded.responses, ({ partition, errorCode, offset, metadata }) => ({
          partition,
          ...errorIn(errorCode),
          offset: safeInteger(offset),
          metadata: metadata ?? '',
        })),
      };
    });
  }

  createTopics({ topics, timeoutMs }: port.CreateTopicsRequest): Promise<port.CreateTopicsResponse> {
    const options = {
      validateOnly: false,
      timeout: timeoutMs,
      topics: topics.map(({ name, partitions, replicas, configs }) => ({
        topic: name,
        numPartitions: partitions,
        replicationFactor: replicas,
        configEntries: Object.entries(configs).map(([key, value]) => ({ name: key, value })),
      })),
    };
    return this.#calls.request(apiKeys.CreateTopics, requests.CreateTopics, options, (decoded) => ({
      throttleMs: throttleOf(decoded),
      topics: decoded.topicErrors.map(({ topic, errorCode, errorMessage }) => ({
        name: topic,
        ...errorIn(errorCode),
        ...(errorMessage == null ? {} : { message: errorMessage }),
      })),
    }));
  }

  describeConfigs({
    topics,
  }: Parameters<port.BrokerLink['describeConfigs']>[0]): Promise<port.DescribeConfigsResponse> {
    const options = { resources: topics.map((name) => ({ type: TOPIC_RESOURCE, name })) };
    return this.#calls.request(apiKeys.DescribeConfigs, requests.DescribeConfigs, options, (decoded) => ({
      throttleMs: throttleOf(decoded),
      topics: decoded.resources.map(({ errorCode, resourceName, configEntries }) => ({
        name: resourceName,
        ...errorIn(errorCode),
        configs: new Map(configEntries.map(({ configName, configValue }) => [configName, configValue ?? ''])),
      })),
    }));
  }

  describeGroups(request: Parameters<port.BrokerLink['describeGroups']>[0]): Promise<port.DescribeGroupsResponse> {
    return this.#calls.request(apiKeys.DescribeGroups, requests.DescribeGroups, request, (decoded) => ({
      throttleMs: throttleOf(decoded),
      groups: decoded.groups.map(({ errorCode, groupId, state, members }) => ({
        groupId,
        ...errorIn(errorCode),
        state,
        members: members.map(({ memberId, clientId, clientHost, memberAssignment }) => ({
          memberId,
          clientId,
          clientHost,
          assignment: memberAssignment ?? Buffer.alloc(0),
        })),
      })),
    }));
  }

  authorizedOperations({ topics }: Parameters<port.BrokerLink['authorizedOperations']>[0]) {
    return this.#calls.send(operationsProtocol(topics), (response) => response);
  }

  createAcls({ rules }: Parameters<port.BrokerLink['createAcls']>[0]): Promise<port.CreateAclsResponse> {
    return this.#calls.send(aclsProtocol(rules), (response) => response);
  }
}

function throttleOf({ clientSideThrottleTime = 0 }: Throttled): number {
  return clientSideThrottleTime;
}

function levelOf(isolation: port.FetchRequest['isolation']): number {
  return isolation === 'read_committed' ? READ_COMMITTED : READ_UNCOMMITTED;
}

function memberOf({ groupId, memberId, instanceId }: Omit<port.MemberRequest, 'generation'>) {
  return { groupId, memberId, groupInstanceId: instanceId };
}

/** kafkajs takes an empty list of topics for all topics, Kafka for none. */
function noTopics(request: Protocol<unknown>['request']): Protocol<unknown>['request'] {
  return { ...request, encode: async () => new Encoder().writeInt32(0).writeBoolean(false) };
}

type DecodedPartition = { partitionId: number; leader: number; replicas: readonly number[]; isr: readonly number[] };

/** Sorted by number; a partition's error adds nothing to its leader and replicas, so it is ignored. */
function inOrder(topic: string, partitions: readonly DecodedPartition[]): port.PartitionMetadata[] {
  const sorted = [...partitions].sort((one, other) => one.partitionId - other.partitionId);
  return sorted.map(({ partitionId, leader, replicas, isr }, at) => {
    if (partitionId !== at) throw new KafkaError('MALFORMED_RESPONSE', `topic ${topic} has no partition ${at}`);
    return { partition: partitionId, leader, replicas, inSync: isr };
  });
}

import type { CoordinatorMetadata, GroupDescription, GroupMember } from 'kafkajs';
import {
  api,
  type BrokerResponse,
  byTopic,
  type DecodedByTopic,
  flat,
  type PartitionResult,
  type Result,
  type TopicPartition,
} from './api.ts';
import {
  type ConsumerGroupDescribeResponse,
  decodeGroups,
  encodeGroups,
  type GroupReport,
} from './consumer-group-api.ts';
import { KafkaError } from './kafka-error.ts';
import { errorCodeOf, requireSuccess, safeInteger } from './kafkajs-errors.ts';
import type { Decoded } from './kafkajs-modules.ts';

/** The APIs of consumer groups. */

export interface OfGroup {
  readonly groupId: string;
}

export interface FindCoordinatorResponse extends BrokerResponse {
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
}

export interface LeaveGroupRequest extends OfGroup {
  readonly memberId: string;
  /** Static membership (KIP-345): a member that joins with it replaces the previous one. */
  readonly instanceId?: string | undefined;
}

export interface MemberRequest extends LeaveGroupRequest {
  readonly generation: number;
}

/** `memberId` is empty at the first join; the broker then answers MEMBER_ID_REQUIRED, with the ID to join with. */
export interface JoinGroupRequest extends LeaveGroupRequest {
  readonly sessionTimeoutMs: number;
  readonly rebalanceTimeoutMs: number;
  readonly protocolType: string;
  readonly protocols: readonly { readonly name: string; readonly metadata: Buffer }[];
}

/**
 * Its error is MEMBER_ID_REQUIRED, because `memberId` comes with it; every other one rejects. FOREIGN_MEMBER is not
 * Kafka's: a member of the new protocol (KIP-848) has converted the group, so it has no leader, and the broker assigns
 * the partitions.
 */
export interface JoinGroupResponse extends BrokerResponse, Result {
  readonly generation: number;
  readonly protocol: string;
  readonly leaderId: string;
  readonly memberId: string;
  /** All members; only for the leader. */
  readonly members: readonly {
    readonly memberId: string;
    readonly instanceId?: string | undefined;
    readonly metadata: Buffer;
  }[];
}

export interface SyncGroupRequest extends MemberRequest {
  /** From the leader: the assignment of each member; empty from the others. */
  readonly assignments: readonly { readonly memberId: string; readonly assignment: Buffer }[];
}

export interface SyncGroupResponse extends BrokerResponse {
  readonly assignment: Buffer;
}

export interface OffsetCommitRequest extends OfGroup {
  /** -1, with an empty member ID, for a commit from outside a group that is empty. */
  readonly generation: number;
  readonly memberId: string;
  /** `metadata`: a text that the group keeps with the offset, up to 4,096 bytes by default. */
  readonly partitions: readonly (TopicPartition & { readonly offset: number; readonly metadata?: string })[];
}

export interface OffsetCommitResponse extends BrokerResponse {
  readonly partitions: readonly PartitionResult[];
}

export interface OffsetFetchRequest extends OfGroup {
  readonly partitions: readonly TopicPartition[];
}

export interface OffsetFetchResponse extends BrokerResponse {
  /** `offset` is -1 where nothing was committed; `metadata` is empty where there is none. */
  readonly partitions: readonly (PartitionResult & { readonly offset: number; readonly metadata: string })[];
}

export interface DescribeGroupsResponse extends BrokerResponse {
  readonly groups: readonly GroupReport[];
}

/** As kafkajs decodes it. */
type DecodedJoin = Decoded &
  Readonly<Record<'groupProtocol' | 'leaderId' | 'memberId', string | null>> & {
    readonly generationId: number;
    readonly members: readonly (GroupMember & { readonly groupInstanceId?: string | null })[];
  };

type DecodedGroups = Decoded & { readonly groups: readonly (GroupDescription & { readonly errorCode: number })[] };

const group = ({ groupId }: OfGroup) => groupId;
const MEMBERS = { operation: 'Read', group } as const;

export const GROUP_APIS = {
  findCoordinator: api<OfGroup, FindCoordinatorResponse, Decoded & CoordinatorMetadata>({
    name: 'GroupCoordinator',
    key: 10,
    right: { operation: 'Describe', group },
    make: (request) => request,
    read: ({ coordinator }) => coordinator,
  }),
  joinGroup: api<JoinGroupRequest, JoinGroupResponse, DecodedJoin>({
    name: 'JoinGroup',
    key: 11,
    version: 5, // the first with static membership
    right: MEMBERS,
    make: (request) => ({
      ...memberOf(request),
      sessionTimeout: request.sessionTimeoutMs,
      rebalanceTimeout: request.rebalanceTimeoutMs,
      protocolType: request.protocolType,
      groupProtocols: request.protocols,
    }),
    returns: 'MEMBER_ID_REQUIRED',
    read: ({ errorCode = 0, generationId, groupProtocol, leaderId, memberId: joined, members }) => {
      if (errorCode === 0 && !leaderId)
        throw new KafkaError('FOREIGN_MEMBER', "a consumer of Kafka's new protocol is in the group");
      return {
        errorCode: errorCodeOf(errorCode),
        generation: generationId,
        protocol: groupProtocol ?? '',
        leaderId: leaderId ?? '',
        memberId: joined ?? '',
        members: members.map(({ memberId, groupInstanceId, memberMetadata }) => ({
          memberId,
          instanceId: groupInstanceId ?? undefined,
          metadata: memberMetadata,
        })),
      };
    },
  }),
  syncGroup: api<SyncGroupRequest, SyncGroupResponse, Decoded & { readonly memberAssignment: Buffer | null }>({
    name: 'SyncGroup',
    key: 14,
    right: MEMBERS,
    make: (request) => ({
      ...memberOf(request),
      generationId: request.generation,
      groupAssignment: request.assignments.map(({ memberId, assignment }) => ({
        memberId,
        memberAssignment: assignment,
      })),
    }),
    read: ({ memberAssignment }) => ({ assignment: memberAssignment ?? Buffer.alloc(0) }),
  }),
  heartbeat: api<MemberRequest, BrokerResponse>({
    name: 'Heartbeat',
    key: 12,
    right: MEMBERS,
    make: (request) => ({ ...memberOf(request), groupGenerationId: request.generation }),
    read: () => ({}),
  }),
  leaveGroup: api<LeaveGroupRequest, BrokerResponse, Decoded & { members?: readonly { errorCode: number }[] }>({
    name: 'LeaveGroup',
    key: 13,
    make: memberOf,
    read: ({ members = [] }) => {
      for (const { errorCode } of members) requireSuccess(errorCode);
      return {};
    },
  }),
  offsetCommit: api<
    OffsetCommitRequest,
    OffsetCommitResponse,
    DecodedByTopic<{ readonly partition: number; readonly errorCode: number }>
  >({
    name: 'OffsetCommit',
    key: 8,
    make: ({ groupId, generation, memberId, partitions }) => ({
      groupId,
      groupGenerationId: generation,
      memberId,
      topics: byTopic(partitions, ({ partition, offset, metadata = '' }) => ({
        partition,
        offset: String(offset),
        metadata,
      })),
    }),
    read: (decoded) => ({
      partitions: flat(decoded, ({ partition, errorCode }) => ({ partition, errorCode: errorCodeOf(errorCode) })),
    }),
  }),
  offsetFetch: api<
    OffsetFetchRequest,
    OffsetFetchResponse,
    DecodedByTopic<{ partition: number; errorCode: number; offset: string; metadata: string | null }>
  >({
    name: 'OffsetFetch',
    key: 9,
    make: ({ groupId, partitions }) => ({ groupId, topics: byTopic(partitions, ({ partition }) => ({ partition })) }),
    read: (decoded) => ({
      partitions: flat(decoded, ({ partition, errorCode, offset, metadata }) => ({
        partition,
        errorCode: errorCodeOf(errorCode),
        offset: safeInteger(offset),
        metadata: metadata ?? '',
      })),
    }),
  }),
  describeGroups: api<{ readonly groupIds: readonly string[] }, DescribeGroupsResponse, DecodedGroups>({
    name: 'DescribeGroups',
    key: 15,
    make: (request) => request,
    read: ({ groups }) => ({
      groups: groups.map(({ errorCode, groupId, state, protocol, members }) => ({
        groupId,
        protocol,
        errorCode: errorCodeOf(errorCode),
        state,
        members: members.map(({ memberId, clientId, clientHost, memberAssignment }) => ({
          memberId,
          clientId,
          clientHost,
          assignment: memberAssignment ?? Buffer.alloc(0),
        })),
      })),
    }),
  }),
  consumerGroupDescribe: api<{ readonly groupIds: readonly string[] }, ConsumerGroupDescribeResponse>({
    name: 'ConsumerGroupDescribe',
    key: 69,
    version: 1,
    isOptional: true,
    encode: encodeGroups,
    decode: decodeGroups,
  }),
};

function memberOf({ groupId, memberId, instanceId }: LeaveGroupRequest) {
  return { groupId, memberId, groupInstanceId: instanceId };
}

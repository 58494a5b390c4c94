import type { CoordinatorMetadata, GroupDescription, GroupMember } from 'kafkajs';
import {
  api,
  type BrokerResponse,
  byTopic,
  type DecodedByTopic,
  errorCodeOf,
  flat,
  type PartitionResult,
  type Result,
  requireSuccess,
  safeInteger,
  type TopicPartition,
} from './api.ts';
import { KafkaError } from './kafka-error.ts';
import { type Decoded, type Decoder, Encoder } from './kafkajs-modules.ts';

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

/** What a coordinator reports of a group, by either protocol. */
interface GroupReport extends Result {
  readonly groupId: string;
  /** Empty, Stable, PreparingRebalance, CompletingRebalance, Dead. */
  readonly state: string;
  /** The assigner; absent or empty while the members have not chosen one. */
  readonly protocol?: string;
  readonly members: readonly MemberDescription[];
}

interface MemberDescription {
  readonly memberId: string;
  readonly clientId: string;
  readonly clientHost: string;
  readonly assignment: Buffer;
}

/** Groups of Kafka's new protocol (KIP-848), which DescribeGroups does not show. kafkajs has no request of it. */
export interface ConsumerGroupDescribeResponse extends BrokerResponse {
  readonly groups: readonly ModernGroup[];
}

interface ModernGroup extends GroupReport {
  readonly members: readonly ModernMember[];
}

interface ModernMember extends MemberDescription {
  /** It takes part by the classic protocol, as workers do. */
  readonly isClassic: boolean;
}

const CLASSIC = 0;
const NO_TAGS = 0;
const UUID_BYTES = 16;

/**
 * In the compact format: each struct, the request's header included, ends with tagged fields; counts and lengths are
 * one more.
 */
function encodeGroups({ groupIds }: { readonly groupIds: readonly string[] }): Encoder {
  const encoder = new Encoder().writeInt8(NO_TAGS).writeUVarInt(groupIds.length + 1);
  for (const groupId of groupIds) encoder.writeUVarIntString(groupId);
  return encoder.writeBoolean(false).writeInt8(NO_TAGS);
}

/**
 * ```
 * response => throttle int32, [group]
 * group    => error int16, message string, ID string, state string, epoch int32, epoch of the assignment int32,
 *             assignor string, [member], operations int32
 * member   => ID string, instance string, rack string, epoch int32, client string, host string, [topic string],
 *             regex string, assignment, target assignment, kind int8
 * assignment => [topic ID, topic string, [partition int32]]
 * ```
 */
function decodeGroups(decoder: Decoder): ConsumerGroupDescribeResponse {
  decoder.readTaggedFields();
  return { throttleMs: decoder.readInt32(), groups: listOf(decoder, readGroup) };
}

function readGroup(decoder: Decoder): ModernGroup {
  const errorCode = errorCodeOf(decoder.readInt16());
  decoder.readUVarIntString();
  const [groupId = '', state = ''] = [textOf(decoder), textOf(decoder)];
  for (let epochs = 0; epochs < 2; epochs += 1) decoder.readInt32();
  decoder.readUVarIntString();
  const members = listOf(decoder, readMember);
  decoder.readInt32();
  decoder.readTaggedFields();
  return { groupId, state, errorCode, members };
}

function readMember(decoder: Decoder): ModernMember {
  const memberId = textOf(decoder);
  for (let names = 0; names < 2; names += 1) decoder.readUVarIntString();
  decoder.readInt32();
  const [clientId = '', clientHost = ''] = [textOf(decoder), textOf(decoder)];
  listOf(decoder, textOf);
  decoder.readUVarIntString();
  for (let assignments = 0; assignments < 2; assignments += 1) skipAssignment(decoder);
  const [kind] = decoder.readBytes(1);
  decoder.readTaggedFields();
  return { memberId, clientId, clientHost, assignment: Buffer.alloc(0), isClassic: kind === CLASSIC };
}

function skipAssignment(decoder: Decoder): void {
  listOf(decoder, () => {
    decoder.readBytes(UUID_BYTES);
    decoder.readUVarIntString();
    listOf(decoder, () => decoder.readInt32());
    decoder.readTaggedFields();
  });
  decoder.readTaggedFields();
}

function textOf(decoder: Decoder): string {
  return decoder.readUVarIntString() ?? '';
}

function listOf<T>(decoder: Decoder, read: (decoder: Decoder) => T): T[] {
  return decoder.readUVarIntArray(read) ?? [];
}

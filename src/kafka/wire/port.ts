/**
 * The interface to a Kafka client library: a connection to one broker, with the protocol calls that are used here.
 * No retries, no deadlines, no topology: `cluster.ts` adds those, over any library and over the simulated brokers of the
 * tests.
 *
 * A call rejects with a KafkaError when the connection fails (`CONNECTION_LOST`), when the response can't be decoded
 * (`MALFORMED_RESPONSE`), or with Kafka's name of the error if the whole response is one. Errors of a single topic or
 * partition are in the response as `errorCode`. Offsets are integers below 2^53; an implementation rejects larger ones as
 * MALFORMED_RESPONSE. Calls may be pipelined; a broker serves the calls of one connection in order.
 */

import type { KafkaErrorCode } from './kafka-error.ts';

export interface BrokerAddress {
  readonly host: string;
  readonly port: number;
}

/** Opens connections. */
export interface Dialer {
  /**
   * Connects, negotiates versions and logs in. Rejects with UNREACHABLE or LOGIN_REFUSED, or with CLOSED when the signal
   * aborts, leaving no socket behind.
   */
  dial(address: BrokerAddress, signal: AbortSignal): Promise<BrokerLink>;
}

/** One connection to one broker. */
export interface BrokerLink {
  /** Resolves when the connection has ended, whichever side ended it; pending calls have been rejected by then. */
  readonly ended: Promise<void>;
  /** Closes it immediately; pending calls are rejected with CONNECTION_LOST. */
  close(): void;

  metadata(request: { readonly topics: readonly string[] | 'all' }): Promise<MetadataResponse>;
  produce(request: ProduceRequest): Promise<ProduceResponse>;
  fetch(request: FetchRequest): Promise<FetchResponse>;
  /** `timestampMs`: -1 for the end (of the log, or of what is committed), -2 for the start, else the first record not older. */
  listOffsets(request: ListOffsetsRequest): Promise<ListOffsetsResponse>;

  findCoordinator(request: { readonly groupId: string }): Promise<FindCoordinatorResponse>;
  joinGroup(request: JoinGroupRequest): Promise<JoinGroupResponse>;
  syncGroup(request: SyncGroupRequest): Promise<SyncGroupResponse>;
  heartbeat(request: MemberRequest): Promise<BrokerResponse>;
  leaveGroup(request: Omit<MemberRequest, 'generation'>): Promise<BrokerResponse>;
  commitOffsets(request: OffsetCommitRequest): Promise<OffsetCommitResponse>;
  fetchOffsets(request: OffsetFetchRequest): Promise<OffsetFetchResponse>;

  createTopics(request: CreateTopicsRequest): Promise<CreateTopicsResponse>;
  describeConfigs(request: { readonly topics: readonly string[] }): Promise<DescribeConfigsResponse>;
  describeGroups(request: { readonly groupIds: readonly string[] }): Promise<DescribeGroupsResponse>;

  /** The operations that the user of this connection may perform on each topic. */
  authorizedOperations(request: { readonly topics: readonly string[] }): Promise<AuthorizedOperationsResponse>;
  /** Creates the rules; one that already exists is not an error. */
  createAcls(request: { readonly rules: readonly AclRule[] }): Promise<CreateAclsResponse>;
}

export interface BrokerResponse {
  /** For how long the broker accepts no further request of this client (KIP-219); 0 for no throttle. */
  readonly throttleMs: number;
}

export interface MetadataResponse extends BrokerResponse {
  readonly clusterId: string;
  readonly controllerId: number;
  readonly brokers: readonly (BrokerAddress & { readonly nodeId: number })[];
  readonly topics: readonly TopicMetadata[];
}

export interface TopicMetadata {
  readonly name: string;
  /** UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION, LEADER_NOT_AVAILABLE … */
  readonly errorCode?: KafkaErrorCode;
  /** In the order of their numbers, from 0. */
  readonly partitions: readonly PartitionMetadata[];
}

export interface PartitionMetadata {
  readonly partition: number;
  /** The node ID of the leader; -1 for none. */
  readonly leader: number;
  readonly replicas: readonly number[];
  readonly inSync: readonly number[];
}

export interface ProduceRequest {
  readonly topic: string;
  readonly partition: number;
  /** One record batch of format 2; the broker sets its base offset. */
  readonly batch: Buffer;
  /** Always -1, all in-sync replicas: stated here so that a weaker value is a visible change. */
  readonly acks: -1;
  /** How long the broker may wait for its followers before it answers REQUEST_TIMED_OUT. */
  readonly timeoutMs: number;
}

export interface ProduceResponse extends BrokerResponse {
  readonly errorCode?: KafkaErrorCode;
  readonly baseOffset: number;
  /** By the broker's clock if the topic has LogAppendTime, else -1. */
  readonly appendedAtMs: number;
  readonly logStartOffset: number;
}

export interface FetchRequest {
  /** How long the broker may hold the call while there are no records. */
  readonly maxWaitMs: number;
  readonly maxBytes: number;
  readonly isolation: 'read_committed' | 'read_uncommitted';
  readonly partitions: readonly FetchPosition[];
}

export interface FetchPosition {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly maxBytes: number;
}

export interface FetchResponse extends BrokerResponse {
  readonly partitions: readonly FetchedPartition[];
}

export interface FetchedPartition {
  readonly topic: string;
  readonly partition: number;
  /** OFFSET_OUT_OF_RANGE, NOT_LEADER_FOR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION … */
  readonly errorCode?: KafkaErrorCode;
  /** The offset after the last record that all in-sync replicas have. */
  readonly highWatermark: number;
  /** Below it no transaction is open. */
  readonly lastStableOffset: number;
  readonly logStartOffset: number;
  /** Aborted transactions: their producer and first offset. */
  readonly aborted: readonly { readonly producerId: bigint; readonly firstOffset: number }[];
  /** Record batches as in the log: the first may begin below the requested offset, the last may be cut off. */
  readonly records: Buffer;
}

export interface ListOffsetsRequest {
  readonly isolation: 'read_committed' | 'read_uncommitted';
  readonly partitions: readonly { readonly topic: string; readonly partition: number; readonly timestampMs: number }[];
}

export interface ListOffsetsResponse extends BrokerResponse {
  /** `offset` is -1 where no record is that recent. */
  readonly partitions: readonly {
    readonly topic: string;
    readonly partition: number;
    readonly errorCode?: KafkaErrorCode;
    readonly offset: number;
  }[];
}

export interface FindCoordinatorResponse extends BrokerResponse {
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
}

export interface JoinGroupRequest {
  readonly groupId: string;
  /** Empty at the first join; the broker then answers MEMBER_ID_REQUIRED, with the ID to join with in `memberId`. */
  readonly memberId: string;
  /** Static membership (KIP-345): a member that joins with it replaces the previous one. */
  readonly instanceId?: string | undefined;
  readonly sessionTimeoutMs: number;
  readonly rebalanceTimeoutMs: number;
  readonly protocolType: string;
  readonly protocols: readonly { readonly name: string; readonly metadata: Buffer }[];
}

export interface JoinGroupResponse extends BrokerResponse {
  /** MEMBER_ID_REQUIRED is returned here, because `memberId` comes with it; every other error rejects. */
  readonly errorCode?: KafkaErrorCode;
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

export interface MemberRequest {
  readonly groupId: string;
  readonly generation: number;
  readonly memberId: string;
  readonly instanceId?: string | undefined;
}

export interface SyncGroupRequest extends MemberRequest {
  /** From the leader: the assignment of each member; empty from the others. */
  readonly assignments: readonly { readonly memberId: string; readonly assignment: Buffer }[];
}

export interface SyncGroupResponse extends BrokerResponse {
  readonly assignment: Buffer;
}

export interface OffsetCommitRequest {
  readonly groupId: string;
  /** -1, with an empty member ID, for a commit from outside a group that is empty. */
  readonly generation: number;
  readonly memberId: string;
  readonly partitions: readonly {
    readonly topic: string;
    readonly partition: number;
    readonly offset: number;
    /** A text that the group keeps with the offset, up to 4,096 bytes by default. */
    readonly metadata?: string;
  }[];
}

export interface OffsetCommitResponse extends BrokerResponse {
  readonly partitions: readonly {
    readonly topic: string;
    readonly partition: number;
    readonly errorCode?: KafkaErrorCode;
  }[];
}

export interface OffsetFetchRequest {
  readonly groupId: string;
  readonly partitions: readonly { readonly topic: string; readonly partition: number }[];
}

export interface OffsetFetchResponse extends BrokerResponse {
  /** `offset` is -1 where nothing was committed; `metadata` is empty where there is none. */
  readonly partitions: readonly {
    readonly topic: string;
    readonly partition: number;
    readonly errorCode?: KafkaErrorCode;
    readonly offset: number;
    readonly metadata: string;
  }[];
}

export interface CreateTopicsRequest {
  readonly topics: readonly {
    readonly name: string;
    readonly partitions: number;
    readonly replicas: number;
    readonly configs: Readonly<Record<string, string>>;
  }[];
  readonly timeoutMs: number;
}

export interface CreateTopicsResponse extends BrokerResponse {
  readonly topics: readonly { readonly name: string; readonly errorCode?: KafkaErrorCode; readonly message?: string }[];
}

export interface DescribeConfigsResponse extends BrokerResponse {
  readonly topics: readonly {
    readonly name: string;
    readonly errorCode?: KafkaErrorCode;
    readonly configs: ReadonlyMap<string, string>;
  }[];
}

export interface DescribeGroupsResponse extends BrokerResponse {
  readonly groups: readonly {
    readonly groupId: string;
    readonly errorCode?: KafkaErrorCode;
    /** Empty, Stable, PreparingRebalance, CompletingRebalance, Dead. */
    readonly state: string;
    readonly members: readonly {
      readonly memberId: string;
      readonly instanceId?: string | undefined;
      readonly clientId: string;
      readonly clientHost: string;
      readonly assignment: Buffer;
    }[];
  }[];
}

export type Operation = 'Read' | 'Write' | 'Create' | 'Describe' | 'DescribeConfigs';

export interface AuthorizedOperationsResponse extends BrokerResponse {
  /** The allowed ones of the operations above; all of them where the brokers have no authorizer. */
  readonly topics: readonly {
    readonly name: string;
    readonly errorCode?: KafkaErrorCode;
    readonly operations: ReadonlySet<Operation>;
  }[];
}

/** Allows one operation. */
export interface AclRule {
  readonly resource: 'topic' | 'group';
  /** prefixed: all whose names begin with `name`. */
  readonly pattern: 'literal' | 'prefixed';
  readonly name: string;
  /** Such as `User:name`. */
  readonly principal: string;
  /** The client's address; `*` for any. */
  readonly host: string;
  readonly operation: Operation;
}

export interface CreateAclsResponse extends BrokerResponse {
  /** In the order of the rules. */
  readonly rules: readonly { readonly errorCode?: KafkaErrorCode; readonly message?: string }[];
}

import apiKeysModule from 'kafkajs/src/protocol/requests/apiKeys.js';
import requestsModule from 'kafkajs/src/protocol/requests/index.js';
import produceResponseModule from 'kafkajs/src/protocol/requests/produce/v7/response.js';
import { type ApiVersions, type Protocol, typed } from './kafkajs-modules.ts';

export const produceResponse = typed<Protocol<DecodedProduce>['response']>(produceResponseModule);

/** Milliseconds, in responses of versions whose throttle the client has to respect itself. */
export interface Throttled {
  readonly clientSideThrottleTime?: number;
}

export interface DecodedProduce extends Throttled {
  readonly topics: readonly {
    readonly topicName: string;
    readonly partitions: readonly {
      readonly partition: number;
      readonly errorCode: number;
      readonly baseOffset: string;
      readonly logAppendTime: string;
      readonly logStartOffset: string;
    }[];
  }[];
}

interface TopicsWith<P> {
  readonly topics: readonly { readonly topic: string; readonly partitions: readonly P[] }[];
}

interface ResponsesWith<P> extends Throttled {
  readonly responses: readonly { readonly topic: string; readonly partitions: readonly P[] }[];
}

interface Failing extends Throttled {
  readonly errorCode: number;
}

interface Member {
  readonly groupId: string;
  readonly memberId: string;
  readonly groupInstanceId: string | undefined;
}

export type Make<Options, Decoded> = (options: Options) => Protocol<Decoded>;

export interface Definition<Options, Decoded> {
  readonly versions: readonly string[];
  protocol(of: { readonly version: number }): Make<Options, Decoded>;
}

interface Requests {
  readonly ApiVersions: Definition<void, Failing & { readonly apiVersions: readonly ApiVersion[] }>;
  readonly Fetch: Definition<FetchOptions, never>;
  readonly Metadata: Definition<{ topics: readonly string[]; allowAutoTopicCreation: boolean }, DecodedMetadata>;
  readonly ListOffsets: Definition<
    { isolationLevel: number } & TopicsWith<{ partition: number; timestamp: number }>,
    ResponsesWith<{ partition: number; errorCode: number; offset: string }>
  >;
  readonly GroupCoordinator: Definition<
    { groupId: string },
    Failing & { readonly coordinator: { readonly nodeId: number; readonly host: string; readonly port: number } }
  >;
  readonly JoinGroup: Definition<JoinOptions, DecodedJoin>;
  readonly SyncGroup: Definition<
    Member & {
      generationId: number;
      groupAssignment: readonly { readonly memberId: string; readonly memberAssignment: Buffer }[];
    },
    Failing & { readonly memberAssignment: Buffer | null }
  >;
  readonly Heartbeat: Definition<Member & { groupGenerationId: number }, Failing>;
  readonly LeaveGroup: Definition<Member, Failing & { readonly members?: readonly Failing[] }>;
  readonly OffsetCommit: Definition<
    { groupId: string; groupGenerationId: number; memberId: string } & TopicsWith<{
      partition: number;
      offset: string;
      metadata: string;
    }>,
    ResponsesWith<{ partition: number; errorCode: number }>
  >;
  readonly OffsetFetch: Definition<
    { groupId: string } & TopicsWith<{ partition: number }>,
    ResponsesWith<{ partition: number; errorCode: number; offset: string; metadata: string | null }> & Failing
  >;
  readonly CreateTopics: Definition<
    { topics: readonly NewTopic[]; validateOnly: boolean; timeout: number },
    Throttled & {
      readonly topicErrors: readonly {
        readonly topic: string;
        readonly errorCode: number;
        readonly errorMessage?: string | null;
      }[];
    }
  >;
  readonly DescribeConfigs: Definition<
    { resources: readonly { readonly type: number; readonly name: string }[] },
    Throttled & { readonly resources: readonly DecodedResource[] }
  >;
  readonly DescribeGroups: Definition<
    { groupIds: readonly string[] },
    Throttled & { readonly groups: readonly DecodedGroup[] }
  >;
}

interface ApiVersion {
  readonly apiKey: number;
  readonly minVersion: number;
  readonly maxVersion: number;
}

interface FetchOptions
  extends TopicsWith<{ readonly partition: number; readonly fetchOffset: string; readonly maxBytes: number }> {
  readonly maxWaitTime: number;
  readonly minBytes: number;
  readonly maxBytes: number;
  readonly isolationLevel: number;
}

interface DecodedMetadata extends Throttled {
  readonly brokers: readonly { readonly nodeId: number; readonly host: string; readonly port: number }[];
  readonly clusterId: string | null;
  readonly controllerId: number;
  readonly topicMetadata: readonly {
    readonly topicErrorCode: number;
    readonly topic: string;
    readonly partitionMetadata: readonly {
      readonly partitionId: number;
      readonly leader: number;
      readonly replicas: readonly number[];
      readonly isr: readonly number[];
    }[];
  }[];
}

interface JoinOptions extends Member {
  readonly sessionTimeout: number;
  readonly rebalanceTimeout: number;
  readonly protocolType: string;
  readonly groupProtocols: readonly { readonly name: string; readonly metadata: Buffer }[];
}

interface DecodedJoin extends Failing {
  readonly generationId: number;
  readonly groupProtocol: string | null;
  readonly leaderId: string | null;
  readonly memberId: string | null;
  readonly members: readonly {
    readonly memberId: string;
    readonly groupInstanceId?: string | null;
    readonly memberMetadata: Buffer;
  }[];
}

interface NewTopic {
  readonly topic: string;
  readonly numPartitions: number;
  readonly replicationFactor: number;
  readonly configEntries: readonly { readonly name: string; readonly value: string }[];
}

interface DecodedResource {
  readonly errorCode: number;
  readonly resourceName: string;
  readonly configEntries: readonly { readonly configName: string; readonly configValue: string | null }[];
}

interface DecodedGroup {
  readonly errorCode: number;
  readonly groupId: string;
  readonly state: string;
  readonly members: readonly {
    readonly memberId: string;
    readonly clientId: string;
    readonly clientHost: string;
    readonly memberAssignment: Buffer | null;
  }[];
}

export const { requests, lookup } = typed<{
  readonly requests: Requests;
  /** The newest version that both sides support. */
  lookup(versions: ApiVersions): <O, T>(apiKey: number, definition: Definition<O, T>) => Make<O, T>;
}>(requestsModule);

export const apiKeys = typed<Readonly<Record<keyof Requests | 'Produce' | 'CreateAcls', number>>>(apiKeysModule);

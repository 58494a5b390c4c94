import type { Socket } from 'node:net';
import type { ConnectionOptions as TlsOptions } from 'node:tls';
import type { ISocketFactory, KafkaConfig } from 'kafkajs';
import connectionModule from 'kafkajs/src/network/connection.js';
import socketFactoryModule from 'kafkajs/src/network/socketFactory.js';
import decoderModule from 'kafkajs/src/protocol/decoder.js';
import encoderModule from 'kafkajs/src/protocol/encoder.js';
import errorModule from 'kafkajs/src/protocol/error.js';
import apiKeysModule from 'kafkajs/src/protocol/requests/apiKeys.js';
import requestsModule from 'kafkajs/src/protocol/requests/index.js';
import produceResponseModule from 'kafkajs/src/protocol/requests/produce/v7/response.js';

/**
 * The internal modules of kafkajs 2.2.4 that are used here, declared with the few members that are used. The version is
 * pinned, so they stay where they are. None of them is changed. They are imported statically, so that bundlers find them.
 */
const typed = <T>(module: unknown): T => module as T;

/** A request of kafkajs, and the decoder of its response. */
export interface Protocol<Decoded> {
  readonly request: {
    readonly apiKey: number;
    readonly apiVersion: number;
    readonly apiName: string;
    encode(): Promise<Encoder>;
  };
  readonly response: { decode(payload: Buffer): Promise<Decoded> };
}

export interface Encoder {
  writeInt8(value: number): this;
  writeInt16(value: number): this;
  writeInt32(value: number): this;
  writeBoolean(value: boolean): this;
  writeString(value: string | null): this;
  writeBytes(value: Buffer): this;
}

export const Encoder = typed<new (initialBytes?: number) => Encoder>(encoderModule);

export interface Decoder {
  readInt16(): number;
  readInt32(): number;
  readInt64(): bigint;
  readString(): string | null;
  /** A view; shorter than requested at the end of the response. */
  readBytes(bytes: number): Buffer;
  readArray<T>(read: (decoder: Decoder) => T): T[];
}

export const Decoder = typed<new (bytes: Buffer) => Decoder>(decoderModule);

export interface InnerLogger {
  namespace(name: string): InnerLogger;
  debug(message: string, fields?: object): void;
  info(message: string, fields?: object): void;
  warn(message: string, fields?: object): void;
  error(message: string, fields?: object): void;
}

/** What a connection needs of the table of its pending requests. */
export interface RequestQueue {
  push(pushed: { readonly entry: Entry; readonly sendRequest: () => void }): void;
  fulfillRequest(answer: { readonly correlationId: number; readonly payload: Buffer; readonly size: number }): void;
  rejectAll(error: Error): void;
  waitForPendingRequests(): Promise<void>;
  maybeThrottle(throttleMs: number | undefined): void;
  scheduleRequestTimeoutCheck(): void;
  destroy(): void;
}

export interface Entry {
  readonly correlationId: number;
  resolve(answer: { correlationId: number; entry: Entry; size: number; payload: Buffer }): void;
  reject(error: Error): void;
}

interface ConnectionOptions {
  readonly host: string;
  readonly port: number;
  readonly logger: InnerLogger;
  readonly socketFactory: ISocketFactory;
  readonly ssl: TlsOptions | null;
  readonly sasl: KafkaConfig['sasl'] | null;
  readonly clientId?: string;
  readonly connectionTimeout: number;
  readonly requestTimeout: number;
  readonly enforceRequestTimeout: false;
}

export type ApiVersions = Readonly<Record<number, { readonly minVersion: number; readonly maxVersion: number }>>;

declare class KafkajsConnection {
  requestQueue: RequestQueue;
  sasl: KafkaConfig['sasl'] | null;
  socket: Socket | undefined;
  /** Milliseconds, as an object that prints as an integer; 0 for a session that does not expire. */
  readonly sessionLifetime: { toString(): string };
  /** How many milliseconds before its end a session is renewed. */
  reauthenticationThreshold: number;
  constructor(options: ConnectionOptions);
  connect(): Promise<unknown>;
  setVersions(versions: ApiVersions): void;
  setSupportAuthenticationProtocol(isSupported: boolean): void;
  isAuthenticated(): boolean;
  authenticate(): Promise<void>;
  /** Writes a request; logs in again first if the session is about to end. */
  send<T>(call: {
    readonly request: Protocol<T>['request'];
    readonly response: { decode(payload: Buffer): Promise<T>; parse(decoded: T): Promise<T> };
    readonly logResponseError: boolean;
  }): Promise<T>;
  protected processData(chunk: Buffer): void;
}

export const Connection = typed<typeof KafkajsConnection>(connectionModule);

/** Sockets as kafkajs opens them: TLS with the host as server name unless that is an address. */
export const createSocketFactory = typed<() => ISocketFactory>(socketFactoryModule);

export const { errorCodes } = typed<{
  readonly errorCodes: readonly { readonly type: string; readonly code: number; readonly message: string }[];
}>(errorModule);

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
    }>,
    ResponsesWith<{ partition: number; errorCode: number }>
  >;
  readonly OffsetFetch: Definition<
    { groupId: string } & TopicsWith<{ partition: number }>,
    ResponsesWith<{ partition: number; errorCode: number; offset: string }> & Failing
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

import type { BrokerMetadata, DescribeConfigResponse, PartitionMetadata as KafkajsPartition } from 'kafkajs';
import { api, type BrokerResponse, errorCodeOf, type Result } from './api.ts';
import { type Decoded, type Decoder, Encoder } from './kafkajs-modules.ts';

/** The APIs of the cluster, its topics, and the rights on them. */

export interface MetadataResponse extends BrokerResponse {
  readonly clusterId: string;
  readonly controllerId: number;
  readonly brokers: readonly { readonly nodeId: number; readonly host: string; readonly port: number }[];
  readonly topics: readonly TopicMetadata[];
}

/**
 * Its error: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION, LEADER_NOT_AVAILABLE …,
 * or PARTITIONS_MISSING, which is ours: the broker does not know all partitions of the topic, as when it is being
 * created.
 */
export interface TopicMetadata extends Result {
  readonly name: string;
  /** In the order of their numbers, from 0 without a gap. */
  readonly partitions: readonly PartitionMetadata[];
}

interface PartitionMetadata {
  readonly partition: number;
  /** The node ID of the leader; -1 for none. */
  readonly leader: number;
  readonly replicas: readonly number[];
  readonly inSync: readonly number[];
}

export interface CreateTopicsRequest {
  readonly topics: readonly {
    readonly name: string;
    readonly partitions: number;
    readonly replicas: number;
    readonly configs: Readonly<Record<string, string>>;
  }[];
  readonly timeoutMs: number;
  /** Nothing is created; the response says what would happen. */
  readonly validateOnly?: boolean;
}

export interface CreateTopicsResponse extends BrokerResponse {
  readonly topics: readonly (Result & { readonly name: string; readonly message?: string | undefined })[];
}

export interface DescribeConfigsResponse extends BrokerResponse {
  readonly topics: readonly (Result & { readonly name: string; readonly configs: ReadonlyMap<string, string> })[];
}

export interface OfTopics {
  readonly topics: readonly string[];
}

const OPERATIONS = { Read: 3, Write: 4, Create: 5, Describe: 8, DescribeConfigs: 10 } as const;
export type AclOperation = keyof typeof OPERATIONS;

export interface AuthorizedOperationsResponse extends BrokerResponse {
  /** The allowed ones of the operations above; all of them where the brokers have no authorizer. */
  readonly topics: readonly (Result & { readonly name: string; readonly operations: ReadonlySet<AclOperation> })[];
}

const RESOURCES = { topic: 2, group: 3 } as const;
const PATTERNS = { literal: 3, prefixed: 4 } as const;
const ALLOW = 3;

/** Allows one operation. */
export interface AclRule {
  readonly resource: keyof typeof RESOURCES;
  /** prefixed: all whose names begin with `name`. */
  readonly pattern: keyof typeof PATTERNS;
  readonly name: string;
  /** Such as `User:name`. */
  readonly principal: string;
  /** The client's address; `*` for any. */
  readonly host: string;
  readonly operation: AclOperation;
}

export interface CreateAclsResponse extends BrokerResponse {
  /** In the order of the rules. */
  readonly rules: readonly (Result & { readonly message?: string | undefined })[];
}

/** As kafkajs decodes it. */
type DecodedMetadata = Decoded & BrokerMetadata & { readonly clusterId: string | null; readonly controllerId: number };

interface DecodedResult {
  readonly errorCode: number;
  readonly errorMessage?: string | null;
}

interface CreationResponse extends Decoded {
  readonly topicErrors: readonly (DecodedResult & { readonly topic: string })[];
}

interface CreatedAcls extends Decoded {
  readonly creationResponses: readonly DecodedResult[];
}

export const TOPIC_APIS = {
  metadata: api<{ readonly topics: readonly string[] | 'all' }, MetadataResponse, DecodedMetadata>({
    name: 'Metadata',
    key: 3,
    right: { operation: 'Describe', topics: (_, { topics }) => topics },
    make: ({ topics }) => ({ topics: topics === 'all' ? [] : topics, allowAutoTopicCreation: false }),
    // kafkajs takes an empty list of topics for all topics, Kafka for none
    encode: ({ topics }) => (topics.length === 0 ? new Encoder().writeInt32(0).writeBoolean(false) : undefined),
    read: ({ clusterId, controllerId, brokers, topicMetadata }) => ({
      clusterId: clusterId ?? '',
      controllerId,
      brokers: brokers.map(({ nodeId, host, port }) => ({ nodeId, host, port })),
      topics: topicMetadata.map(({ topicErrorCode, topic, partitionMetadata }) => {
        const partitions = inOrder(partitionMetadata);
        const errorCode = errorCodeOf(topicErrorCode) ?? (partitions === undefined ? 'PARTITIONS_MISSING' : undefined);
        return { name: topic, errorCode, partitions: partitions ?? [] };
      }),
    }),
  }),
  createTopics: api<CreateTopicsRequest, CreateTopicsResponse, CreationResponse>({
    name: 'CreateTopics',
    key: 19,
    make: ({ topics, timeoutMs, validateOnly = false }) => ({
      validateOnly,
      timeout: timeoutMs,
      topics: topics.map(({ name, partitions, replicas, configs }) => ({
        topic: name,
        numPartitions: partitions,
        replicationFactor: replicas,
        configEntries: Object.entries(configs).map(([key, value]) => ({ name: key, value })),
      })),
    }),
    read: ({ topicErrors }) => ({
      topics: topicErrors.map(({ topic, errorCode, errorMessage }) => ({
        name: topic,
        errorCode: errorCodeOf(errorCode),
        message: errorMessage ?? undefined,
      })),
    }),
  }),
  describeConfigs: api<OfTopics, DescribeConfigsResponse, Decoded & DescribeConfigResponse>({
    name: 'DescribeConfigs',
    key: 32,
    make: ({ topics }) => ({ resources: topics.map((name) => ({ type: RESOURCES.topic, name })) }),
    read: ({ resources }) => ({
      topics: resources.map(({ errorCode, resourceName, configEntries }) => ({
        name: resourceName,
        errorCode: errorCodeOf(errorCode),
        // One without a value is one that the broker does not tell: an empty text is a value, and means something else.
        configs: new Map(
          configEntries.flatMap(({ configName, configValue: value }) => (value === null ? [] : [[configName, value]])),
        ),
      })),
    }),
  }),
  /**
   * The operations that the user of this connection may perform on each topic: kafkajs' metadata does not request them.
   */
  authorizedOperations: api<OfTopics, AuthorizedOperationsResponse>({
    name: 'Metadata',
    key: 3,
    version: 8,
    isOptional: true,
    encode: encodeMetadata,
    decode: decodeOperations,
  }),
  /** Creates the rules; one that already exists is not an error. */
  createAcls: api<{ readonly rules: readonly AclRule[] }, CreateAclsResponse, CreatedAcls>({
    name: 'CreateAcls',
    key: 30,
    version: 1,
    isOptional: true,
    make: ({ rules }) => ({
      creations: rules.map(({ resource, name, pattern, principal, host, operation }) => ({
        resourceType: RESOURCES[resource],
        resourceName: name,
        resourcePatternType: PATTERNS[pattern],
        principal,
        host,
        operation: OPERATIONS[operation],
        permissionType: ALLOW,
      })),
    }),
    read: ({ creationResponses }) => ({
      rules: creationResponses.map(({ errorCode, errorMessage }) => ({
        errorCode: errorCodeOf(errorCode),
        message: errorMessage ?? undefined,
      })),
    }),
  }),
};

/**
 * Sorted by number; undefined if a number is missing, or there twice: that is an error of this topic, and not of the
 * others in the response. A partition's error adds nothing to its leader and replicas, so it is ignored.
 */
function inOrder(partitions: readonly KafkajsPartition[]): PartitionMetadata[] | undefined {
  const sorted = [...partitions].sort((one, other) => one.partitionId - other.partitionId);
  if (!sorted.every(({ partitionId }, at) => partitionId === at)) return undefined;
  return sorted.map(({ partitionId, leader, replicas, isr }) => {
    return { partition: partitionId, leader, replicas, inSync: isr };
  });
}

/** Request => [topic string], may create boolean, cluster's operations boolean, topics' operations boolean. */
function encodeMetadata({ topics }: OfTopics): Encoder {
  const encoder = new Encoder().writeInt32(topics.length);
  for (const topic of topics) encoder.writeString(topic);
  return encoder.writeBoolean(false).writeBoolean(false).writeBoolean(true);
}

/**
 * ```
 * response  => throttle int32, [broker], cluster ID string, controller int32, [topic], cluster's operations int32
 * broker    => node int32, host string, port int32, rack string
 * topic     => error int16, name string, internal boolean, [partition], operations int32
 * partition => error int16, number int32, leader int32, epoch int32, [replica int32], [in sync int32], [offline int32]
 * ```
 */
function decodeOperations(decoder: Decoder): AuthorizedOperationsResponse {
  const throttleMs = decoder.readInt32();
  decoder.readArray(skipBroker);
  decoder.readString();
  decoder.readInt32();
  return { throttleMs, topics: decoder.readArray(readOperations) };
}

function skipBroker(decoder: Decoder): void {
  decoder.readInt32();
  decoder.readString();
  decoder.readInt32();
  decoder.readString();
}

function readOperations(decoder: Decoder): AuthorizedOperationsResponse['topics'][number] {
  const errorCode = errorCodeOf(decoder.readInt16());
  const name = decoder.readString() ?? '';
  decoder.readBytes(1);
  decoder.readArray(skipPartition);
  return { name, errorCode, operations: operationsIn(decoder.readInt32()) };
}

function skipPartition(decoder: Decoder): void {
  decoder.readInt16();
  for (let field = 0; field < 3; field += 1) decoder.readInt32();
  for (let list = 0; list < 3; list += 1) decoder.readArray(() => decoder.readInt32());
}

/** One bit for each operation. */
function operationsIn(bits: number): ReadonlySet<AclOperation> {
  const names = Object.keys(OPERATIONS) as AclOperation[];
  return new Set(names.filter((name) => (bits & (1 << OPERATIONS[name])) !== 0));
}

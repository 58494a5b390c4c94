import { errorIn } from './kafkajs-errors.ts';
import { Decoder, Encoder, type Protocol } from './kafkajs-modules.ts';
import { apiKeys } from './kafkajs-requests.ts';
import type { AclRule, AuthorizedOperationsResponse, CreateAclsResponse, Operation } from './port.ts';

/** Metadata 8 and CreateAcls 1: kafkajs' metadata does not request authorized operations. Kafka 2.3 has both. */

const METADATA_VERSION = 8;
const ACLS_VERSION = 1;
const RESOURCES = { topic: 2, group: 3 } as const;
const PATTERNS = { literal: 3, prefixed: 4 } as const;
const OPERATIONS: Readonly<Record<Operation, number>> = {
  Read: 3,
  Write: 4,
  Create: 5,
  Describe: 8,
  DescribeConfigs: 10,
};
const ALLOW = 3;

/**
 * ```
 * request   => [topic string], may create boolean, cluster's operations boolean, topics' operations boolean
 * response  => throttle int32, [broker], cluster ID string, controller int32, [topic], cluster's operations int32
 * broker    => node int32, host string, port int32, rack string
 * topic     => error int16, name string, internal boolean, [partition], operations int32
 * partition => error int16, number int32, leader int32, epoch int32, [replica int32], [in sync int32], [offline int32]
 * ```
 */
export function operationsProtocol(topics: readonly string[]): Protocol<AuthorizedOperationsResponse> {
  const encode = async () => {
    const encoder = new Encoder().writeInt32(topics.length);
    for (const topic of topics) encoder.writeString(topic);
    return encoder.writeBoolean(false).writeBoolean(false).writeBoolean(true);
  };
  const decode = async (payload: Buffer) => {
    const decoder = new Decoder(payload);
    const throttleMs = decoder.readInt32();
    decoder.readArray(skipBroker);
    decoder.readString();
    decoder.readInt32();
    return { throttleMs, topics: decoder.readArray(readTopic) };
  };
  const request = { apiKey: apiKeys.Metadata, apiVersion: METADATA_VERSION, apiName: 'Metadata', encode };
  return { request, response: { decode } };
}

function skipBroker(decoder: Decoder): void {
  decoder.readInt32();
  decoder.readString();
  decoder.readInt32();
  decoder.readString();
}

function readTopic(decoder: Decoder): AuthorizedOperationsResponse['topics'][number] {
  const error = errorIn(decoder.readInt16());
  const name = decoder.readString() ?? '';
  decoder.readBytes(1);
  decoder.readArray(skipPartition);
  return { name, ...error, operations: operationsIn(decoder.readInt32()) };
}

function skipPartition(decoder: Decoder): void {
  decoder.readInt16();
  for (let field = 0; field < 3; field += 1) decoder.readInt32();
  for (let list = 0; list < 3; list += 1) decoder.readArray(() => decoder.readInt32());
}

/** One bit for each operation. */
function operationsIn(bits: number): ReadonlySet<Operation> {
  const names = Object.keys(OPERATIONS) as Operation[];
  return new Set(names.filter((name) => (bits & (1 << OPERATIONS[name])) !== 0));
}

/**
 * ```
 * request   => [rule]
 * rule      => resource int8, name string, pattern int8, principal string, host string, operation int8, permission int8
 * response  => throttle int32, [error int16, message string]
 * ```
 */
export function aclsProtocol(rules: readonly AclRule[]): Protocol<CreateAclsResponse> {
  const encode = async () => {
    const encoder = new Encoder().writeInt32(rules.length);
    for (const { resource, name, pattern, principal, host, operation } of rules) {
      encoder.writeInt8(RESOURCES[resource]).writeString(name).writeInt8(PATTERNS[pattern]);
      encoder.writeString(principal).writeString(host).writeInt8(OPERATIONS[operation]).writeInt8(ALLOW);
    }
    return encoder;
  };
  const decode = async (payload: Buffer) => {
    const decoder = new Decoder(payload);
    return { throttleMs: decoder.readInt32(), rules: decoder.readArray(readRule) };
  };
  const request = { apiKey: apiKeys.CreateAcls, apiVersion: ACLS_VERSION, apiName: 'CreateAcls', encode };
  return { request, response: { decode } };
}

function readRule(decoder: Decoder): CreateAclsResponse['rules'][number] {
  const error = errorIn(decoder.readInt16());
  const message = decoder.readString();
  return { ...error, ...(message === null ? {} : { message }) };
}

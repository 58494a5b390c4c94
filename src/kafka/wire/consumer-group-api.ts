import type { BrokerResponse, Result } from './api.ts';
import { errorCodeOf } from './kafkajs-errors.ts';
import { type Decoder, Encoder } from './kafkajs-modules.ts';

/** What a coordinator reports of a group, by either protocol. */
export interface GroupReport extends Result {
  readonly groupId: string;
  /** Empty, Stable, PreparingRebalance, CompletingRebalance, Dead. */
  readonly state: string;
  /** The assigner; absent or empty while the members have not chosen one. */
  readonly protocol?: string;
  readonly members: readonly MemberReport[];
}

interface MemberReport {
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

interface ModernMember extends MemberReport {
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
export function encodeGroups({ groupIds }: { readonly groupIds: readonly string[] }): Encoder {
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
export function decodeGroups(decoder: Decoder): ConsumerGroupDescribeResponse {
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

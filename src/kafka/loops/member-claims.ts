import type { Claims } from './assigner.ts';
import { decodeSubscription, encodeSubscription } from './group-protocol.ts';

/** How the partitions are dealt out among members that all know this release's assigner. */
export const STICKY = 'idalloc-sticky';
/** kafkajs' only assigner, which members of earlier releases have: a group that has one of them falls back to it. */
export const ROUND_ROBIN = 'RoundRobinAssigner';

/** What a member says when it joins, to whoever leads the group. */
export interface JoiningMember {
  readonly topics: readonly string[];
  readonly claims: Claims;
  /** For others to interpret. */
  readonly extra: Buffer;
}

const FORMAT = 1;
const HEAD_BYTES = 5;
const NO_GENERATION = -1;

/** The assigners that a member offers, the preferred one first. The group takes one that all its members offer. */
export function offeredProtocols(topic: string, claims: Claims, extra: Buffer) {
  return [
    { name: STICKY, metadata: encodeJoining(topic, claims, extra) },
    { name: ROUND_ROBIN, metadata: encodeSubscription({ topics: [topic], userData: Buffer.alloc(0) }) },
  ];
}

/**
 * The user data of a subscription, behind what it owns: format byte 1 | generation of the claims int32 | the rest. Owned
 * partitions alone would not do: of two members that claim one, the later owner has to be known.
 */
function encodeJoining(topic: string, { generation, partitions }: Claims, extra: Buffer): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeInt8(FORMAT);
  head.writeInt32BE(generation, 1);
  const owned = partitions.length === 0 ? [] : [{ topic, partitions }];
  return encodeSubscription({ topics: [topic], userData: Buffer.concat([head, extra]), owned });
}

/** Throws a RangeError for what is no subscription. User data of others counts as none. */
export function decodeJoining(topic: string, metadata: Buffer): JoiningMember {
  const { topics, userData, owned = [] } = decodeSubscription(metadata);
  const partitions = owned.flatMap((one) => (one.topic === topic ? one.partitions : []));
  if (userData === null || userData.length < HEAD_BYTES || userData.readInt8() !== FORMAT) {
    return { topics, claims: { generation: NO_GENERATION, partitions }, extra: Buffer.alloc(0) };
  }
  return { topics, claims: { generation: userData.readInt32BE(1), partitions }, extra: userData.subarray(HEAD_BYTES) };
}

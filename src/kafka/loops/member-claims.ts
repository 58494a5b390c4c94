import type { Claims } from './assigner.ts';
import type { Copies } from './copies.ts';
import { decodeTold, encodeTold } from './copies-format.ts';
import { decodeSubscription, encodeSubscription } from './group-protocol.ts';

/** How the partitions are dealt out among members that all know this release's assigner. */
export const STICKY = 'idalloc-sticky';
/** kafkajs' only assigner, which members of earlier releases have: a group that has one of them falls back to it. */
export const ROUND_ROBIN = 'RoundRobinAssigner';

/** What a member says when it joins, to whoever leads the group. */
export interface JoiningMember {
  readonly topics: readonly string[];
  readonly claims: Claims;
  /** Undefined when it says nothing of them that can be understood. */
  readonly copies: Copies | undefined;
}

const FORMAT = 1;
const HEAD_BYTES = 5;
const NO_GENERATION = -1;

/** The assigners that a member offers, the preferred one first. The group takes one that all its members offer. */
export function offeredProtocols(topic: string, claims: Claims, copies?: Copies) {
  return [
    { name: STICKY, metadata: encodeJoining(topic, claims, copies) },
    { name: ROUND_ROBIN, metadata: encodeSubscription({ topics: [topic], userData: Buffer.alloc(0) }) },
  ];
}

/**
 * The user data of a subscription, behind what it owns: format byte 1 | generation of the claims int32 | copies, or
 * nothing, which earlier releases send and pass over. Owned partitions alone would not do: of two members that claim one,
 * the later owner has to be known.
 */
function encodeJoining(topic: string, claims: Claims, copies: Copies | undefined): Buffer {
  const { generation, partitions, standbys, warmups } = claims;
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeInt8(FORMAT);
  head.writeInt32BE(generation, 1);
  const told = copies === undefined ? [] : [encodeTold({ copies, standbys, warmups })];
  const owned = partitions.length === 0 ? [] : [{ topic, partitions }];
  return encodeSubscription({ topics: [topic], userData: Buffer.concat([head, ...told]), owned });
}

/** Throws a RangeError for what is no subscription. User data of others counts as none. */
export function decodeJoining(topic: string, metadata: Buffer): JoiningMember {
  const { topics, userData, owned = [] } = decodeSubscription(metadata);
  const partitions = owned.flatMap((one) => (one.topic === topic ? one.partitions : []));
  const isOurs = userData !== null && userData.length >= HEAD_BYTES && userData.readInt8() === FORMAT;
  const generation = isOurs ? userData.readInt32BE(1) : NO_GENERATION;
  const told = isOurs ? decodeTold(userData.subarray(HEAD_BYTES)) : undefined;
  const { standbys, warmups, copies } = told ?? { standbys: [], warmups: [], copies: undefined };
  return { topics, claims: { generation, partitions, standbys, warmups }, copies };
}

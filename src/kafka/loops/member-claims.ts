import type { Claims } from './assigner.ts';
import type { Copies } from './copies.ts';
import { decodeMemberReport, encodeMemberReport } from './copies-format.ts';
import { decodeSubscription, encodeSubscription } from './group-protocol.ts';

/** The assigner of this release, used when all members support it. */
export const STICKY = 'idalloc-sticky';
/** kafkajs' only assigner, that of earlier releases: a group with such a member falls back to it. */
export const ROUND_ROBIN = 'RoundRobinAssigner';

/** The data that a joining member sends to the group leader. */
export interface JoiningMember {
  readonly topics: readonly string[];
  readonly claims: Claims;
  /** Undefined if the member reports none, or in an unknown format. */
  readonly copies: Copies | undefined;
  /** Partitions that the member can't serve now. */
  readonly unreached: readonly number[];
}

/** What a member reports of its state at a join. */
export interface Report {
  readonly copies: Copies;
  readonly unreached: readonly number[];
}

const FORMAT = 1;
const HEAD_BYTES = 5;
const NO_GENERATION = -1;

/** The assigners that a member offers, the preferred one first. The group uses one that all members offer. */
export function offeredProtocols(topic: string, claims: Claims, report?: Report) {
  return [
    { name: STICKY, metadata: encodeJoining(topic, claims, report) },
    { name: ROUND_ROBIN, metadata: encodeSubscription({ topics: [topic], userData: Buffer.alloc(0) }) },
  ];
}

/**
 * The user data of the subscription: format byte 1 | generation of the claims int32 | report of copies, which earlier
 * releases neither send nor read. The generation tells which of two members that claim a partition owned it last.
 */
function encodeJoining(topic: string, claims: Claims, report: Report | undefined): Buffer {
  const { generation, partitions, standbys, warmups } = claims;
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeInt8(FORMAT);
  head.writeInt32BE(generation, 1);
  const reported = report === undefined ? [] : [encodeMemberReport({ ...report, standbys, warmups })];
  const owned = partitions.length === 0 ? [] : [{ topic, partitions }];
  return encodeSubscription({ topics: [topic], userData: Buffer.concat([head, ...reported]), owned });
}

/** Throws RangeError for bytes that are not a subscription. User data in an unknown format is ignored. */
export function decodeJoining(topic: string, metadata: Buffer): JoiningMember {
  const { topics, userData, owned = [] } = decodeSubscription(metadata);
  const partitions = owned.flatMap((one) => (one.topic === topic ? one.partitions : []));
  const isOurs = userData !== null && userData.length >= HEAD_BYTES && userData.readInt8() === FORMAT;
  const generation = isOurs ? userData.readInt32BE(1) : NO_GENERATION;
  const report = isOurs ? decodeMemberReport(userData.subarray(HEAD_BYTES)) : undefined;
  const { standbys = [], warmups = [], unreached = [], copies } = report ?? {};
  return { topics, claims: { generation, partitions, standbys, warmups }, copies, unreached };
}

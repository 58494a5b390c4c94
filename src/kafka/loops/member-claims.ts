import { decodeSubscription, encodeSubscription } from '../wire/consumer-protocol.ts';
import type { Claims } from './assigner.ts';
import { decodeMemberReport, encodeMemberReport, type Report } from './copies-format.ts';

/** The only assigner that members offer: the coordinator rejects a consumer without it, and a member where one is. */
export const STICKY = 'idalloc-sticky';

/** The data that a joining member sends to the group leader; its report is empty if that has an unknown format. */
interface JoiningMember extends Report {
  readonly topics: readonly string[];
  readonly claims: Claims;
}

const FORMAT = 1;
const HEAD_BYTES = 5;
/** Of a member that has not joined yet. */
export const NO_GENERATION = -1;

/**
 * The subscription of a joining member. Its user data: format byte 1 | generation of the claims int32 | report of
 * copies. The generation tells which of two members that claim a partition owned it last.
 */
export function encodeJoining(topic: string, claims: Claims, report: Report): Buffer {
  const { generation, partitions, standbys, warmups } = claims;
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeInt8(FORMAT);
  head.writeInt32BE(generation, 1);
  const userData = Buffer.concat([head, encodeMemberReport({ ...report, standbys, warmups })]);
  const owned = partitions.length === 0 ? [] : [{ topic, partitions }];
  return encodeSubscription({ topics: [topic], userData, owned });
}

/** Throws RangeError for bytes that are not a subscription. User data in an unknown format is ignored. */
export function decodeJoining(topic: string, metadata: Buffer): JoiningMember {
  const { topics, userData, owned = [] } = decodeSubscription(metadata);
  const partitions = owned.flatMap((one) => (one.topic === topic ? one.partitions : []));
  const isOurs = userData !== null && userData.length >= HEAD_BYTES && userData.readInt8() === FORMAT;
  const generation = isOurs ? userData.readInt32BE(1) : NO_GENERATION;
  const report = isOurs ? decodeMemberReport(userData.subarray(HEAD_BYTES)) : undefined;
  const { standbys = [], warmups = [], unreached = [], copies = new Map() } = report ?? {};
  return { topics, claims: { generation, partitions, standbys, warmups }, copies, unreached };
}

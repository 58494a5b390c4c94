import { decodeSubscription, encodeSubscription } from '../wire/consumer-protocol.ts';
import type { Claims, Copy, CopyReport, Share } from './planner.ts';

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

/**
 * The wire format of the members' reports on their copies, and of the standbys that the leader assigns.
 *
 *   by a member    version int8 | [gap, end, behind] copies | [gap] standbys | [gap] warm-ups | [gap] unreached
 *   by the leader  version int8 | [gap] standbys | [gap] warm-ups
 *
 *   [x]     count, that many x; each number is unsigned, 7 bits a byte, the lowest first, bit 7 set in all but the last
 *   gap     by how much the partition is above the one before it, which at first is -1, less one
 *   end     the offset after the last entry of the copy
 *   behind  how many offsets the log extended beyond that
 *
 * The list of unreached partitions is absent when it is empty: members of earlier releases reject a report that has it.
 *
 * Decoding returns undefined for a newer version, which is another format, and for bytes that are truncated, too long
 * or out of order.
 */
const VERSION = 1;

type StandbyShare = Pick<Share, 'standbys' | 'warmups'>;

/** What a member reports of its state at a join. */
export interface Report {
  readonly copies: CopyReport;
  /** Partitions that this member can't serve now, since it does not reach a broker that leads them. */
  readonly unreached: readonly number[];
}

export interface MemberReport extends StandbyShare, Report {}

/** Leaves out a copy that ends beyond its log or has invalid offsets: it is a copy of another log. */
export function encodeMemberReport({ copies, standbys, warmups, unreached }: MemberReport): Buffer {
  const isOfItsLog = ({ end, logEnd }: Copy) => end >= 0 && end <= logEnd && [end, logEnd].every(Number.isSafeInteger);
  const reported = [...copies].filter(([, copy]) => isOfItsLog(copy)).sort(([one], [other]) => one - other);
  const gaps = gapsOf(reported.map(([partition]) => partition));
  const fields = reported.flatMap(([, { end, logEnd }], i) => [gaps[i] as number, end, logEnd - end]);
  const last = unreached.length === 0 ? [] : list(unreached);
  return encoded([reported.length, ...fields, ...list(standbys), ...list(warmups), ...last]);
}

export function decodeMemberReport(bytes: Buffer): MemberReport | undefined {
  return decoded(bytes, (reader) => {
    const copies = reader.list((partition) => {
      const end = reader.number();
      const logEnd = end + reader.number();
      if (!Number.isSafeInteger(logEnd)) throw new RangeError('an offset is too large');
      return [partition, { end, logEnd }] as const;
    });
    const share = readStandbys(reader);
    const unreached = reader.isAtEnd ? undefined : reader.list((partition) => partition);
    if (unreached?.length === 0) throw new RangeError('an empty list of unreached partitions is left out');
    return { copies: new Map(copies), ...share, unreached: unreached ?? [] };
  });
}

export function encodeStandbys({ standbys, warmups }: StandbyShare): Buffer {
  return encoded([...list(standbys), ...list(warmups)]);
}

export function decodeStandbys(bytes: Buffer): StandbyShare | undefined {
  return decoded(bytes, readStandbys);
}

function readStandbys(reader: Reader): StandbyShare {
  const standbys = reader.list((partition) => partition);
  return { standbys, warmups: reader.list((partition) => partition) };
}

function list(partitions: readonly number[]): number[] {
  return [partitions.length, ...gapsOf(partitions.toSorted((one, other) => one - other))];
}

function gapsOf(rising: readonly number[]): number[] {
  return rising.map((partition, i) => partition - (rising[i - 1] ?? -1) - 1);
}

function encoded(numbers: readonly number[]): Buffer {
  const bytes: number[] = [VERSION];
  for (const number of numbers) {
    let left = number;
    for (; left >= 0x80; left = Math.floor(left / 0x80)) bytes.push((left % 0x80) + 0x80);
    bytes.push(left);
  }
  return Buffer.from(bytes);
}

function decoded<T>(bytes: Buffer, read: (reader: Reader) => T): T | undefined {
  if (bytes[0] !== VERSION) return undefined;
  const reader = new Reader(bytes);
  try {
    const value = read(reader);
    return reader.isAtEnd ? value : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

const MAX_PARTITION = 2 ** 31 - 1;
/** Eight bytes hold every safe integer. */
const MAX_SCALE = 0x80 ** 7;

/** Reads after the version. A false count ends at the last byte, since each item takes at least one. */
class Reader {
  readonly #bytes: Buffer;
  #at = 1;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  number(): number {
    let value = 0;
    for (let scale = 1; scale <= MAX_SCALE; scale *= 0x80) {
      const byte = this.#bytes[this.#at];
      if (byte === undefined) throw new RangeError('a number is cut off');
      this.#at += 1;
      value += (byte % 0x80) * scale;
      if (byte < 0x80) return value;
    }
    throw new RangeError('a number takes too many bytes');
  }

  list<T>(read: (partition: number) => T): T[] {
    const items: T[] = [];
    let partition = -1;
    for (let left = this.number(); left > 0; left -= 1) {
      partition += this.number() + 1;
      if (partition > MAX_PARTITION) throw new RangeError('a partition is out of range');
      items.push(read(partition));
    }
    return items;
  }
}

import { Encoder } from '../wire/kafkajs-modules.ts';
import type { Claims, Copy, CopyReport, Share } from './planner.ts';

/**
 * What the members of a group tell each other through the coordinator, which passes it on and does not read it: their
 * claims and their reports, in the user data of Kafka's ConsumerProtocol.
 */

/** The only assigner that members offer: the coordinator rejects a consumer without it, and a member where one is. */
export const STICKY = 'idalloc-sticky';

/** The data that a joining member sends to the group leader; its report is empty if that has an unknown format. */
interface JoiningMember extends Report {
  readonly topics: readonly string[];
  readonly claims: Claims;
  readonly zone: string | undefined;
}

const FORMAT = 1;
const HEAD_BYTES = 5;
/** Of a member that has not joined yet. */
export const NO_GENERATION = -1;

/**
 * The subscription of a joining member. Its user data: format byte 1 | generation of the claims int32 | report of
 * copies. The generation tells which of two members that claim a partition owned it last. The zone is the rack of the
 * protocol, which members of earlier releases don't read.
 */
export function encodeJoining(topic: string, claims: Claims, report: Report, zone?: string): Buffer {
  const { generation, partitions, standbys, warmups } = claims;
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeInt8(FORMAT);
  head.writeInt32BE(generation, 1);
  const userData = Buffer.concat([head, encodeMemberReport({ ...report, standbys, warmups })]);
  const owned = partitions.length === 0 ? [] : [{ topic, partitions }];
  return encodeSubscription({ topics: [topic], userData, owned, rack: zone });
}

/** Throws RangeError for bytes that are not a subscription. User data in an unknown format is ignored. */
export function decodeJoining(topic: string, metadata: Buffer): JoiningMember {
  const { topics, userData, owned = [], rack: zone } = decodeSubscription(metadata);
  const partitions = owned.flatMap((one) => (one.topic === topic ? one.partitions : []));
  const isOurs = userData !== null && userData.length >= HEAD_BYTES && userData.readInt8() === FORMAT;
  const generation = isOurs ? userData.readInt32BE(1) : NO_GENERATION;
  const report = isOurs ? decodeMemberReport(userData.subarray(HEAD_BYTES)) : undefined;
  const { standbys = [], warmups = [], unreached = [], copies = new Map() } = report ?? {};
  return { topics, claims: { generation, partitions, standbys, warmups }, copies, unreached, zone };
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

function readStandbys(reader: ReportReader): StandbyShare {
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

function decoded<T>(bytes: Buffer, read: (reader: ReportReader) => T): T | undefined {
  if (bytes[0] !== VERSION) return undefined;
  const reader = new ReportReader(bytes);
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
class ReportReader {
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

/**
 * The ConsumerProtocol format, in which members of a consumer group exchange data through the coordinator, as Kafka's
 * own clients and tools use it. All numbers are big-endian.
 *
 *   subscription  version int16 | topics [string] | user data bytes | from 1 on: owned
 *                 [topic string, [partition int32]] | from 2 on: generation int32 | from 3 on: rack string
 *   assignment    version int16 | [topic string, [partition int32]] | user data bytes
 *
 *   string  length int16, UTF-8          [x]    count int32, that many x
 *   bytes   length int32 or -1 for none
 *
 * A newer version only adds fields at the end, so the known fields are read and the rest is ignored.
 */

const RACK_VERSION = 3;

interface TopicPartitions {
  readonly topic: string;
  readonly partitions: readonly number[];
}

export interface Subscription {
  readonly topics: readonly string[];
  readonly userData: Buffer | null;
  /** The partitions that the member owned when it joined; undefined in version 0, which lacks the field. */
  readonly owned?: readonly TopicPartitions[];
  /** Where the member runs; undefined before version 3, and if it did not say. */
  readonly rack?: string | undefined;
}

export interface Assignment {
  readonly assigned: readonly TopicPartitions[];
  readonly userData: Buffer | null;
}

/** Version 3 if `rack` is given, 1 if `owned` is, else 0. The generation is part of the user data. */
export function encodeSubscription({ topics, userData, owned, rack }: Subscription): Buffer {
  const version = rack !== undefined ? RACK_VERSION : owned === undefined ? 0 : 1;
  const encoder = new Encoder().writeInt16(version).writeInt32(topics.length);
  for (const topic of topics) encoder.writeString(topic);
  encoder.writeBytes(userData);
  if (version > 0) writeTopics(encoder, owned ?? []);
  if (rack !== undefined) encoder.writeInt32(NO_GENERATION).writeString(rack);
  return encoder.buffer;
}

/** Throws RangeError for bytes that are not a subscription. */
export function decodeSubscription(buffer: Buffer): Subscription {
  const reader = new ProtocolReader(buffer);
  const version = reader.version();
  const topics = reader.array(() => reader.string());
  const userData = reader.bytes();
  if (version < 1) return { topics, userData };
  const owned = reader.topicPartitions();
  return { topics, userData, owned, ...(version >= RACK_VERSION ? { rack: reader.rack() } : {}) };
}

export function encodeAssignment({ assigned, userData }: Assignment): Buffer {
  const encoder = new Encoder().writeInt16(0);
  writeTopics(encoder, assigned);
  return encoder.writeBytes(userData).buffer;
}

/** As `wire/api` does it: where a take-over goes, one file less is worth these lines. */
function writeTopics(encoder: Encoder, topics: readonly TopicPartitions[]): void {
  encoder.writeInt32(topics.length);
  for (const { topic, partitions } of topics) {
    encoder.writeString(topic).writeInt32(partitions.length);
    for (const partition of partitions) encoder.writeInt32(partition);
  }
}

/** No bytes mean an empty assignment: a member that the leader left out. Throws as `decodeSubscription` does. */
export function decodeAssignment(buffer: Buffer): Assignment {
  if (buffer.length === 0) return { assigned: [], userData: null };
  const reader = new ProtocolReader(buffer);
  reader.version();
  return { assigned: reader.topicPartitions(), userData: reader.bytes() };
}

/** Reads field by field. A false count ends at the last byte, since each item takes at least one. */
class ProtocolReader {
  readonly #buffer: Buffer;
  #at = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  version(): number {
    const version = this.#buffer.readInt16BE(this.#take(2));
    if (version < 0) throw new RangeError(`invalid version ${version} of the consumer protocol`);
    return version;
  }

  string(): string {
    const length = this.#buffer.readInt16BE(this.#take(2));
    const at = this.#take(length);
    return this.#buffer.toString('utf8', at, at + length);
  }

  /** The rack, after the generation; undefined if the member has none. */
  rack(): string | undefined {
    this.#int32();
    if (this.#buffer.readInt16BE(this.#take(2)) === -1) return undefined;
    this.#at -= 2;
    return this.string();
  }

  bytes(): Buffer | null {
    const length = this.#int32();
    if (length === -1) return null;
    const at = this.#take(length);
    return this.#buffer.subarray(at, at + length);
  }

  array<T>(read: () => T): T[] {
    const count = this.#int32();
    if (count < 0) throw new RangeError(`invalid number of items: ${count}`);
    const items: T[] = [];
    while (items.length < count) items.push(read());
    return items;
  }

  topicPartitions(): TopicPartitions[] {
    return this.array(() => ({ topic: this.string(), partitions: this.array(() => this.#int32()) }));
  }

  #int32(): number {
    return this.#buffer.readInt32BE(this.#take(4));
  }

  /** The position of the next `length` bytes. */
  #take(length: number): number {
    const at = this.#at;
    if (length < 0 || at + length > this.#buffer.length) throw new RangeError(`there are not ${length} bytes at ${at}`);
    this.#at += length;
    return at;
  }
}

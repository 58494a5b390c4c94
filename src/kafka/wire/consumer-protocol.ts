import { Encoder } from './kafkajs-modules.ts';

/**
 * The ConsumerProtocol format, in which members of a consumer group exchange data through the coordinator, as Kafka's
 * own clients and tools use it. All numbers are big-endian.
 *
 *   subscription  version int16 | topics [string] | user data bytes | from 1 on: owned
 *                 [topic string, [partition int32]]
 *   assignment    version int16 | [topic string, [partition int32]] | user data bytes
 *
 *   string  length int16, UTF-8          [x]    count int32, that many x
 *   bytes   length int32 or -1 for none
 *
 * A newer version only adds fields at the end, so the known fields are read and the rest is ignored.
 */

interface TopicPartitions {
  readonly topic: string;
  readonly partitions: readonly number[];
}

export interface Subscription {
  readonly topics: readonly string[];
  readonly userData: Buffer | null;
  /** The partitions that the member owned when it joined; undefined in version 0, which lacks the field. */
  readonly owned?: readonly TopicPartitions[];
}

export interface Assignment {
  readonly assigned: readonly TopicPartitions[];
  readonly userData: Buffer | null;
}

/** Version 1 if `owned` is given, else version 0. */
export function encodeSubscription({ topics, userData, owned }: Subscription): Buffer {
  const encoder = new Encoder().writeInt16(owned === undefined ? 0 : 1).writeInt32(topics.length);
  for (const topic of topics) encoder.writeString(topic);
  encoder.writeBytes(userData);
  if (owned !== undefined) writeTopics(encoder, owned);
  return encoder.buffer;
}

/** Throws RangeError for bytes that are not a subscription. */
export function decodeSubscription(buffer: Buffer): Subscription {
  const reader = new Reader(buffer);
  const version = reader.version();
  const topics = reader.array(() => reader.string());
  const userData = reader.bytes();
  if (version < 1) return { topics, userData };
  return { topics, userData, owned: reader.topicPartitions() };
}

export function encodeAssignment({ assigned, userData }: Assignment): Buffer {
  const encoder = new Encoder().writeInt16(0);
  writeTopics(encoder, assigned);
  return encoder.writeBytes(userData).buffer;
}

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
  const reader = new Reader(buffer);
  reader.version();
  return { assigned: reader.topicPartitions(), userData: reader.bytes() };
}

/** Reads field by field. A false count ends at the last byte, since each item takes at least one. */
class Reader {
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

import type { Admin, Message, Producer } from 'kafkajs';
import { describeError, IdallocError } from '../../errors.ts';
import type { Delivery, OutgoingRecord, Publisher } from '../../pipeline/ports.ts';

/** One send stays below the broker's usual limit for a record batch (1 MiB), with room for framing. */
const SEND_MAX_BYTES = 900_000;
/** How long the partition count of a reply topic is believed. */
const METADATA_MAX_AGE_MS = 60_000;
/** How long a missing reply topic stays missing, so that a burst of requests asks the broker once. */
const MISSING_MAX_AGE_MS = 2_000;
/** What a topic answers for a cause of its own; anything else is passing, or everybody's. */
const TOPIC_FAULTS: ReadonlySet<string> = new Set([
  'UNKNOWN_TOPIC_OR_PARTITION',
  'INVALID_TOPIC_EXCEPTION',
  'TOPIC_AUTHORIZATION_FAILED',
  'MESSAGE_TOO_LARGE',
  'RECORD_LIST_TOO_LARGE',
  'INVALID_RECORD',
  'INVALID_TIMESTAMP',
]);

interface Indexed {
  readonly index: number;
  readonly record: OutgoingRecord;
}

/**
 * Publishes through one kafkajs producer, a topic at a time: one send shares its fate, and no reply topic may hold up
 * another. Topic and partition are looked up first, since kafkajs drops records for a partition that does not exist.
 */
export class KafkaPublisher implements Publisher {
  readonly #producer: Producer;
  readonly #admin: Admin;
  readonly #monotonicMs: () => number;
  readonly #topics = new Map<string, { readonly partitions: number; readonly readAtMs: number }>();

  constructor(producer: Producer, admin: Admin, monotonicMs: () => number) {
    this.#producer = producer;
    this.#admin = admin;
    this.#monotonicMs = monotonicMs;
  }

  async publish(records: readonly OutgoingRecord[]): Promise<readonly Delivery[]> {
    const byTopic = Map.groupBy(
      records.map((record, index): Indexed => ({ index, record })),
      ({ record }) => record.topic,
    );
    const deliveries = new Array<Delivery>(records.length);
    const outcomes = await Promise.allSettled(
      [...byTopic].map(([topic, group]) => this.#publishTopic(topic, group, deliveries)),
    );
    const failed = outcomes.find((outcome) => outcome.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    return deliveries;
  }

  async #publishTopic(topic: string, group: readonly Indexed[], deliveries: Delivery[]): Promise<void> {
    const partitions = await this.#partitionsOf(topic);
    const sendable = group.filter(({ index, record }) => {
      const reason = unsendable(record, partitions);
      if (reason !== undefined) deliveries[index] = { ok: false, reason };
      return reason === undefined;
    });
    for (const chunk of cutByBytes(sendable)) await this.#sendChunk(topic, chunk, deliveries);
  }

  /** A chunk that its topic refuses is sent again record by record, so that one bad record fails alone. */
  async #sendChunk(topic: string, chunk: readonly Indexed[], deliveries: Delivery[]): Promise<void> {
    const reason = await this.#send(topic, chunk);
    if (reason !== undefined && chunk.length > 1) {
      for (const one of chunk) await this.#sendChunk(topic, [one], deliveries);
      return;
    }
    for (const { index } of chunk) deliveries[index] = reason === undefined ? { ok: true } : { ok: false, reason };
  }

  /** Resolves to the topic's own fault, if it has one; rejects on a passing fault. */
  async #send(topic: string, chunk: readonly Indexed[]): Promise<string | undefined> {
    const messages = chunk.map(({ record }) => toMessage(record));
    try {
      const answers = await this.#producer.send({ topic, acks: -1, messages });
      const missing = chunk.find(
        ({ record }) =>
          record.partition !== undefined && !answers.some(({ partition }) => partition === record.partition),
      );
      if (answers.length > 0 && missing === undefined && answers.every(({ errorCode }) => errorCode === 0)) {
        return undefined;
      }
      throw new IdallocError('KAFKA_UNAVAILABLE', `topic ${topic} did not acknowledge: ${JSON.stringify(answers)}`);
    } catch (error) {
      const fault = topicFault(error);
      if (fault === undefined) throw error;
      this.#topics.delete(topic);
      return `topic ${topic} refused the record: ${fault}`;
    }
  }

  /** The topic's partition count; 0 when it does not exist or can't be seen. */
  async #partitionsOf(topic: string): Promise<number> {
    const known = this.#topics.get(topic);
    const maxAgeMs = known?.partitions === 0 ? MISSING_MAX_AGE_MS : METADATA_MAX_AGE_MS;
    if (known !== undefined && this.#monotonicMs() - known.readAtMs < maxAgeMs) return known.partitions;
    const partitions = await this.#readPartitions(topic);
    this.#topics.set(topic, { partitions, readAtMs: this.#monotonicMs() });
    return partitions;
  }

  async #readPartitions(topic: string): Promise<number> {
    try {
      const { topics } = await this.#admin.fetchTopicMetadata({ topics: [topic] });
      return topics.find(({ name }) => name === topic)?.partitions.length ?? 0;
    } catch (error) {
      if (topicFault(error) !== undefined) return 0;
      throw new IdallocError('KAFKA_UNAVAILABLE', `can't look up topic ${topic}: ${describeError(error)}`, {
        cause: error,
      });
    }
  }
}

function unsendable(record: OutgoingRecord, partitions: number): string | undefined {
  if (partitions === 0) return `topic ${record.topic} does not exist or can't be seen: create it`;
  if (record.partition === undefined || record.partition < partitions) return undefined;
  return `topic ${record.topic} has no partition ${record.partition}: it has ${partitions}`;
}

function* cutByBytes(group: readonly Indexed[]): Generator<readonly Indexed[]> {
  let chunk: Indexed[] = [];
  let bytes = 0;
  for (const one of group) {
    const size = sizeOf(one.record);
    if (chunk.length > 0 && bytes + size > SEND_MAX_BYTES) {
      yield chunk;
      chunk = [];
      bytes = 0;
    }
    chunk.push(one);
    bytes += size;
  }
  if (chunk.length > 0) yield chunk;
}

/** An upper bound of the record's encoded size, near enough to cut by. */
function sizeOf(record: OutgoingRecord): number {
  let bytes = 64 + (record.key?.length ?? 0) + (record.value?.length ?? 0);
  for (const [name, value] of Object.entries(record.headers)) {
    for (const one of Array.isArray(value) ? value : [value ?? '']) bytes += 10 + name.length * 3 + one.length * 3;
  }
  return bytes;
}

function toMessage(record: OutgoingRecord): Message {
  return {
    key: record.key,
    value: record.value,
    headers: record.headers as NonNullable<Message['headers']>,
    ...(record.partition === undefined ? {} : { partition: record.partition }),
    ...(record.timestampMs === undefined ? {} : { timestamp: String(record.timestampMs) }),
  };
}

/** The broker's code when the fault is the topic's own; looks through the wrapping that kafkajs' retries add. */
function topicFault(error: unknown): string | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth += 1) {
    const type = (at as { type?: unknown }).type;
    if (typeof type === 'string' && TOPIC_FAULTS.has(type)) return type;
  }
  return undefined;
}

import type { Message, PartitionMetadata, Producer } from 'kafkajs';
import { describeError, IdallocError } from '../../errors.ts';
import type { Delivery, OutgoingRecord, Publisher } from '../../pipeline/ports.ts';
import { brokerFault, isRecordFault, isTopicFault, isWeakness } from './broker-fault.ts';
import { createPartitioner } from './partitioner.ts';
import type { ReplyProducers } from './reply-producers.ts';
import type { ReplyTopics } from './reply-topics.ts';

export interface KafkaPublisherOptions {
  readonly topics: Pick<ReplyTopics, 'standing' | 'doubt' | 'accuse' | 'acquit'>;
  readonly producers: Pick<ReplyProducers, 'shared' | 'alone'>;
  readonly monotonicMs: () => number;
  readonly sleep: (delayMs: number) => Promise<void>;
}

/** What one partition gets in one send stays below the broker's usual limit for a record batch (1 MiB). */
const SEND_MAX_BYTES = 900_000;
/** A topic without a leader, or without enough replicas, is waited for so long: it outlasts an election. */
const PATIENCE_MS = 10_000;
const RETRY_MS = 200;
/** A send that takes longer has met a broker that hangs. */
const SEND_TIMEOUT_MS = 12_000;
/** How long a broker may wait for its followers before it answers. */
const REPLICATION_TIMEOUT_MS = 5_000;

/** A record on its way: its place in the answer, and the partition that it goes to. */
interface Addressed {
  readonly index: number;
  readonly record: OutgoingRecord;
  readonly partition: number;
}

/** How records of one topic are sent, and where the answers go until the signal says that they come too late. */
interface Way {
  readonly producer: Producer;
  readonly topic: string;
  readonly deliveries: Delivery[];
  readonly signal: AbortSignal;
}

/**
 * Publishes a topic at a time: one send shares its fate, and no reply topic may hold up another. Topic and partition are
 * looked up first, since kafkajs drops records for a partition that does not exist.
 *
 * A fault that the broker told is laid at a topic's door only when it came in a send that had to do with no other topic.
 */
export class KafkaPublisher implements Publisher {
  readonly #options: KafkaPublisherOptions;
  readonly #partitioner = createPartitioner();

  constructor(options: KafkaPublisherOptions) {
    this.#options = options;
  }

  async publish(records: readonly OutgoingRecord[]): Promise<readonly Delivery[]> {
    const byTopic = Map.groupBy(
      records.map((record, index) => ({ index, record })),
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

  /** Tries until each record has an answer, or the topic's time is up. */
  async #publishTopic(
    topic: string,
    group: readonly { index: number; record: OutgoingRecord }[],
    deliveries: Delivery[],
  ): Promise<void> {
    const { topics, monotonicMs, sleep } = this.#options;
    const begunMs = monotonicMs();
    for (let doubted = false; ; ) {
      const left = group.filter(({ index }) => deliveries[index] === undefined);
      const refuse = (reason: string) => {
        for (const { index } of left) deliveries[index] = { ok: false, reason };
      };
      const standing = await topics.standing(topic);
      if (standing.kind === 'bad') return refuse(standing.reason);
      if (standing.kind === 'leaderless') {
        if (monotonicMs() - standing.sinceMs >= PATIENCE_MS) return refuse(`topic ${topic} has no leader`);
        await sleep(RETRY_MS);
        continue;
      }
      const addressed = this.#address(left, standing.partitions, deliveries);
      const error = await this.#sendAll(topic, addressed, deliveries, doubted);
      if (error === undefined) {
        if (standing.onProbation) topics.acquit(topic);
        return;
      }
      topics.doubt(topic);
      if (doubted) {
        const isOver = standing.onProbation || monotonicMs() - begunMs >= PATIENCE_MS;
        this.#blame(topic, error, isOver);
        await sleep(RETRY_MS);
      }
      doubted = true;
    }
  }

  /** What a fault means that a topic met alone. Throws when it is everybody's, or nobody knows. */
  #blame(topic: string, error: unknown, isOver: boolean): void {
    const fault = brokerFault(error);
    const isOwn = isTopicFault(fault) || (isOver && isWeakness(fault));
    if (isOwn) this.#options.topics.accuse(topic, `topic ${topic} refused the record: ${fault}`);
    else if (isOver) {
      const message = `topic ${topic} did not take records: ${describeError(error)}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
  }

  #address(
    left: readonly { index: number; record: OutgoingRecord }[],
    partitions: number,
    deliveries: Delivery[],
  ): Addressed[] {
    return left.flatMap(({ index, record }) => {
      const { topic, key } = record;
      if (record.partition !== undefined && record.partition >= partitions) {
        const reason = `topic ${topic} has no partition ${record.partition}: it has ${partitions}`;
        deliveries[index] = { ok: false, reason };
        return [];
      }
      const partitionMetadata = new Array<PartitionMetadata>(partitions);
      const partition =
        record.partition ?? this.#partitioner({ topic, partitionMetadata, message: { key, value: null } });
      return [{ index, record, partition }];
    });
  }

  /** Sends in order; the first fault that is not a record's own ends it and is returned. */
  async #sendAll(
    topic: string,
    addressed: readonly Addressed[],
    deliveries: Delivery[],
    alone: boolean,
  ): Promise<unknown> {
    const { producers } = this.#options;
    const send = (producer: Producer) =>
      inTime(topic, async (signal) => {
        for (const chunk of cutByBytes(addressed)) {
          await this.#sendChunk({ producer, topic, deliveries, signal }, chunk);
        }
      });
    try {
      if (addressed.length > 0) await (alone ? producers.alone(send) : producers.shared(topic, send));
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** A chunk in which the topic refuses a record is halved and sent again, so that a bad record fails alone. */
  async #sendChunk(way: Way, chunk: readonly Addressed[]): Promise<void> {
    if (way.signal.aborted) return;
    const fault = await this.#send(way, chunk);
    if (way.signal.aborted) return;
    if (fault !== undefined && chunk.length > 1) {
      const half = Math.ceil(chunk.length / 2);
      await this.#sendChunk(way, chunk.slice(0, half));
      await this.#sendChunk(way, chunk.slice(half));
      return;
    }
    const reason = `topic ${way.topic} refused the record: ${fault}`;
    for (const { index } of chunk) {
      way.deliveries[index] = fault === undefined ? { ok: true } : { ok: false, reason };
    }
  }

  /** Resolves to the fault of a record in the chunk, if there is one; rejects on any other. */
  async #send({ producer, topic }: Way, chunk: readonly Addressed[]): Promise<string | undefined> {
    try {
      const messages = chunk.map(toMessage);
      const answers = await producer.send({ topic, acks: -1, timeout: REPLICATION_TIMEOUT_MS, messages });
      const acknowledged = new Set(answers.filter(({ errorCode }) => errorCode === 0).map((one) => one.partition));
      if (chunk.every(({ partition }) => acknowledged.has(partition))) return undefined;
    } catch (error) {
      const fault = brokerFault(error);
      if (isRecordFault(fault)) return fault;
      throw error;
    }
    throw new IdallocError('KAFKA_UNAVAILABLE', `topic ${topic} did not acknowledge all records`);
  }
}

/** What comes later is not waited for, and changes nothing any more; the same bytes are sent again then. */
async function inTime(topic: string, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const over = new AbortController();
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    over.abort();
    reject(new IdallocError('KAFKA_UNAVAILABLE', `topic ${topic} gave no answer in time`));
  }, SEND_TIMEOUT_MS);
  try {
    await Promise.race([work(over.signal), promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Cuts where the records of one partition would be more than one record batch may have. */
function* cutByBytes(addressed: readonly Addressed[]): Generator<readonly Addressed[]> {
  let chunk: Addressed[] = [];
  let bytes = new Map<number, number>();
  for (const one of addressed) {
    const sum = (bytes.get(one.partition) ?? 0) + sizeOf(one.record);
    if (sum > SEND_MAX_BYTES && chunk.length > 0) {
      yield chunk;
      chunk = [];
      bytes = new Map();
    }
    chunk.push(one);
    bytes.set(one.partition, (bytes.get(one.partition) ?? 0) + sizeOf(one.record));
  }
  if (chunk.length > 0) yield chunk;
}

/** An upper bound of the record's encoded size, near enough to cut by. */
function sizeOf(record: OutgoingRecord): number {
  let bytes = 64 + (record.key?.length ?? 0) + (record.value?.length ?? 0);
  for (const [name, value] of Object.entries(record.headers)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      bytes += 10 + 3 * name.length + (typeof one === 'string' ? 3 : 1) * (one?.length ?? 0);
    }
  }
  return bytes;
}

function toMessage({ record, partition }: Addressed): Message {
  const headers = Object.create(null) as NonNullable<Message['headers']>;
  for (const [name, value] of Object.entries(record.headers)) {
    headers[name] = Array.isArray(value) ? value.map(toHeader) : toHeader(value as Buffer | string | undefined);
  }
  const timestamp = record.timestampMs === undefined ? {} : { timestamp: String(record.timestampMs) };
  return { key: record.key, value: record.value, headers, partition, ...timestamp };
}

/** Kafka knows headers without a value, of which kafkajs can read but not write any. */
function toHeader(value: Buffer | string | null | undefined): Buffer | string {
  return value ?? Buffer.alloc(0);
}

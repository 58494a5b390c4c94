import type { Runtime } from '../../core/runtime.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { append } from '../../kafka/loops/append.ts';
import { encodeBatch } from '../../kafka/records/encode.ts';
import { partitionFor } from '../../kafka/records/partitioner.ts';
import type { Cluster } from '../../kafka/wire/cluster.ts';
import { faultOf } from '../../kafka/wire/fault.ts';
import type { Delivery, OutgoingRecord, Publisher } from '../../pipeline/ports.ts';
import { isRecordFault, isTopicFault, isWeakness } from './publish-faults.ts';
import type { ReplyTopics } from './reply-topics.ts';

export interface KafkaPublisherOptions {
  readonly cluster: Pick<Cluster, 'leader' | 'call' | 'doubt'>;
  readonly runtime: Runtime;
  readonly topics: Pick<ReplyTopics, 'standing' | 'doubt' | 'markUnwritable' | 'clear'>;
}

/** A record batch stays below the broker's usual limit of 1 MiB. */
const BATCH_MAX_BYTES = 900_000;
/** A topic without a leader, or without enough replicas, is waited for so long: it outlasts an election. */
const PATIENCE_MS = 10_000;
const RETRY_MS = 200;
/** Of one append, those before it on its connection included: brokers answer them in their order. */
const APPEND_TIMEOUT_MS = 10_000;
/** How long a broker may wait for its followers before it answers. */
const REPLICATION_TIMEOUT_MS = 5_000;

/** A record with its place in the answer. */
interface Outgoing {
  readonly index: number;
  readonly record: OutgoingRecord;
}

/** Where records go, and what becomes of them. */
interface Place {
  readonly topic: string;
  readonly partition: number;
  readonly deliveries: Delivery[];
}

/**
 * Publishes a topic at a time, and all its partitions at once, a record batch for each: no topic or partition holds up
 * another. What became of a record is written into `deliveries`, at its place, once it is known.
 *
 * A fault ends with the records that met it: a record's own with that record, a topic's with the records of that topic.
 * Any other is everybody's, and rejects when it lasts.
 */
export class KafkaPublisher implements Publisher {
  readonly #options: KafkaPublisherOptions;
  #keyless = 0;

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
  async #publishTopic(topic: string, group: readonly Outgoing[], deliveries: Delivery[]): Promise<void> {
    const { topics, runtime } = this.#options;
    const begunMs = runtime.monotonicMs();
    for (let doubted = false; ; ) {
      const left = group.filter(({ index }) => deliveries[index] === undefined);
      const refuse = (reason: string) => {
        for (const { index } of left) deliveries[index] = { ok: false, reason };
      };
      const standing = await topics.standing(topic);
      if (standing.kind === 'bad') return refuse(standing.reason);
      if (standing.kind === 'leaderless') {
        if (runtime.monotonicMs() - standing.sinceMs >= PATIENCE_MS) return refuse(`topic ${topic} has no leader`);
        await runtime.sleep(RETRY_MS);
        continue;
      }
      const addressed = this.#address(left, standing.partitions, deliveries);
      const errors = await this.#sendAll(topic, addressed, deliveries);
      if (errors.length === 0) {
        if (standing.onProbation && addressed.size > 0) topics.clear(topic);
        return;
      }
      topics.doubt(topic);
      if (doubted) {
        const isOver = standing.onProbation || runtime.monotonicMs() - begunMs >= PATIENCE_MS;
        this.#judge(topic, errors, isOver);
        await runtime.sleep(RETRY_MS);
      }
      doubted = true; // the first fault may only have shown what has changed
    }
  }

  /** What lasting faults of a topic mean. Throws when they are everybody's, or nobody knows. */
  #judge(topic: string, errors: readonly unknown[], isOver: boolean): void {
    const faults = errors.map(faultOf);
    const own = faults.find(isTopicFault) ?? (isOver && faults.every(isWeakness) ? faults[0] : undefined);
    if (own !== undefined) this.#options.topics.markUnwritable(topic, `topic ${topic} refused the record: ${own}`);
    else if (isOver) {
      const message = `topic ${topic} did not take records: ${describeError(errors[0])}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: errors[0] });
    }
  }

  /** The records by their partitions. */
  #address(
    left: readonly Outgoing[],
    partitions: number,
    deliveries: Delivery[],
  ): ReadonlyMap<number, readonly Outgoing[]> {
    const addressed = new Map<number, Outgoing[]>();
    for (const one of left) {
      const { topic, key, partition = partitionFor(key, partitions, () => this.#nextKeyless()) } = one.record;
      if (partition >= partitions) {
        const reason = `topic ${topic} has no partition ${partition}: it has ${partitions}`;
        deliveries[one.index] = { ok: false, reason };
        continue;
      }
      const of = addressed.get(partition);
      if (of === undefined) addressed.set(partition, [one]);
      else of.push(one);
    }
    return addressed;
  }

  #nextKeyless(): number {
    this.#keyless = (this.#keyless + 1) % 0x4000_0000;
    return this.#keyless;
  }

  /** The faults that are no record's own, one for each partition that has met one. */
  async #sendAll(
    topic: string,
    addressed: ReadonlyMap<number, readonly Outgoing[]>,
    deliveries: Delivery[],
  ): Promise<readonly unknown[]> {
    const errors = await Promise.all(
      [...addressed].map(([partition, records]) => this.#send({ topic, partition, deliveries }, records)),
    );
    return errors.filter((error) => error !== undefined);
  }

  /**
   * Sends the records to one partition, in order, halved where they are too large together, or where the topic refuses
   * one of them, so that a bad record fails alone. Resolves to the first fault that is no record's own, which ends it.
   */
  async #send(to: Place, records: readonly Outgoing[]): Promise<unknown> {
    const { cluster, runtime } = this.#options;
    const { topic, partition, deliveries } = to;
    const batch = encodeBatch(
      records.map(({ record }) => record),
      runtime.wallMs(),
    );
    if (batch.length > BATCH_MAX_BYTES && records.length > 1) return await this.#sendHalves(to, records);
    const limits = { timeoutMs: APPEND_TIMEOUT_MS, replicationTimeoutMs: REPLICATION_TIMEOUT_MS };
    try {
      await append(cluster, runtime, { topic, partition, lane: 'publish', ...limits, batch });
    } catch (error) {
      const fault = faultOf(error);
      if (!isRecordFault(fault)) return error;
      if (records.length > 1) return await this.#sendHalves(to, records);
      for (const { index } of records) {
        deliveries[index] = { ok: false, reason: `topic ${topic} refused the record: ${fault}` };
      }
      return undefined;
    }
    for (const { index } of records) deliveries[index] = { ok: true };
    return undefined;
  }

  async #sendHalves(to: Place, records: readonly Outgoing[]): Promise<unknown> {
    const half = Math.ceil(records.length / 2);
    return (await this.#send(to, records.slice(0, half))) ?? (await this.#send(to, records.slice(half)));
  }
}

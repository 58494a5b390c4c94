import { Bag, type InBag } from '../../async/bag.ts';
import type { Runtime } from '../../async/runtime.ts';
import { releaseAfter, Slots } from '../../async/slots.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { AppendQueue } from '../../kafka/loops/append-queue.ts';
import { append, type LeaderCluster } from '../../kafka/loops/leader-calls.ts';
import { DENSE, maxBytesOf, partitionFor } from '../../kafka/records/record.ts';
import { isUnusableTopic, meaningOf } from '../../kafka/wire/error-codes.ts';
import { KafkaError, kafkaErrorCode } from '../../kafka/wire/kafka-error.ts';
import type { Delivery, OutgoingRecord, Publisher } from '../../pipeline/ports.ts';
import { RecentTopics, Refusals, type Skipped } from './refusals.ts';
import type { ReplyTopics } from './reply-topics.ts';

/**
 * One topic's fault is not another's.
 *
 * The replies to one part of the requests go to many topics, of services that know nothing of each other. The offset of
 * the requests is committed once every one of them has its reply or its dead letter. So a reply that can't be written
 * holds up its neighbours, and the question for each error is whose it is.
 *
 * The trap is to ask that of a single error. A topic that was deleted looks, to the first broker that is asked, like
 * one that it has not heard of yet. A leader that has just moved refuses what the next one takes. If the first error
 * were final, an election would turn replies into dead letters. If every error were waited for, a topic that somebody
 * misspelt would stop its partition, and with it everybody who sends requests there.
 *
 * The idea is to judge errors that persist, each by its meaning in the table of error codes, and to let an error affect
 * no more than it belongs to. The first error of a topic may only show that its leader is known no more, so the leader
 * is looked up and the records are sent again. Then:
 *
 * - An error of a record, which is too large or of a time that the topic does not take, is the record's own. The batch
 *   is halved until the record stands alone, so it alone fails. One that is refused for its time is first sent again
 *   with the present one. What the topic refused is remembered for a while, so that a topic that takes no record costs
 *   a few appends and not two for each reply.
 * - An error of the topic that lasts, since the topic does not exist or a right is missing, fails the records of that
 *   topic. The topic is remembered as unwritable for a while, and is on probation afterwards. The exception is a topic
 *   that accepted records before: somebody has revoked the right by mistake, and it is waited for.
 * - An error of the topic that passes, since it has no leader or too few replicas, is waited for as long as an election
 *   takes. Then it counts as lasting. So does one that is not in the table, if the same broker accepts the records of
 *   other topics meanwhile.
 * - Anything else is an error of the brokers, and nobody's fault. No reply is refused for it: once the time is up, the
 *   whole publication is rejected, so that the part is tried again.
 *
 * All topics are written side by side, and up to 32 partitions of each, so that one service with many partitions does
 * not fill the brokers' connection; publications that go to the same partition share batches, because the replies of
 * every request partition to one service usually end in one.
 */

export interface KafkaPublisherOptions {
  readonly cluster: LeaderCluster;
  readonly runtime: Runtime;
  readonly topics: Pick<ReplyTopics, 'status' | 'invalidate' | 'markUnwritable' | 'clear'>;
  /** Brokers answer the appends of a connection in order. */
  readonly purpose: 'publish' | 'publish large';
  /** Forwarded requests go there, in batches that are never dense. */
  readonly requestTopic: string;
  /** Undefined where no dead letters are published. */
  readonly deadLetterTopic?: string;
  /** Whether the right to write a topic was revoked, so that it is waited for: it accepted records before. */
  readonly isRevoked?: (topic: string) => boolean;
  /** Records were not sent; once for each attempt to write a partition. */
  readonly onSkipped?: (skipped: Skipped) => void;
}

/** Keeps record batches below the brokers' default limit of 1 MiB. */
const BATCH_MAX_BYTES = 900_000;
/** Readers get a batch as a whole: it must not hold up their event loops. */
const BATCH_MAX_RECORDS = 5_000;
/** How long a topic without a leader or enough replicas is waited for: longer than an election takes. */
const TOPIC_TIMEOUT_MS = 10_000;
const RETRY_MS = 200;
/** How long a topic is not sent the time of a decision after it refused one. */
const UNDATED_MS = 60_000;
/** Partitions of a topic that one publication writes at the same time. */
const PARTITIONS_AT_ONCE = 32;
/** Appends of large replies at the same time: the responses to more would be handled in one turn of the event loop. */
const LARGE_APPENDS_AT_ONCE = 4;
/** After so long an append no longer counts as one of them, so that a slow broker does not hold up the others. */
const LARGE_APPEND_MS = 100;
/**
 * The time limit of one append, including those before it, since partitions take one at a time and brokers answer in
 * order.
 */
const APPEND_TIMEOUT_MS = 10_000;
/**
 * Queues that are not in use are dropped when there are twice as many as after the last time, and at least this many.
 */
const MIN_DROP = 1_000;
/** How long a broker may wait for its followers before it answers. */
const REPLICATION_TIMEOUT_MS = 5_000;

/** Records that are published together. `place` is the index of a record in it. */
interface Publication {
  /** The request partition that waits for it. */
  readonly partition: number;
  readonly records: readonly OutgoingRecord[];
  /** The outcome of each record; undefined until it is known. */
  readonly deliveries: Delivery[];
}

/** The destination of some of the records. */
interface Target {
  readonly topic: string;
  readonly partition: number;
}

/** Records on their way to places: partitions of a topic. */
interface Sending extends InBag {
  readonly partition: number;
  readonly topic: string;
  readonly places: Iterable<number>;
}

const DELIVERED: Delivery = Object.freeze({ ok: true });

/** Publishes by the rules above. The outcome of each record is written into `deliveries` once it is known. */
export class KafkaPublisher implements Publisher {
  readonly #options: KafkaPublisherOptions;
  /** Where records are being sent to, by topic of each publication. */
  readonly #sending = new Bag<Sending>();
  /**
   * The topics that refused a record for its time, as `message.timestamp.before.max.ms` makes them refuse the reply to
   * a retry: its time is when it was decided. They get the time of sending.
   */
  readonly #undated: RecentTopics<true>;
  readonly #refusals: Refusals;
  readonly #accepting = new AcceptingBrokers();
  readonly #largeAppends: Slots | undefined;
  /**
   * By topic and partition; now and then those are dropped that are not in use. Each time would keep garbage alive: see
   * `Bag`.
   */
  #queues = new Map<string, AppendQueue>();
  #dropAt = MIN_DROP;
  #keyless = 0;

  constructor(options: KafkaPublisherOptions) {
    this.#options = options;
    const { runtime, requestTopic, deadLetterTopic } = options;
    this.#largeAppends = options.purpose === 'publish large' ? new Slots(LARGE_APPENDS_AT_ONCE) : undefined;
    this.#undated = new RecentTopics(runtime, UNDATED_MS);
    this.#refusals = new Refusals(runtime, [requestTopic, ...(deadLetterTopic === undefined ? [] : [deadLetterTopic])]);
  }

  /** The partitions of topics that records are being sent to, with the request partitions that wait for that. */
  *sending() {
    for (const { partition, topic, places } of this.#sending)
      for (const place of places) yield { partition, topic, place };
  }

  async publish(records: readonly OutgoingRecord[], partition: number): Promise<readonly Delivery[]> {
    const publication = { partition, records, deliveries: new Array<Delivery>(records.length) };
    const byTopic = new Map<string, number[]>();
    records.forEach(({ topic }, index) => {
      addTo(byTopic, topic, index);
    });
    const outcomes = await Promise.allSettled(
      [...byTopic].map(([topic, indices]) => this.#publishTopic(topic, indices, publication)),
    );
    const failed = outcomes.find((outcome) => outcome.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    return publication.deliveries;
  }

  /** Retries until each record has an outcome, or the topic's time is up. */
  async #publishTopic(topic: string, indices: readonly number[], publication: Publication): Promise<void> {
    const { topics, runtime } = this.#options;
    const { deliveries } = publication;
    const startedMs = runtime.monotonicMs();
    for (let isRetried = false; ; ) {
      const left = indices.filter((index) => deliveries[index] === undefined);
      const refuse = (reason: string) => {
        for (const index of left) deliveries[index] = { ok: false, reason, cause: 'topic' };
      };
      const status = await topics.status(topic, highestPartition(left, publication));
      if (status.kind === 'unwritable') {
        this.#requireNotRevoked(topic);
        return refuse(status.reason);
      }
      if (status.kind === 'leaderless') {
        if (runtime.monotonicMs() - status.sinceMs >= TOPIC_TIMEOUT_MS) return refuse(`topic ${topic} has no leader`);
        await runtime.sleep(RETRY_MS);
        continue;
      }
      const addressed = this.#address(left, status.partitions, publication);
      const sending = { place: 0, partition: publication.partition, topic, places: [...addressed.keys()] };
      this.#sending.add(sending);
      const errors = await this.#sendAll(topic, addressed, publication).finally(() => this.#sending.remove(sending));
      if (errors.length === 0) {
        if (status.onProbation && addressed.size > 0) topics.clear(topic);
        return;
      }
      topics.invalidate(topic);
      if (isRetried) {
        const isOver = status.onProbation || runtime.monotonicMs() - startedMs >= TOPIC_TIMEOUT_MS;
        this.#judge(topic, errors, { isOver, startedMs });
        await runtime.sleep(RETRY_MS);
      }
      isRetried = true; // the first error may only reveal an outdated leader
    }
  }

  /** Interprets persistent errors of a topic. Throws unless they are the topic's own. */
  #judge(
    topic: string,
    errors: readonly unknown[],
    { isOver, startedMs }: { readonly isOver: boolean; readonly startedMs: number },
  ): void {
    const errorCodes = errors.map(kafkaErrorCode);
    const isOwn = (error: unknown) =>
      meaningOf(kafkaErrorCode(error)).isWeak === true ||
      (isUnlisted(error) && this.#accepting.hasOthers(error.node, topic, startedMs));
    if (errorCodes.some(isUnusableTopic)) this.#requireNotRevoked(topic);
    const own = errorCodes.find(isUnusableTopic) ?? (isOver && errors.every(isOwn) ? errorCodes[0] : undefined);
    if (own !== undefined) this.#options.topics.markUnwritable(topic, `topic ${topic} refused the record: ${own}`);
    else if (isOver) {
      const message = `topic ${topic} did not accept records: ${describeError(errors[0])}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: errors[0] });
    }
  }

  #requireNotRevoked(topic: string): void {
    if (this.#options.isRevoked?.(topic) !== true) return;
    throw new IdallocError(
      'KAFKA_UNAVAILABLE',
      `topic ${topic} rejects records, though it accepted some before: allow Write on it`,
    );
  }

  /** The places of the records, by partition. */
  #address(left: readonly number[], partitions: number, { records, deliveries }: Publication): Map<number, number[]> {
    const addressed = new Map<number, number[]>();
    for (const index of left) {
      const { topic, key, partition = partitionFor(key, partitions, this.#nextKeyless) } = recordAt(records, index);
      if (partition < partitions) addTo(addressed, partition, index);
      else {
        const reason = `topic ${topic} has no partition ${partition}: it has ${partitions}`;
        deliveries[index] = { ok: false, reason, cause: 'topic' };
      }
    }
    return addressed;
  }

  readonly #nextKeyless = (): number => {
    this.#keyless = (this.#keyless + 1) % 0x4000_0000;
    return this.#keyless;
  };

  /** The errors that are not a record's own, at most one per partition. After one no other partition is begun. */
  async #sendAll(
    topic: string,
    addressed: ReadonlyMap<number, readonly number[]>,
    publication: Publication,
  ): Promise<readonly unknown[]> {
    const errors: unknown[] = [];
    const places = addressed.entries();
    const lane = async () => {
      for (const [partition, indices] of places) {
        const error = await this.#send({ topic, partition }, indices, publication);
        if (error !== undefined) errors.push(error);
        if (errors.length > 0) return;
      }
    };
    await Promise.all(Array.from({ length: Math.min(addressed.size, PARTITIONS_AT_ONCE) }, lane));
    return errors;
  }

  /**
   * Sends the records to one partition, in order. Splits them in half if they are too large together or if the topic
   * rejects one of them, so that a bad record fails alone. If it rejects them for their time, sends them once more with
   * the present one. Stops at the first error that is not a record's own, and resolves to it.
   */
  async #send(to: Target, indices: readonly number[], publication: Publication): Promise<unknown> {
    const { records, deliveries } = publication;
    const refusals = this.#refusals;
    const isKnown = refusals.has(to.topic);
    if (isKnown && this.#refuseKnown(to, indices, publication)) {
      const left = indices.filter((index) => deliveries[index] === undefined);
      return left.length === 0 ? undefined : await this.#send(to, left, publication);
    }
    const isUndated = this.#undated.get(to.topic) === true;
    const due = indices.map((index) => (isUndated ? undated(recordAt(records, index)) : recordAt(records, index)));
    const bytes = due.reduce((sum, record) => sum + maxBytesOf(record), 0);
    if (due.length > 1 && (bytes > BATCH_MAX_BYTES || !refusals.takesBatch(to.topic, bytes)))
      return await this.#sendHalves(to, indices, publication);
    let delivery = DELIVERED;
    try {
      await this.#queue(to).add(due, bytes);
      refusals.accepted(to.topic);
    } catch (error) {
      const errorCode = kafkaErrorCode(error);
      if (!isOfRecord(errorCode)) return error;
      if (errorCode === 'INVALID_TIMESTAMP' && due.some(isDated)) {
        this.#undated.set(to.topic, true);
        return await this.#send(to, indices, publication);
      }
      refusals.refused(to.topic, errorCode, due.length, bytes);
      if (due.length > 1) return await this.#sendHalves(to, indices, publication, isKnown ? 0 : 1);
      delivery = { ok: false, reason: `topic ${to.topic} refused the record: ${errorCode}`, cause: 'record' };
    }
    for (const index of indices) deliveries[index] = delivery;
    return undefined;
  }

  /** Whether the topic would refuse some of the records; those are not sent. */
  #refuseKnown({ topic }: Target, indices: readonly number[], { records, deliveries }: Publication): boolean {
    let skipped: Skipped | undefined;
    for (const index of indices) {
      const expected = this.#refusals.expected(topic, maxBytesOf(recordAt(records, index)));
      if (expected === undefined) continue;
      const { message, ...refusal } = expected;
      deliveries[index] = { ok: false, reason: message, cause: 'record' };
      skipped = { ...refusal, records: 1 + (skipped?.records ?? 0) };
    }
    if (skipped !== undefined) this.#options.onSkipped?.(skipped);
    return skipped !== undefined;
  }

  /** What is published to the same partition shares appends. */
  #queue(to: Target): AppendQueue {
    const name = `${to.topic}/${to.partition}`;
    const known = this.#queues.get(name);
    if (known !== undefined) return known;
    const { cluster, runtime, purpose, requestTopic } = this.#options;
    const queue = new AppendQueue({
      runtime,
      append: async (records, waitedMs) => {
        const untilMs = runtime.monotonicMs() + APPEND_TIMEOUT_MS - waitedMs;
        const slot = await this.#largeAppends?.take();
        const release = slot && releaseAfter(runtime, LARGE_APPEND_MS, slot);
        const timeoutMs = untilMs - runtime.monotonicMs();
        const appending = { ...to, purpose, records, timeoutMs, replicationTimeoutMs: REPLICATION_TIMEOUT_MS };
        const { node } = await append(cluster, runtime, appending).finally(release);
        this.#accepting.add(node, to.topic, runtime.monotonicMs());
      },
      maxRecords: to.topic === requestTopic ? DENSE.records : BATCH_MAX_RECORDS,
      maxBytes: BATCH_MAX_BYTES,
      isOfRecord: (error) => isOfRecord(kafkaErrorCode(error)),
    });
    if (this.#queues.size >= this.#dropAt) this.#dropIdle();
    this.#queues.set(name, queue);
    return queue;
  }

  #dropIdle(): void {
    this.#queues = new Map([...this.#queues].filter(([, { isIdle }]) => !isIdle));
    this.#dropAt = Math.max(MIN_DROP, 2 * this.#queues.size);
  }

  /** `probes`: how many records go ahead alone, to show whether the topic takes any. */
  async #sendHalves(
    to: Target,
    indices: readonly number[],
    publication: Publication,
    probes: 0 | 1 = 0,
  ): Promise<unknown> {
    const half = probes + Math.ceil((indices.length - probes) / 2);
    for (const part of [indices.slice(0, probes), indices.slice(probes, half), indices.slice(half)]) {
      const error = part.length === 0 ? undefined : await this.#send(to, part, publication);
      if (error !== undefined) return error;
    }
    return undefined;
  }
}

function addTo<K>(groups: Map<K, number[]>, group: K, index: number): void {
  const known = groups.get(group);
  if (known === undefined) groups.set(group, [index]);
  else known.push(index);
}

/** The highest partition that one of the records names; 0 if none does. */
function highestPartition(left: readonly number[], { records }: Publication): number {
  return left.reduce((highest, index) => Math.max(highest, recordAt(records, index).partition ?? 0), 0);
}

function recordAt(records: readonly OutgoingRecord[], index: number): OutgoingRecord {
  const record = records[index];
  if (record === undefined) throw new RangeError(`no record at index ${index}`);
  return record;
}

/** Whether the topic refuses a record for what it is, so that it may take others. */
const isOfRecord = (errorCode: string | undefined) => meaningOf(errorCode).refuses === 'record';

/** An error whose code is not in the table, from a broker that is known. */
function isUnlisted(error: unknown): error is KafkaError & { readonly node: number } {
  return (
    error instanceof KafkaError && error.node !== undefined && Object.keys(meaningOf(error.errorCode)).length === 0
  );
}

/** For each broker the last topic whose records it accepted, and the last one before of another name. */
class AcceptingBrokers {
  readonly #last = new Map<number, readonly { readonly topic: string; readonly atMs: number }[]>();

  add(node: number, topic: string, atMs: number): void {
    const other = this.#last.get(node)?.find((one) => one.topic !== topic);
    this.#last.set(node, [{ topic, atMs }, ...(other === undefined ? [] : [other])]);
  }

  /** Whether the broker has accepted records of another topic since then. */
  hasOthers(node: number, topic: string, sinceMs: number): boolean {
    return this.#last.get(node)?.some((one) => one.topic !== topic && one.atMs >= sinceMs) === true;
  }
}

const isDated = ({ timestampMs }: OutgoingRecord) => timestampMs !== undefined;

/** A copy that has the time of its batch, which is made when it is sent. */
function undated({ topic, partition, key, value, headers }: OutgoingRecord): OutgoingRecord {
  return { topic, partition, key, value, headers };
}

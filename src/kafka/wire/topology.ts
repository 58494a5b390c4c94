import { KafkaError } from './kafka-error.ts';
import type { BrokerAddress, MetadataAnswer, TopicMetadata } from './port.ts';

/** A topic that was not used for this long is forgotten. */
const IN_USE_MS = 60_000;
const NO_LEADER = -1;

interface KnownTopic {
  readonly metadata: TopicMetadata;
  /** The number of the question that this answers. */
  readonly question: number;
}

/**
 * The cached metadata: the brokers, and the topics in use.
 *
 * Questions are numbered when they are sent. The answer to an older question never replaces that to a newer one, and a
 * doubt ends only with the answer to a question that was sent after it.
 */
export class Topology {
  readonly #brokers = new Map<number, BrokerAddress>();
  readonly #topics = new Map<string, KnownTopic>();
  readonly #usedMs = new Map<string, number>();
  /** Topics in doubt, with the number of the last question before the doubt. */
  readonly #doubts = new Map<string, number>();
  #questions = 0;
  #brokersOf = 0;

  /** The number of the question that is about to be sent. */
  ask(): number {
    this.#questions += 1;
    return this.#questions;
  }

  apply(question: number, answer: MetadataAnswer): void {
    if (question > this.#brokersOf) {
      this.#brokersOf = question;
      this.#brokers.clear();
      for (const { nodeId, host, port } of answer.brokers) this.#brokers.set(nodeId, { host, port });
    }
    for (const topic of answer.topics) if (this.#usedMs.has(topic.name)) this.#update(question, topic);
  }

  use(topic: string, nowMs: number): void {
    this.#usedMs.set(topic, nowMs);
  }

  /** The recently used topics; forgets the others. */
  inUse(nowMs: number): string[] {
    for (const [topic, usedMs] of this.#usedMs) {
      if (nowMs - usedMs < IN_USE_MS) continue;
      this.#usedMs.delete(topic);
      this.#topics.delete(topic);
      this.#doubts.delete(topic);
    }
    return [...this.#usedMs.keys()];
  }

  doubt(topic: string): void {
    if (this.#usedMs.has(topic)) this.#doubts.set(topic, this.#questions);
  }

  /** Doubts all topics of which the broker leads a partition, as far as is known. */
  doubtLedBy(node: number): void {
    for (const [topic, known] of this.#topics) if (leads(node, known)) this.doubt(topic);
  }

  /** Whether the node leads a partition of a topic in use. */
  leadsAny(node: number): boolean {
    return [...this.#topics.values()].some((known) => leads(node, known));
  }

  /** The topic, if it is cached, exists and is not in doubt. */
  known(topic: string): TopicMetadata | undefined {
    const known = this.#topics.get(topic);
    return known === undefined || known.metadata.errorCode !== undefined || this.#doubts.has(topic)
      ? undefined
      : known.metadata;
  }

  /** The topic as in the last answer; throws its error. */
  found(topic: string): TopicMetadata {
    const known = this.#topics.get(topic)?.metadata;
    if (known === undefined) throw new KafkaError('UNKNOWN_TOPIC_OR_PARTITION', `topic ${topic} is unknown`);
    if (known.errorCode !== undefined) throw new KafkaError(known.errorCode, `topic ${topic}: ${known.errorCode}`);
    return known;
  }

  hasLeader({ partitions }: Pick<TopicMetadata, 'partitions'>, partition: number): boolean {
    return this.#brokers.has(partitions[partition]?.leader ?? NO_LEADER);
  }

  /** The leader's node ID; throws UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE. */
  leaderOf({ name, partitions }: TopicMetadata, partition: number): number {
    const found = partitions[partition];
    const of = `partition ${partition} of topic ${name}`;
    if (found === undefined) throw new KafkaError('UNKNOWN_TOPIC_OR_PARTITION', `${of} does not exist`);
    if (!this.#brokers.has(found.leader)) throw new KafkaError('LEADER_NOT_AVAILABLE', `no broker leads ${of}`);
    return found.leader;
  }

  address(node: number): BrokerAddress | undefined {
    return this.#brokers.get(node);
  }

  /** Adds a coordinator that is not in the metadata yet. */
  addBroker(node: number, address: BrokerAddress): void {
    if (!this.#brokers.has(node)) this.#brokers.set(node, address);
  }

  get brokers(): ReadonlyMap<number, BrokerAddress> {
    return this.#brokers;
  }

  #update(question: number, metadata: TopicMetadata): void {
    const { name } = metadata;
    if (question < (this.#topics.get(name)?.question ?? 0)) return;
    this.#topics.set(name, { metadata, question });
    const doubted = this.#doubts.get(name);
    if (doubted !== undefined && doubted < question) this.#doubts.delete(name);
  }
}

function leads(node: number, { metadata }: KnownTopic): boolean {
  return metadata.partitions.some(({ leader }) => leader === node);
}

import type { Runtime, Timer } from '../../async/runtime.ts';
import type { Deadlines } from './deadlines.ts';
import { KafkaError } from './kafka-error.ts';
import type { BrokerAddress } from './port.ts';
import type { MetadataResponse, TopicMetadata } from './topic-apis.ts';

/** A topic that was not used for this long is forgotten. */
const IN_USE_MS = 60_000;
const NO_LEADER = -1;

interface KnownTopic {
  readonly metadata: TopicMetadata;
  /** The number of the metadata request whose response this is. */
  readonly requestNumber: number;
}

/**
 * The cached metadata: the brokers, and the topics in use.
 *
 * Metadata requests are numbered when they are sent. The response to an older request never replaces that to a newer
 * one, and a stale topic stays stale until the response to a request that was sent after it was marked.
 */
export class Topology {
  readonly #brokers = new Map<number, BrokerAddress>();
  readonly #topics = new Map<string, KnownTopic>();
  readonly #usedMs = new Map<string, number>();
  /** Stale topics, with the number of the last request before they were marked. */
  readonly #staleAsOf = new Map<string, number>();
  /** Topics of which a caller needs to know more than is cached. */
  readonly #wanted = new Set<string>();
  #requests = 0;
  #brokersAsOf = 0;

  /** The number of the request that is about to be sent. */
  nextRequestNumber(): number {
    this.#requests += 1;
    return this.#requests;
  }

  update(requestNumber: number, response: MetadataResponse): void {
    if (requestNumber > this.#brokersAsOf) {
      this.#brokersAsOf = requestNumber;
      this.#brokers.clear();
      for (const { nodeId, host, port } of response.brokers) this.#brokers.set(nodeId, { host, port });
    }
    for (const topic of response.topics) if (this.#usedMs.has(topic.name)) this.#updateTopic(requestNumber, topic);
  }

  use(topic: string, nowMs: number): void {
    this.#usedMs.set(topic, nowMs);
  }

  /** What is cached of a topic in use is not enough for a caller. */
  want(topic: string): void {
    this.#wanted.add(topic);
  }

  /** The topics to ask for: those that are wanted, from now on again, and those that are stale. */
  takeWanted(): string[] {
    const topics = new Set([...this.#wanted, ...this.#staleAsOf.keys()]);
    this.#wanted.clear();
    return [...topics];
  }

  /** The recently used topics; forgets the others. */
  inUse(nowMs: number): string[] {
    for (const [topic, usedMs] of this.#usedMs) {
      if (nowMs - usedMs < IN_USE_MS) continue;
      this.#usedMs.delete(topic);
      this.#topics.delete(topic);
      this.#staleAsOf.delete(topic);
    }
    return [...this.#usedMs.keys()];
  }

  markStale(topic: string): void {
    if (this.#usedMs.has(topic)) this.#staleAsOf.set(topic, this.#requests);
  }

  /** Marks all topics of which the broker leads a partition, according to the cache. */
  markStaleLedBy(node: number): void {
    for (const [topic, known] of this.#topics) if (leads(node, known)) this.markStale(topic);
  }

  /** Whether the node leads a partition of a topic in use. */
  leadsAny(node: number): boolean {
    return [...this.#topics.values()].some((known) => leads(node, known));
  }

  /** The topic, if it is cached, exists and is not stale. */
  known(topic: string): TopicMetadata | undefined {
    const known = this.#topics.get(topic);
    return known === undefined || known.metadata.errorCode !== undefined || this.#staleAsOf.has(topic)
      ? undefined
      : known.metadata;
  }

  /** The topic as in the last response; throws its error. */
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

  /**
   * The leader in the last response, even if that is stale; undefined if the topic is not in use, or the partition has
   * none.
   */
  lastLeader(topic: string, partition: number): number | undefined {
    const leader = this.#topics.get(topic)?.metadata.partitions[partition]?.leader;
    return leader === NO_LEADER ? undefined : leader;
  }

  /** Adds a coordinator that is not in the metadata yet. */
  addBroker(node: number, address: BrokerAddress): void {
    if (!this.#brokers.has(node)) this.#brokers.set(node, address);
  }

  /** By node ID. */
  get brokers(): ReadonlyMap<number, BrokerAddress> {
    return this.#brokers;
  }

  #updateTopic(requestNumber: number, metadata: TopicMetadata): void {
    const { name } = metadata;
    if (requestNumber < (this.#topics.get(name)?.requestNumber ?? 0)) return;
    this.#topics.set(name, { metadata, requestNumber });
    const staleAsOf = this.#staleAsOf.get(name);
    if (staleAsOf !== undefined && staleAsOf < requestNumber) this.#staleAsOf.delete(name);
  }
}

function leads(node: number, { metadata }: KnownTopic): boolean {
  return metadata.partitions.some(({ leader }) => leader === node);
}

/** The shortest time between the starts of two refreshes. */
const MIN_INTERVAL_MS = 100;
/** The time to the next periodic refresh. */
const REFRESH_INTERVAL_MS = 10_000;
const URGENT_GAP_MS = 500;

export interface RefresherOptions {
  readonly runtime: Runtime;
  readonly deadlines: Deadlines;
  /** Requests the metadata of everything in use, or only of what is wanted. Rejects when no broker answers. */
  readonly refresh: (of: 'all' | 'wanted') => Promise<void>;
  /** Whether any topic is in use. */
  readonly isWanted: () => boolean;
  /** Whether a broker is suspect. */
  readonly isUrgent: () => boolean;
}

/**
 * When the topology is refreshed: on demand, what is wanted, and periodically, everything in use. A worker may use
 * thousands of topics, of which one is in doubt. One refresh at a time; a caller that comes while one is
 * in progress waits for the next, because its response may be older than the reason for the refresh.
 */
export class Refresher {
  readonly #options: RefresherOptions;
  #running: Promise<void> = Promise.resolve();
  #next: Promise<void> | undefined;
  #startedMs = Number.NEGATIVE_INFINITY;
  /** When everything in use was requested last. */
  #wholeMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  constructor(options: RefresherOptions) {
    this.#options = options;
  }

  /** Settles with a refresh that starts after this call. */
  next(): Promise<void> {
    this.#next ??= this.#start();
    return this.#next;
  }

  /** Resolves when the refresh in progress, if any, has succeeded or failed. */
  async ended(): Promise<void> {
    await this.#running.catch(() => undefined);
  }

  /** Schedules the next periodic refresh. */
  scheduleNext(): void {
    const { runtime, deadlines, isWanted } = this.#options;
    this.#timer?.cancel();
    this.#timer = undefined;
    if (deadlines.closed || this.#next !== undefined || !isWanted()) return;
    this.#timer = runtime.schedule(Math.max(0, this.#dueMs - runtime.monotonicMs()), () => {
      this.#timer = undefined;
      if (isWanted()) this.next().catch(() => undefined); // the next one is scheduled anyway
    });
  }

  close(): void {
    this.#timer?.cancel();
  }

  /** When everything in use is requested next. */
  get #dueMs(): number {
    return this.#wholeMs + (this.#options.isUrgent() ? URGENT_GAP_MS : REFRESH_INTERVAL_MS);
  }

  async #start(): Promise<void> {
    const { runtime, deadlines, refresh } = this.#options;
    try {
      await this.ended();
      const dueMs = this.#startedMs + MIN_INTERVAL_MS;
      if (dueMs > runtime.monotonicMs()) await deadlines.until(dueMs);
    } finally {
      this.#next = undefined;
    }
    this.#startedMs = runtime.monotonicMs();
    const isWhole = this.#startedMs >= this.#dueMs;
    if (isWhole) this.#wholeMs = this.#startedMs;
    this.#running = refresh(isWhole ? 'all' : 'wanted').finally(() => this.scheduleNext());
    return this.#running;
  }
}

import type { Kafka, Producer } from 'kafkajs';
import { createPartitioner } from './partitioner.ts';

/** kafkajs reads the metadata of all topics that a producer has ever had, whenever one is added. */
const MAX_TOPICS = 256;

interface Shared {
  readonly producer: Promise<Producer>;
  readonly topics: Set<string>;
  users: number;
  retired: boolean;
}

/**
 * Producers for topics that others own.
 *
 * A kafkajs producer never forgets a topic, and reads the metadata of all its topics at once: when one of them is deleted
 * or has no leader, the others fail with it, from the next reading on. So the ledger has a producer of its own, a
 * producer that has met a fault is replaced, and a topic in doubt is tried with a producer that has no other.
 */
export class ReplyProducers {
  readonly #kafka: Pick<Kafka, 'producer'>;
  readonly #closing = new Set<Promise<void>>();
  #shared: Shared | undefined;

  constructor(kafka: Pick<Kafka, 'producer'>) {
    this.#kafka = kafka;
  }

  /** Runs `use` with the producer that all topics share; after a fault it is nobody's any more. */
  async shared<T>(topic: string, use: (producer: Producer) => Promise<T>): Promise<T> {
    const shared = this.#current(topic);
    shared.users += 1;
    try {
      return await use(await shared.producer);
    } catch (error) {
      this.#retire(shared);
      throw error;
    } finally {
      shared.users -= 1;
      this.#closeUnused(shared);
    }
  }

  /** Runs `use` with a producer that has nothing to do with any other topic. */
  async alone<T>(use: (producer: Producer) => Promise<T>): Promise<T> {
    const producer = this.#connect();
    try {
      return await use(await producer);
    } finally {
      this.#close(producer);
    }
  }

  async close(): Promise<void> {
    const last = this.#shared;
    if (last !== undefined) {
      this.#shared = undefined;
      this.#close(last.producer);
    }
    await Promise.all(this.#closing);
  }

  #current(topic: string): Shared {
    if (this.#shared !== undefined && this.#shared.topics.size >= MAX_TOPICS && !this.#shared.topics.has(topic)) {
      this.#retire(this.#shared);
    }
    this.#shared ??= { producer: this.#connect(), topics: new Set(), users: 0, retired: false };
    this.#shared.topics.add(topic);
    return this.#shared;
  }

  #retire(shared: Shared): void {
    shared.retired = true;
    if (this.#shared === shared) this.#shared = undefined;
    this.#closeUnused(shared);
  }

  #closeUnused(shared: Shared): void {
    if (shared.retired && shared.users === 0) this.#close(shared.producer);
  }

  async #connect(): Promise<Producer> {
    const producer = this.#kafka.producer({ createPartitioner, allowAutoTopicCreation: false });
    await producer.connect();
    return producer;
  }

  /** In the background: nobody waits for the end of a producer that is no longer used. */
  #close(producer: Promise<Producer>): void {
    const closed = producer.then(
      (connected) => connected.disconnect(),
      () => undefined, // it never connected, which its users were told
    );
    const done = closed.catch(() => undefined).finally(() => this.#closing.delete(done));
    this.#closing.add(done);
  }
}

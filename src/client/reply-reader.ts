import { randomUUID } from 'node:crypto';
import kafkajs, { type Consumer, type Kafka, type KafkaMessage, type PartitionAssigner } from 'kafkajs';
import { describeError, IdallocError } from '../errors.ts';
import type { System } from './system.ts';

export interface ReplyReaderOptions {
  readonly kafka: Kafka;
  readonly system: System;
  readonly topic: string;
  readonly partition: number;
  /** Where to begin: the end of the partition before the first request goes out. */
  readonly offset: string;
  readonly onMessage: (message: KafkaMessage) => void;
  readonly onFault: (error: Error) => void;
}

/** 5, 10, ... 160 ms, then 200: about 2 s. What fails for longer is told, and tried again by whoever asked. */
export const RETRY = { initialRetryTime: 5, maxRetryTime: 200, retries: 15 };

const JOIN_TIMEOUT_MS = 30_000;
const LEAVE_TIMEOUT_MS = 10_000;
const FETCH_WAIT_MS = 500;
/** A reader that fetches nothing for so long, not even nothing, has been lost in a way that kafkajs does not tell. */
const SILENCE_LIMIT_MS = 30_000;
const WATCH_EVERY_MS = 5_000;
const REST_MS = 1_000;

/**
 * Follows one partition of a topic until it is closed, with one consumer of kafkajs after the other: it gives one up for
 * good after faults of a moment. A new one goes on where the last one stood.
 *
 * kafkajs reads only as the member of a group, so each consumer has a group that nobody else has, with an assigner that
 * takes the one partition; nothing is ever committed in it.
 */
export class ReplyReader {
  readonly #options: ReplyReaderOptions;
  #offset: string;
  #consumer: Consumer | undefined;
  /** When each consumer had begun, or was refused: before that kafkajs disconnects none, and the group keeps a member. */
  readonly #begun = new WeakMap<Consumer, Promise<unknown>>();
  /** What was begun for the consumers before this one; never rejects. */
  #ended: Promise<unknown> = Promise.resolve();
  #fetchedMs = 0;
  #closed = false;
  #cancel: () => void = () => undefined;

  get partition(): number {
    return this.#options.partition;
  }

  constructor(options: ReplyReaderOptions) {
    this.#options = options;
    this.#offset = options.offset;
  }

  /** Resolves when replies are read. Throws IdallocError KAFKA_UNAVAILABLE. */
  async start(): Promise<void> {
    const { topic, system } = this.#options;
    const consumer = this.#make();
    this.#consumer = consumer;
    try {
      await inTime(system, JOIN_TIMEOUT_MS, this.#run(consumer));
    } catch (error) {
      await this.#leave(consumer);
      const message = `the replies on '${topic}' can not be read: ${describeError(error)}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
    this.#watch(consumer);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel();
    const consumer = this.#consumer;
    this.#consumer = undefined;
    if (consumer !== undefined) await this.#leave(consumer);
    await this.#ended;
  }

  #make(): Consumer {
    const { kafka, topic, partition } = this.#options;
    return kafka.consumer({
      groupId: `idalloc-client-${randomUUID()}`,
      partitionAssigners: [onlyPartition(topic, partition)],
      allowAutoTopicCreation: false,
      maxWaitTimeInMs: FETCH_WAIT_MS,
      retry: { ...RETRY, restartOnFailure: async () => false },
    });
  }

  /** Resolves after the first join, when kafkajs can end the consumer; rejects when it does not come to that. */
  #run(consumer: Consumer): Promise<void> {
    const { topic, partition, system } = this.#options;
    return new Promise((resolve, reject) => {
      let joined = false;
      let rejoining = false;
      consumer.on('consumer.group_join', () => {
        consumer.seek({ topic, partition, offset: this.#offset });
        this.#fetchedMs = system.monotonicMs();
        joined = true;
        rejoining = false;
      });
      consumer.on('consumer.rebalancing', () => {
        rejoining = true;
      });
      consumer.on('consumer.heartbeat', () => {
        // A join that failed is not tried again by kafkajs, which goes on without an assignment.
        if (rejoining) this.#lost(consumer, new Error('the group was not joined after a rebalance'));
      });
      consumer.on('consumer.fetch', () => {
        this.#fetchedMs = system.monotonicMs();
      });
      consumer.on('consumer.crash', ({ payload }) => {
        if (joined) this.#lost(consumer, payload.error);
        else reject(payload.error);
      });
      const begun = this.#begin(consumer);
      this.#begun.set(consumer, begun);
      begun.then(() => {
        if (joined) resolve();
      }, reject);
    });
  }

  async #begin(consumer: Consumer): Promise<void> {
    await consumer.connect();
    await consumer.subscribe({ topic: this.#options.topic, fromBeginning: false });
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ message }) => {
        if (this.#consumer !== consumer) return;
        this.#offset = String(BigInt(message.offset) + 1n);
        this.#options.onMessage(message);
      },
    });
  }

  #watch(consumer: Consumer): void {
    const { system } = this.#options;
    if (this.#consumer !== consumer || this.#closed) return;
    this.#cancel = system.schedule(WATCH_EVERY_MS, () => {
      const silentMs = system.monotonicMs() - this.#fetchedMs;
      if (silentMs > SILENCE_LIMIT_MS) this.#lost(consumer, new Error(`nothing was fetched for ${silentMs} ms`));
      else this.#watch(consumer);
    });
  }

  #lost(consumer: Consumer, cause: Error): void {
    if (this.#consumer !== consumer || this.#closed) return;
    const { topic, system, onFault } = this.#options;
    this.#consumer = undefined;
    this.#cancel();
    const message = `reading '${topic}' ended, it is begun anew: ${describeError(cause)}`;
    onFault(new IdallocError('KAFKA_UNAVAILABLE', message, { cause }));
    const left = this.#leave(consumer);
    this.#ended = Promise.all([this.#ended, left]);
    this.#cancel = system.schedule(REST_MS, () => void this.#again());
  }

  async #again(): Promise<void> {
    const { system, onFault } = this.#options;
    if (this.#closed) return;
    try {
      await this.start();
    } catch (error) {
      if (this.#closed) return;
      onFault(error as Error);
      this.#consumer = undefined;
      this.#cancel = system.schedule(REST_MS, () => void this.#again());
    }
  }

  /** kafkajs may never end a consumer whose broker is gone; nobody waits longer for it than this. */
  async #leave(consumer: Consumer): Promise<void> {
    const { system, onFault } = this.#options;
    const begun = (this.#begun.get(consumer) ?? Promise.resolve()).catch(() => undefined); // whoever started it was told
    await inTime(
      system,
      LEAVE_TIMEOUT_MS,
      begun.then(() => consumer.disconnect()),
    ).catch(onFault);
  }
}

/** Gives each member the one partition. There is one member, save while one of the past is still remembered. */
function onlyPartition(topic: string, partition: number): PartitionAssigner {
  const { MemberAssignment, MemberMetadata } = kafkajs.AssignerProtocol;
  const name = 'OnlyPartition';
  const version = 0;
  const userData = Buffer.alloc(0);
  return () => ({
    name,
    version,
    protocol: ({ topics }) => ({ name, metadata: MemberMetadata.encode({ version, topics, userData }) }),
    assign: async ({ members }) => {
      const memberAssignment = MemberAssignment.encode({ version, assignment: { [topic]: [partition] }, userData });
      return members.map(({ memberId }) => ({ memberId, memberAssignment }));
    },
  });
}

/** Rejects when the work takes longer. */
export function inTime<T>(system: System, limitMs: number, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = system.schedule(limitMs, () => reject(new Error(`no end of it within ${limitMs} ms`)));
    work.then(resolve, reject).finally(cancel);
  });
}

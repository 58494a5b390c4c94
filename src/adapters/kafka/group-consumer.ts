import type { Consumer, ConsumerConfig, ConsumerRunConfig, Kafka } from 'kafkajs';
import { IdallocError } from '../../errors.ts';

/** Longer without a heartbeat, and the brokers give a member up. */
const SESSION_TIMEOUT_MS = 10_000;
/** Whoever ends a consumer that is starting waits so long; the rest of it goes on without a witness. */
const END_LIMIT_MS = 1_000;

export interface GroupConsumerOptions {
  readonly kafka: Kafka;
  readonly topic: string;
  readonly config: ConsumerConfig;
  /** Runs inside each join, before the first fetch of its generation. */
  readonly onJoin: (partitions: readonly number[]) => void;
  /** The generation ends: for another one, or for good. */
  readonly onInterrupted?: () => void;
  /** The coordinator has taken a heartbeat. */
  readonly onHeartbeat?: () => void;
  /** It ended, or does not read any more, and will not come back by itself: somebody has to make a new one. */
  readonly onCrash: (error: Error) => void;
}

/**
 * One consumer of kafkajs on one topic, whose join and end can be relied on.
 *
 * - When a join fails for a passing cause, such as a connection that breaks, kafkajs goes on without it, in
 *   the generation before or without the assignment of the new one, and tells nobody: a heartbeat that is accepted before
 *   a join shows it, and counts as a crash.
 * - When kafkajs is told to disconnect a consumer that is starting, or about to start again after a crash, that one joins
 *   its group a moment later all the same and can't be stopped any more: nobody reads the partitions that it gets. So
 *   the end waits for the start, whichever way that goes, and allows no further one.
 */
export class GroupConsumer {
  readonly consumer: Consumer;
  readonly #options: GroupConsumerOptions;
  /** From the beginning of a start, or from the crash that it is to mend, to its end. */
  #starting: PromiseWithResolvers<void> | undefined;
  #restarting = false;
  /** A new generation is due, and kafkajs has not told yet that it was joined. */
  #rejoining = false;
  #ending = false;

  constructor(options: GroupConsumerOptions) {
    this.#options = options;
    const { kafka, config, topic } = options;
    this.consumer = kafka.consumer({
      sessionTimeout: SESSION_TIMEOUT_MS,
      allowAutoTopicCreation: false,
      ...config,
      retry: { ...config.retry, restartOnFailure: async () => !this.#ending },
    });
    this.consumer.on('consumer.group_join', ({ payload }) => {
      this.#rejoining = false;
      this.#started();
      if (!this.#ending) options.onJoin(payload.memberAssignment[topic] ?? []);
    });
    this.consumer.on('consumer.rebalancing', () => {
      this.#rejoining = true;
      options.onInterrupted?.();
    });
    this.consumer.on('consumer.heartbeat', () => this.#heartbeatAccepted());
    this.consumer.on('consumer.crash', ({ payload }) => this.#crashed(payload));
  }

  /**
   * Joins the group and reads: what was never committed from its beginning, nothing resolved or committed by itself.
   * Resolves when the group was joined, or not joined for a cause that a crash tells.
   */
  async run(config: ConsumerRunConfig): Promise<void> {
    await this.consumer.connect();
    await this.consumer.subscribe({ topic: this.#options.topic, fromBeginning: true });
    this.#starting ??= Promise.withResolvers();
    try {
      await this.consumer.run({ autoCommit: false, eachBatchAutoResolve: false, ...config });
    } finally {
      if (!this.#restarting) this.#started();
    }
  }

  /** Leaves the group and disconnects. While a start is under way that comes after it, and is not waited for long. */
  async end(): Promise<void> {
    this.#ending = true;
    if (this.#starting === undefined) return await this.consumer.disconnect();
    const limit = Promise.withResolvers<void>();
    const timer = setTimeout(limit.resolve, END_LIMIT_MS);
    const ended = this.#starting.promise.then(() => this.consumer.disconnect());
    ended.catch(() => undefined); // kafkajs logs it, and after the limit nobody is left to be told
    try {
      await Promise.race([ended, limit.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  #heartbeatAccepted(): void {
    const { topic, onHeartbeat, onCrash } = this.#options;
    onHeartbeat?.();
    if (!this.#rejoining || this.#ending) return;
    this.#rejoining = false;
    onCrash(new IdallocError('KAFKA_UNAVAILABLE', `the group that reads '${topic}' was not joined after a rebalance`));
  }

  #crashed({ error, restart }: { readonly error: Error; readonly restart: boolean }): void {
    this.#rejoining = false;
    if (restart) {
      this.#restarting = true;
      this.#starting ??= Promise.withResolvers();
    } else this.#started();
    this.#options.onInterrupted?.();
    if (!restart && !this.#ending) this.#options.onCrash(error);
  }

  /** kafkajs tells of a join before the consumer counts as running; a turn later it does, and can be stopped. */
  #started(): void {
    const started = this.#starting;
    this.#starting = undefined;
    this.#restarting = false;
    if (started !== undefined) setImmediate(started.resolve);
  }
}

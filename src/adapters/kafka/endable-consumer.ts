import type { Consumer, ConsumerConfig, ConsumerRunConfig, Kafka } from 'kafkajs';

/** Whoever ends a consumer that is starting waits so long; the rest of it goes on without a witness. */
const END_LIMIT_MS = 1_000;

/**
 * A consumer of kafkajs that stays ended. When kafkajs is told to disconnect one that is starting, or about to start
 * again after a crash, that one joins its group a moment later all the same and can't be stopped any more: nobody reads
 * the partitions that it gets. So the end waits for the start, whichever way that goes, and allows no further one.
 */
export class EndableConsumer {
  readonly consumer: Consumer;
  /** From the beginning of a start, or from the crash that it is to mend, to its end. */
  #starting: PromiseWithResolvers<void> | undefined;
  #restarting = false;
  #ending = false;

  constructor(kafka: Kafka, config: ConsumerConfig) {
    const restartOnFailure = async () => !this.#ending;
    this.consumer = kafka.consumer({ ...config, retry: { ...config.retry, restartOnFailure } });
    this.consumer.on('consumer.group_join', () => this.#started());
    this.consumer.on('consumer.crash', ({ payload }) => {
      if (!payload.restart) return this.#started();
      this.#restarting = true;
      this.#starting ??= Promise.withResolvers();
    });
  }

  /** As the consumer's own; resolves when the group was joined, or not joined for a cause that a crash tells. */
  async run(config: ConsumerRunConfig): Promise<void> {
    this.#starting ??= Promise.withResolvers();
    try {
      await this.consumer.run(config);
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

  /** kafkajs tells of a join before the consumer counts as running; a turn later it does, and can be stopped. */
  #started(): void {
    const started = this.#starting;
    this.#starting = undefined;
    this.#restarting = false;
    if (started !== undefined) setImmediate(started.resolve);
  }
}

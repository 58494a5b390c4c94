import type { Kafka, KafkaMessage } from 'kafkajs';
import type { IdBatch } from '../../src/codec/id-batch.ts';
import { decodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import type { Encoding } from '../../src/codec/id-request.ts';
import { PATIENT } from './test-kafka.ts';
import { unique } from './unique.ts';
import { Watchers } from './watchers.ts';

/** A record of a topic that a test follows. */
export interface Seen {
  readonly partition: number;
  readonly offset: number;
  readonly message: KafkaMessage;
  /** When it arrived, by the monotonic clock. */
  readonly atMs: number;
}

export interface DecodedReply {
  readonly reply: IdReply & { readonly encoding: Encoding };
  readonly replayed: boolean;
  readonly seen: Seen;
}

export function decodeReply(seen: Seen): DecodedReply {
  const { value, headers } = seen.message;
  if (value === null) throw new Error('a reply without a value');
  return { reply: decodeIdReply(value), replayed: headers?.['idalloc-replayed'] !== undefined, seen };
}

/** The batch of a reply; throws if the reply is an error. */
export function batchOf({ reply }: Pick<DecodedReply, 'reply'>): IdBatch {
  if ('batch' in reply) return reply.batch;
  throw new Error('error' in reply ? `${reply.error.code}: ${reply.error.message}` : 'numbers');
}

/** The minimum that a broker accepts, so that a member that has disappeared delays the group as little as possible. */
const SESSION_TIMEOUT_MS = 6_000;

/** All records of a topic so far, in log order within each partition, and promises for records to come. */
export class Followed implements AsyncDisposable {
  readonly topic: string;
  readonly #kafka: Kafka;
  #consumer: ReturnType<Kafka['consumer']>;
  readonly #seen: Seen[] = [];
  readonly #ends = new Map<number, number>();
  readonly #watchers = new Watchers();
  #ended = false;

  private constructor(kafka: Kafka, topic: string) {
    this.topic = topic;
    this.#kafka = kafka;
    this.#consumer = this.#makeConsumer();
  }

  /** Reads the topic from its beginning, in a new group. */
  static async start(kafka: Kafka, topic: string): Promise<Followed> {
    const followed = new Followed(kafka, topic);
    await followed.#run();
    return followed;
  }

  get seen(): readonly Seen[] {
    return this.#seen;
  }

  /** Resolves when the records seen satisfy a condition; rejects at the timeout, with `what` in the message. */
  async until(what: string, satisfies: (seen: readonly Seen[]) => boolean, timeoutMs?: number): Promise<void> {
    await this.#watchers.wait({
      what: () => `${what} on ${this.topic}, where ${this.#seen.length} records were seen`,
      look: () => (satisfies(this.#seen) ? true : undefined),
      timeoutMs,
    });
  }

  /** All replies by correlation ID, in order, once `atLeast` correlation IDs have one. */
  async replies(atLeast: number, timeoutMs?: number): Promise<ReadonlyMap<string, readonly DecodedReply[]>> {
    const answered = new Set<string>();
    let counted = 0;
    const enough = (seen: readonly Seen[]): boolean => {
      for (; counted < seen.length; counted += 1) answered.add(String(seen[counted]?.message.key));
      return answered.size >= atLeast;
    };
    await this.until(`replies to ${atLeast} requests`, enough, timeoutMs);
    return Map.groupBy(this.#seen.map(decodeReply), ({ reply }) => reply.correlationId.toString());
  }

  /** The `nth` reply to one request, the first by default. */
  async reply(correlationId: string | Buffer, nth = 0): Promise<DecodedReply> {
    const key = Buffer.from(correlationId);
    const found = () => this.#seen.filter(({ message }) => message.key?.equals(key))[nth];
    await this.until(`reply ${nth} to ${correlationId}`, () => found() !== undefined);
    return decodeReply(found() as Seen);
  }

  /** The batch of one request; throws if it got an error. */
  async batch(correlationId: string | Buffer): Promise<IdBatch> {
    return batchOf(await this.reply(correlationId));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended = true;
    await this.#consumer.disconnect();
  }

  /**
   * kafkajs stops a consumer permanently after some errors of a broker that starts or restarts, and does nothing about
   * a consumer that fails to join. In both cases it is replaced by a new one.
   */
  #makeConsumer(): ReturnType<Kafka['consumer']> {
    const consumer = this.#kafka.consumer({
      groupId: `follow-${unique()}`,
      maxWaitTimeInMs: 50,
      sessionTimeout: SESSION_TIMEOUT_MS,
      retry: PATIENT,
    });
    let joining = true;
    const replace = async () => {
      if (this.#consumer !== consumer) return;
      await Promise.all([this.#resume(), consumer.disconnect()]);
    };
    consumer.on('consumer.rebalancing', () => {
      joining = true;
    });
    consumer.on('consumer.group_join', () => {
      joining = false;
    });
    consumer.on('consumer.heartbeat', () => {
      if (joining) void replace();
    });
    consumer.on('consumer.crash', ({ payload }) => {
      if (!payload.restart) void replace();
    });
    return consumer;
  }

  async #resume(): Promise<void> {
    while (!this.#ended) {
      this.#consumer = this.#makeConsumer();
      try {
        return await this.#run();
      } catch {
        // The broker is not back yet; kafkajs has retried for a while before it rejected.
        await this.#consumer.disconnect();
      }
    }
  }

  async #run(): Promise<void> {
    await this.#consumer.connect();
    await this.#consumer.subscribe({ topic: this.topic, fromBeginning: true });
    await this.#consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => this.#take(batch.partition, batch.messages),
    });
  }

  /** A reader that rejoins its group starts over, since it commits nothing: known records are skipped. */
  #take(partition: number, messages: readonly KafkaMessage[]): void {
    const atMs = performance.now();
    for (const message of messages) {
      const offset = Number(message.offset);
      if (offset < (this.#ends.get(partition) ?? 0)) continue;
      this.#ends.set(partition, offset + 1);
      this.#seen.push({ partition, offset, message, atMs });
    }
    this.#watchers.changed();
  }
}

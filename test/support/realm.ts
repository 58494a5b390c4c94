import { randomUUID } from 'node:crypto';
import { type Admin, type Consumer, Kafka, type KafkaMessage, logLevel, Partitioners, type Producer } from 'kafkajs';
import { initTopics } from '../../src/adapters/kafka/topics.ts';
import { decodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import { type Encoding, encodeIdRequest } from '../../src/codec/id-request.ts';
import { loadKafkaConfig } from '../../src/config.ts';
import type { SuiteServers } from './servers.ts';
import { WorkerProcess } from './worker-process.ts';

/** A request as a test asks it. */
export interface Ask {
  readonly correlationId: string;
  readonly count: number;
  readonly encoding?: Encoding;
  readonly replyTopic?: string;
  readonly partition?: number;
  readonly expiresAtMs?: number;
}

/** A record of the reply or dead-letter topic. */
export interface Seen {
  readonly partition: number;
  readonly offset: number;
  readonly message: KafkaMessage;
}

/**
 * Topics, group and etcd prefix of one test, so that tests share servers and nothing else. Its Kafka client is the
 * test's own; workers are processes.
 */
export class Realm implements AsyncDisposable {
  readonly env: Readonly<Record<string, string>>;
  readonly replyTopic: string;
  readonly kafka: Kafka;
  readonly admin: Admin;
  readonly #producer: Producer;
  readonly #stack = new AsyncDisposableStack();

  private constructor(servers: SuiteServers, options: RealmOptions) {
    const id = randomUUID().slice(0, 8);
    this.replyTopic = `t${id}.replies.main`;
    this.env = {
      KAFKA_BROKERS: servers.brokers.join(','),
      ETCD_ENDPOINTS: servers.etcdEndpoints.join(','),
      ETCD_PREFIX: `/test-${id}`,
      KAFKA_GROUP_ID: `t${id}`,
      REQUEST_TOPIC: `t${id}.requests`,
      LEDGER_TOPIC: `t${id}.ledger`,
      DEAD_LETTER_TOPIC: `t${id}.requests.dlt`,
      REPLY_TOPIC_PREFIX: `t${id}.replies.`,
      REQUEST_PARTITIONS: String(options.partitions ?? 3),
      TOPIC_REPLICATION_FACTOR: '1',
      ALLOW_WEAK_LEDGER: '1',
      DATACENTER_ID: '4',
      ...options.env,
    };
    this.kafka = new Kafka({ brokers: [...servers.brokers], logLevel: logLevel.NOTHING });
    this.admin = this.kafka.admin();
    this.#producer = this.kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  }

  static async create(servers: SuiteServers, options: RealmOptions = {}): Promise<Realm> {
    const realm = new Realm(servers, options);
    await Promise.all([realm.admin.connect(), realm.#producer.connect()]);
    realm.#stack.defer(() => realm.admin.disconnect());
    realm.#stack.defer(() => realm.#producer.disconnect());
    await initTopics(realm.admin, loadKafkaConfig(realm.env).topics);
    const topics = [{ topic: realm.replyTopic, numPartitions: options.partitions ?? 3, replicationFactor: 1 }];
    await realm.admin.createTopics({ topics, waitForLeaders: true });
    return realm;
  }

  get requestTopic(): string {
    return this.#name('REQUEST_TOPIC');
  }

  get ledgerTopic(): string {
    return this.#name('LEDGER_TOPIC');
  }

  get deadLetterTopic(): string {
    return this.#name('DEAD_LETTER_TOPIC');
  }

  get groupId(): string {
    return this.#name('KAFKA_GROUP_ID');
  }

  /** A worker of this realm, stopped with it at the latest; the caller waits for it to be ready. */
  worker(env: Readonly<Record<string, string>> = {}): WorkerProcess {
    return this.#stack.use(new WorkerProcess({ ...this.env, ...env }));
  }

  async send(asks: readonly Ask[]): Promise<void> {
    const messages = asks.map((ask) => ({
      key: ask.correlationId,
      value: encodeIdRequest({
        count: ask.count,
        correlationId: Buffer.from(ask.correlationId),
        replyTopic: ask.replyTopic ?? this.replyTopic,
        encoding: ask.encoding,
        expiresAtMs: ask.expiresAtMs,
      }),
      ...(ask.partition === undefined ? {} : { partition: ask.partition }),
    }));
    await this.#producer.send({ topic: this.requestTopic, messages });
  }

  /** Sends records as they are, well formed or not. */
  async sendRaw(messages: Parameters<Producer['send']>[0]['messages']): Promise<void> {
    await this.#producer.send({ topic: this.requestTopic, messages });
  }

  /** Follows a topic from its beginning. */
  async follow(topic: string): Promise<Followed> {
    const followed = new Followed(this.kafka.consumer({ groupId: `follow-${randomUUID()}`, maxWaitTimeInMs: 50 }));
    await followed.start(topic);
    return this.#stack.use(followed);
  }

  /** All replies, decoded, by correlation ID, once there are `atLeast` distinct ones. */
  async replies(followed: Followed, atLeast: number): Promise<ReadonlyMap<string, readonly DecodedReply[]>> {
    await followed.until((seen) => new Set(seen.map(({ message }) => String(message.key))).size >= atLeast);
    return Map.groupBy(followed.seen.map(decodeReply), ({ reply }) => reply.correlationId.toString());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }

  #name(variable: string): string {
    const name = this.env[variable];
    if (name === undefined) throw new Error(`the realm has no ${variable}`);
    return name;
  }
}

export interface RealmOptions {
  readonly partitions?: number;
  readonly env?: Readonly<Record<string, string>>;
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

/** Everything on a topic so far, and promises for what is to come. */
export class Followed implements AsyncDisposable {
  readonly #consumer: Consumer;
  readonly #seen: Seen[] = [];
  readonly #watchers = new Set<() => void>();

  constructor(consumer: Consumer) {
    this.#consumer = consumer;
  }

  get seen(): readonly Seen[] {
    return this.#seen;
  }

  async start(topic: string): Promise<void> {
    await this.#consumer.connect();
    await this.#consumer.subscribe({ topic, fromBeginning: true });
    await this.#consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        const { partition } = batch;
        for (const message of batch.messages) this.#seen.push({ partition, offset: Number(message.offset), message });
        for (const watch of [...this.#watchers]) watch();
      },
    });
  }

  /** Resolves when what was seen satisfies; the test's own time-out bounds it. */
  until(satisfies: (seen: readonly Seen[]) => boolean): Promise<void> {
    return new Promise((resolve) => {
      const look = () => {
        if (!satisfies(this.#seen)) return;
        this.#watchers.delete(look);
        resolve();
      };
      this.#watchers.add(look);
      look();
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#consumer.disconnect();
  }
}

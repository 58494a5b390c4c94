import kafkajs, { type Admin, type Kafka, Partitioners, type Producer, type RecordMetadata } from 'kafkajs';
import { expect } from 'vitest';
import { type ClosableEtcd, connectEtcd } from '../../src/adapters/etcd/etcd.ts';
import { committedOffsets } from '../../src/adapters/kafka/consumer-group.ts';
import { type Source, wholeTopic } from '../../src/adapters/kafka/topics/spans.ts';
import { initTopics, waitForLeaders } from '../../src/adapters/kafka/topics/topics.ts';
import { type Encoding, encodeIdRequest } from '../../src/codec/id-request.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { type Ceiling, decodeCeiling } from '../../src/codec/namespace-values.ts';
import { FIRST_SENT } from '../../src/codec/request-headers.ts';
import { type Witness, WitnessTable } from '../../src/codec/witness.ts';
import { loadKafkaConfig } from '../../src/config/config.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { unlessInvalid } from '../../src/errors.ts';
import type { KeyValue } from '../../src/identity/identity-ports.ts';
import { type NamespaceKeys, namespaceKeys } from '../../src/identity/keys.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { kafkaDialer, seedsOf } from '../../src/kafka/wire/settings.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { Followed } from './followed.ts';
import type { SuiteServers } from './servers.ts';
import { testKafka } from './test-kafka.ts';
import { unique } from './unique.ts';
import { runIdalloc, WorkerProcess } from './worker-process.ts';

/** A request as a test sends it. */
export interface TestRequest {
  readonly correlationId: string;
  readonly count: number;
  readonly encoding?: Encoding;
  readonly replyTopic?: string;
  readonly partition?: number;
  readonly expiresAtMs?: number;
  /** The sequence of which numbers are wanted. Its request goes to the home partition of the sequence. */
  readonly sequence?: string;
  /** For a resend: when the request was first sent. */
  readonly firstSentMs?: number;
}

export interface RealmOptions {
  /** That of another realm, for the same names on other servers: its copy, or its place after a fail-over. */
  readonly id?: string;
  readonly partitions?: number;
  /** Replicas of all topics that are created here; 1 by default. With fewer than 3, ALLOW_WEAK_LEDGER is set. */
  readonly replicas?: number;
  /** Topics are created as for a managed service. */
  readonly isManaged?: boolean;
  /** The HTTP API asks the ledger: for Idempotency-Keys, and numbers of sequences. */
  readonly apiReplies?: boolean;
  readonly env?: Readonly<Record<string, string>>;
}

export const DATACENTER_ID = 4;
export const LAYOUT = presetLayout('default');

/**
 * A lease that expires soon after its owner is killed, for tests that wait for that; the ceiling is raised every
 * second.
 */
export const SHORT_LEASE = {
  LEASE_TTL_SECONDS: '5',
  LEASE_HEARTBEAT_MS: '1000',
  ETCD_REFUSE_AFTER_MS: '3000',
  RESERVATION_MS: '4500',
  LEASE_MARGIN_MS: '500',
} as const;

/**
 * A worker without etcd stops as soon as with SHORT_LEASE, but does not lose its worker ID while a slow test heals it,
 * and not because its reservation has run out: on a busy machine heartbeats come late, and a short reservation may end
 * first.
 */
export const KEPT_LEASE = { ...SHORT_LEASE, LEASE_TTL_SECONDS: '30', RESERVATION_MS: '15000' } as const;

/** Where etcd always answers: heartbeats as often, and an etcd that a busy machine makes slow stops no worker. */
export const STEADY_LEASE = { ...KEPT_LEASE, ETCD_REFUSE_AFTER_MS: '13000' } as const;

/** Partitions of a worker that is killed or frozen move soon; the suite's brokers allow it, others by default don't. */
export const SHORT_SESSION = { KAFKA_SESSION_TIMEOUT_MS: '3000' } as const;

const SEND_AT_ONCE = 1_000;

/**
 * Topics, group, etcd prefix and ID space of one test, so that tests share servers and nothing else. The Kafka and etcd
 * clients of the realm serve the test; workers are separate processes.
 */
export class Realm implements AsyncDisposable {
  readonly id: string;
  readonly env: Readonly<Record<string, string>>;
  readonly datacenterId: number;
  readonly requestTopic: string;
  readonly ledgerTopic: string;
  readonly deadLetterTopic: string;
  readonly witnessTopic: string;
  readonly replyTopic: string;
  readonly groupId: string;
  readonly keys: NamespaceKeys;
  readonly admin: Admin;
  readonly source: Source;
  readonly etcd: ClosableEtcd;
  readonly #replicas: number;
  readonly #kafka: Kafka;
  readonly #producer: Producer;
  readonly #stack = new AsyncDisposableStack();
  #witnesses: Promise<Followed> | undefined;

  private constructor(servers: SuiteServers, options: RealmOptions) {
    const { id = unique() } = options;
    this.id = id;
    const prefix = `/test-${id}`;
    this.#replicas = options.replicas ?? 1;
    this.groupId = `t${id}`;
    this.requestTopic = `t${id}.requests`;
    this.ledgerTopic = `t${id}.ledger`;
    this.deadLetterTopic = `t${id}.requests.dlt`;
    this.witnessTopic = `t${id}.witness`;
    this.replyTopic = `t${id}.replies.main`;
    this.datacenterId = Number(options.env?.DATACENTER_ID ?? DATACENTER_ID);
    this.keys = namespaceKeys(prefix, this.datacenterId);
    this.env = {
      KAFKA_BROKERS: servers.brokers.join(','),
      ETCD_ENDPOINTS: servers.etcdEndpoints.join(','),
      ETCD_PREFIX: prefix,
      KAFKA_GROUP_ID: this.groupId,
      ID_SPACE: `t${id}`,
      REQUEST_TOPIC: this.requestTopic,
      LEDGER_TOPIC: this.ledgerTopic,
      DEAD_LETTER_TOPIC: this.deadLetterTopic,
      REPLY_TOPIC_PREFIX: `t${id}.replies.`,
      REQUEST_PARTITIONS: String(options.partitions ?? 3),
      TOPIC_REPLICATION_FACTOR: String(this.#replicas),
      ALLOW_WEAK_LEDGER: this.#replicas < 3 ? '1' : '0',
      DATACENTER_ID: String(DATACENTER_ID),
      ...(options.apiReplies === true ? { API_REPLY_TOPIC: `t${id}.replies.http` } : {}),
      ...options.env,
    };
    this.#kafka = testKafka(servers.brokers);
    this.admin = this.#kafka.admin();
    this.#producer = this.#kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
    const wire = { dialer: kafkaDialer({ clientId: 'test', tls: false }), seeds: seedsOf(servers.brokers) };
    this.source = { cluster: new Cluster({ ...wire, runtime: RUNTIME }), runtime: RUNTIME };
    this.etcd = connectEtcd({ endpoints: (this.env.ETCD_ENDPOINTS ?? '').split(',') });
  }

  static async create(servers: SuiteServers, options: RealmOptions = {}): Promise<Realm> {
    const realm = new Realm(servers, options);
    realm.#stack.defer(() => realm.etcd.close());
    realm.#stack.defer(() => realm.source.cluster.close());
    realm.#stack.defer(() => realm.admin.disconnect());
    realm.#stack.defer(() => realm.#producer.disconnect());
    await Promise.all([realm.admin.connect(), realm.#producer.connect()]);
    const { topics } = loadKafkaConfig(realm.env);
    await initTopics(realm.source, topics, [], options.isManaged);
    await realm.createTopic(realm.replyTopic, { partitions: options.partitions ?? 3 });
    return realm;
  }

  /**
   * Starts a worker of this realm, which is stopped with the realm at the latest; does not wait until it is ready.
   * `program`: one that is installed elsewhere.
   */
  worker(env: Readonly<Record<string, string>> = {}, program?: readonly string[]): WorkerProcess {
    return this.#stack.use(new WorkerProcess({ ...this.env, ...env }, program));
  }

  /** What a command prints with --json; it must end with `code`. */
  async command(args: readonly string[], code = 0, env: Readonly<Record<string, string>> = {}) {
    const ended = await runIdalloc([...args, '--json'], { ...this.env, ...env });
    expect(ended.code, ended.stderr).toBe(code);
    return JSON.parse(ended.stdout);
  }

  /** Creates a topic: with `partitions` partitions, or with one whose only replica is on the broker `on`. */
  async createTopic(
    topic: string,
    options: { partitions?: number; configs?: Record<string, string>; on?: number } = {},
  ): Promise<void> {
    const { partitions = 1, configs = {}, on } = options;
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
    const places =
      on === undefined
        ? { numPartitions: partitions, replicationFactor: this.#replicas }
        : { replicaAssignment: [{ partition: 0, replicas: [on] }] };
    const topics = [{ topic, configEntries, ...places }];
    await this.admin.createTopics({ topics, waitForLeaders: false });
    await waitForLeaders(this.source, [topic]); // kafkajs' own wait throws while the topic is not known yet
  }

  /** Deletes a topic and recreates it empty, as `topics init` does. */
  async recreate(topic: string): Promise<void> {
    await this.admin.deleteTopics({ topics: [topic] });
    // Brokers drop it a moment after they accepted the deletion, and the name becomes free a little later.
    for (let listed = true; listed; ) listed = (await this.admin.listTopics()).includes(topic);
    const replyTopics = topic.startsWith(this.env.REPLY_TOPIC_PREFIX ?? '') ? [topic] : [];
    for (let created: readonly string[] = []; !created.includes(topic); ) {
      ({ created } = await initTopics(this.source, loadKafkaConfig(this.env).topics, replyTopics));
    }
  }

  /** Changes one config of a topic and leaves the others as they are. */
  async setTopicConfig(topic: string, name: string, value: string): Promise<void> {
    const type = kafkajs.ConfigResourceTypes.TOPIC;
    const { resources } = await this.admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type, name: topic }],
    });
    const kept = (resources[0]?.configEntries ?? [])
      .filter(({ configSource, configName }) => configSource === TOPIC_CONFIG && configName !== name)
      .map(({ configName, configValue }) => ({ name: configName, value: configValue }));
    const configEntries = [...kept, { name, value }];
    await this.admin.alterConfigs({ validateOnly: false, resources: [{ type, name: topic, configEntries }] });
  }

  /** Sends requests; rejects when the brokers did not accept all of them, of which some may be in the topic. */
  async send(requests: readonly TestRequest[]): Promise<void> {
    const partitions = Number(this.env.REQUEST_PARTITIONS);
    const messages = requests.map((request) => {
      const key = request.sequence ?? request.correlationId;
      return {
        key,
        value: encodeIdRequest({
          count: request.count,
          correlationId: Buffer.from(request.correlationId),
          replyTopic: request.replyTopic ?? this.replyTopic,
          encoding: request.encoding,
          expiresAtMs: request.expiresAtMs,
          sequence: request.sequence,
        }),
        ...(request.firstSentMs === undefined ? {} : { headers: { [FIRST_SENT]: String(request.firstSentMs) } }),
        partition: request.partition ?? partitionFor(Buffer.from(key), partitions, () => 0),
      };
    });
    for (let from = 0; from < messages.length; from += SEND_AT_ONCE) {
      let due = messages.slice(from, from + SEND_AT_ONCE);
      while (due.length > 0) {
        const answers = await this.sendRaw(due);
        if (answers.length === 0) throw new Error(`requests for partition ${due[0]?.partition} were not sent`);
        // kafkajs sends nothing to a partition that moved meanwhile to a broker that has answered for others.
        const taken = new Set(answers.map(({ partition }) => partition));
        due = due.filter(({ partition }) => !taken.has(partition));
      }
    }
  }

  /** Sends records as they are, well formed or not; to the request topic by default. */
  sendRaw(messages: Parameters<Producer['send']>[0]['messages'], topic = this.requestTopic): Promise<RecordMetadata[]> {
    return this.#producer.send({ topic, messages });
  }

  /** Follows a topic from its beginning; the replies by default. */
  async follow(topic = this.replyTopic): Promise<Followed> {
    return this.#stack.use(await Followed.start(this.#kafka, topic));
  }

  /** The sum of the end offsets of a topic: as many records as were ever appended to it. */
  async records(topic: string): Promise<number> {
    const spans = await wholeTopic(this.source, topic);
    return spans.reduce((sum, { to }) => sum + to, 0);
  }

  /** Resolves when all records that are in a followed topic by now were seen. */
  async readToEnd(followed: Followed): Promise<void> {
    const records = await this.records(followed.topic);
    await followed.until(`all ${records} records`, (seen) => seen.length >= records);
  }

  /**
   * The number of different batches in the ledger: an entry that repeats one, as that of a copy does, doesn't count.
   */
  async decisions(ledger: Followed): Promise<number> {
    await this.readToEnd(ledger);
    const batches = ledger.seen.flatMap(({ message: { key, value } }) => {
      const entry = value === null ? undefined : unlessInvalid(() => decodeLedgerEntry(value));
      return entry?.kind === 'batch' ? [`${key?.toString('hex')} ${entry.batch.ranges[0]?.first}`] : [];
    });
    return new Set(batches).size;
  }

  /** All witnesses in the topic, including those that a later one replaced. */
  async withWitness(): Promise<readonly Witness[]> {
    this.#witnesses ??= this.follow(this.witnessTopic);
    const records = await this.records(this.witnessTopic);
    const followed = await this.#witnesses;
    // Compaction leaves the last witness.
    await followed.until('the last witness', (seen) => (seen.at(-1)?.offset ?? -1) >= records - 1);
    const table = new WitnessTable(this.datacenterId);
    for (const { message, offset } of followed.seen) {
      if (offset < records) table.apply(message.key, message.value, message.headers ?? {});
    }
    return table.view().witnesses;
  }

  /** The group's committed offset of each request partition that has one. */
  async committed(): Promise<ReadonlyMap<number, number>> {
    const partitions = Array.from({ length: Number(this.env.REQUEST_PARTITIONS) }, (_, partition) => partition);
    const committed = await committedOffsets(this.source, this.groupId, this.requestTopic, partitions);
    return new Map([...committed].map(([partition, { offset }]) => [partition, offset]));
  }

  async owner(workerId: number): Promise<KeyValue | undefined> {
    const key = this.keys.owner(workerId);
    return (await this.etcd.get([key])).get(key);
  }

  async ceiling(workerId: number): Promise<Ceiling> {
    const key = this.keys.ceiling(workerId);
    const stored = (await this.etcd.get([key])).get(key);
    if (stored === undefined) throw new Error(`etcd has no key ${key}`);
    return decodeCeiling(stored.value);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

/** Kafka's code for the source of a config that is set on the topic itself. */
const TOPIC_CONFIG = 1;

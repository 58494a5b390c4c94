import { randomUUID } from 'node:crypto';
import {
  GenericContainer,
  getContainerRuntimeClient,
  Network,
  RandomPortGenerator,
  type StartedNetwork,
  type StartedTestContainer,
  Wait,
} from 'testcontainers';
import { type BufferOptions, IdallocError, IdClient } from '../client/index.ts';
import { replyPolicyOf, replyTopicViolation } from '../codec/reply-policy.ts';
import { addressAt, IdAllocContainer, startWithLog, WORKER_DEFAULTS } from './container.ts';
import { DEFAULT_IMAGES } from './images.ts';
import { ETCD_PORT, etcdContainer, kafkaContainer, removeLabelled, requireEngine } from './servers.ts';
import { type IdAllocTopics, StartedIdAllocEnvironment, undoAll } from './started.ts';

/** All containers of an environment have this label, with a value unique to the environment. */
const LABEL = 'idalloc.environment';
const HOST_PORT = 9092;
/** The broker's port inside the network. */
const NETWORK_PORT = 19_092;
const MAX_WORKERS = 32;

/** Short times, so that faults take effect within seconds. */
const VARIABLES = {
  ...WORKER_DEFAULTS,
  KAFKA_BROKERS: `kafka:${NETWORK_PORT}`,
  ETCD_ENDPOINTS: `http://etcd:${ETCD_PORT}`,
  LEASE_TTL_SECONDS: '10',
  LEASE_HEARTBEAT_MS: '1500',
  ETCD_REFUSE_AFTER_MS: '3000',
  RESERVATION_MS: '5000',
  GATE_GRACE_MS: '3000',
};

/** Kafka, etcd, topics and workers in containers, and a client, for tests. Configure it, then start() it. */
export class IdAllocEnvironment {
  #workers = 1;
  #images: Record<keyof typeof DEFAULT_IMAGES, string> = { ...DEFAULT_IMAGES };
  #variables: Record<string, string> = { ...VARIABLES };
  #labels: Record<string, string> = {};
  #replyTopic = 'id.replies.test';
  #client: BufferOptions = {};

  /** 0 to 32 (default 1). Without workers start() does not wait for the client's buffer. */
  withWorkers(count: number): this {
    if (!Number.isInteger(count) || count < 0 || count > MAX_WORKERS) {
      throw new IdallocError('CONFIG_INVALID', `workers: ${count} is not an integer in 0..${MAX_WORKERS}`);
    }
    this.#workers = count;
    return this;
  }

  /** Replaces apache/kafka, quay.io/coreos/etcd and idalloc:local by images that take the same variables. */
  withImages(images: { readonly kafka?: string; readonly etcd?: string; readonly worker?: string }): this {
    this.#images = { ...this.#images, ...images };
    return this;
  }

  /** Adds variables of the workers, or replaces the defaults, which make faults take effect within seconds. */
  withWorkerEnvironment(variables: Readonly<Record<string, string>>): this {
    this.#variables = { ...this.#variables, ...variables };
    return this;
  }

  /** Labels for each container, besides those of testcontainers. */
  withLabels(labels: Readonly<Record<string, string>>): this {
    this.#labels = { ...this.#labels, ...labels };
    return this;
  }

  /** The reply topic to create for the client (default `id.replies.test`); must begin with REPLY_TOPIC_PREFIX. */
  withReplyTopic(topic: string): this {
    this.#replyTopic = topic;
    return this;
  }

  /** Options of the client's buffer. */
  withClient(options: BufferOptions): this {
    this.#client = { ...this.#client, ...options };
    return this;
  }

  /**
   * Resolves when all workers serve and the client's buffer is full. After a failure everything that was started is
   * removed.
   *
   * @throws IdallocError INVALID_REPLY_TOPIC before anything starts, if workers would not reply to the reply topic;
   * CONFIG_INVALID without a container engine; an Error that names the image that did not start, with the end of its
   * log.
   */
  async start(): Promise<StartedIdAllocEnvironment> {
    this.#requireReplyTopic();
    await requireEngine();
    const id = randomUUID();
    const labels = { ...this.#labels, [LABEL]: id };
    const undo: (() => Promise<void>)[] = [];
    try {
      const network = await new Network().start();
      undo.unshift(async () => void (await network.stop()));
      undo.unshift(() => removeLabelled(`${LABEL}=${id}`));
      const [{ kafka, broker }, { etcd, endpoint }] = await settled(
        startKafka(this.#images.kafka, network, labels),
        startEtcd(this.#images.etcd, network, labels),
      );
      await this.#createTopics(network, labels);
      const workers = await settled(...this.#containers(network, labels).map((worker) => worker.start()));
      const client = await IdClient.connect({
        brokers: [broker],
        requestTopic: this.#topics().requests,
        replyTopic: this.#replyTopic,
        ...this.#client,
      });
      undo.unshift(() => client.close());
      if (workers.length > 0 && this.#client.prefetch !== false) await client.ready();
      const servers = { network, kafka, etcd, brokers: [broker], endpoints: [endpoint] };
      return new StartedIdAllocEnvironment({ ...servers, topics: this.#topics(), client, workers }, undo);
    } catch (error) {
      const failures = await undoAll(undo);
      if (failures.length === 0) throw error;
      throw new AggregateError([error, ...failures], 'the environment did not start, and cleaning up failed');
    }
  }

  get #replyPrefix(): string {
    return this.#variables.REPLY_TOPIC_PREFIX ?? 'id.replies.';
  }

  /** The workers' variables. Their HTTP API takes Idempotency-Keys. */
  #environment(): Record<string, string> {
    return { API_REPLY_TOPIC: `${this.#replyPrefix}http`, ...this.#variables };
  }

  #requireReplyTopic(): void {
    const replyPrefix = this.#replyPrefix;
    const refusal = replyTopicViolation(this.#replyTopic, replyPolicyOf({ replyPrefix, ...this.#topics() }));
    if (refusal !== undefined) throw new IdallocError('INVALID_REPLY_TOPIC', `withReplyTopic: ${refusal}`);
  }

  #topics(): IdAllocTopics {
    const { REQUEST_TOPIC, LEDGER_TOPIC, DEAD_LETTER_TOPIC, ID_SPACE } = this.#variables;
    return {
      requests: REQUEST_TOPIC ?? 'id.requests',
      ledger: LEDGER_TOPIC ?? 'id.ledger',
      deadLetters: DEAD_LETTER_TOPIC ?? 'id.requests.dlt',
      witness: `${ID_SPACE ?? 'id'}.witness`,
      replies: this.#replyTopic,
    };
  }

  #containers(network: StartedNetwork, labels: Record<string, string>): readonly IdAllocContainer[] {
    return Array.from({ length: this.#workers }, () =>
      new IdAllocContainer(this.#images.worker)
        .withEnvironment(this.#environment())
        .withNetwork(network)
        .withLabels(labels),
    );
  }

  async #createTopics(network: StartedNetwork, labels: Record<string, string>): Promise<void> {
    const init = new GenericContainer(this.#images.worker)
      .withEnvironment(this.#environment())
      .withNetwork(network)
      .withLabels(labels)
      .withCommand(['topics', 'init', '--reply-topic', this.#replyTopic])
      .withWaitStrategy(Wait.forOneShotStartup());
    await startWithLog(init, this.#images.worker, () => init.start());
  }
}

/** A free host port, and its address for clients on this machine. */
async function hostPort(): Promise<{ readonly port: number; readonly address: string }> {
  const { host } = (await getContainerRuntimeClient()).info.containerRuntime;
  const port = await new RandomPortGenerator().generatePort();
  // 'localhost' may resolve to ::1, on which an engine without IPv6 does not publish ports.
  return { port, address: addressAt(host === 'localhost' ? '127.0.0.1' : host, port) };
}

async function startKafka(
  image: string,
  network: StartedNetwork,
  labels: Record<string, string>,
): Promise<{ kafka: StartedTestContainer; broker: string }> {
  const { port, address } = await hostPort();
  const container = kafkaContainer(image, [
    { name: 'HOST', port: HOST_PORT, advertised: address },
    { name: 'NET', port: NETWORK_PORT, advertised: `kafka:${NETWORK_PORT}` },
  ])
    .withNetwork(network)
    .withNetworkAliases('kafka')
    .withLabels(labels)
    .withExposedPorts({ container: HOST_PORT, host: port });
  return { kafka: await container.start(), broker: address };
}

async function startEtcd(
  image: string,
  network: StartedNetwork,
  labels: Record<string, string>,
): Promise<{ etcd: StartedTestContainer; endpoint: string }> {
  const { port, address } = await hostPort();
  const container = etcdContainer(image, 'etcd')
    .withNetwork(network)
    .withNetworkAliases('etcd')
    .withLabels(labels)
    .withExposedPorts({ container: ETCD_PORT, host: port });
  return { etcd: await container.start(), endpoint: `http://${address}` };
}

/** All results. If one fails it waits for the others, so that nothing is still starting during the cleanup. */
async function settled<T extends readonly Promise<unknown>[]>(
  ...started: T
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  await Promise.allSettled(started);
  return (await Promise.all(started)) as { -readonly [K in keyof T]: Awaited<T[K]> };
}

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
import { IdClient } from '../client/client.ts';
import type { BufferOptions } from '../client/options.ts';
import { refuseReplyTopic, replyPolicyOf } from '../codec/reply-policy.ts';
import { IdallocError } from '../errors.ts';
import { IdAllocContainer, startTelling, WORKER_DEFAULTS } from './container.ts';
import { DEFAULT_IMAGES } from './images.ts';
import { ETCD_PORT, etcdContainer, kafkaContainer, removeLabelled } from './servers.ts';
import { type IdAllocTopics, StartedIdAllocEnvironment, undoAll } from './started.ts';

/** All containers of one environment bear it, with a value of their own. */
const LABEL = 'idalloc.environment';
const HOST_PORT = 9092;
/** Where containers of the network find the broker. */
const NETWORK_PORT = 19_092;
const MAX_WORKERS = 32;

/** So that faults show within seconds. */
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

  /** 0 to 32 (default 1). Without a worker the client's buffer is not waited for. */
  withWorkers(count: number): this {
    if (!Number.isInteger(count) || count < 0 || count > MAX_WORKERS) {
      throw new IdallocError('CONFIG_INVALID', `workers: ${count}; must be whole and in 0..${MAX_WORKERS}`);
    }
    this.#workers = count;
    return this;
  }

  /** Other images than apache/kafka, quay.io/coreos/etcd and idalloc:local; any that take the same variables. */
  withImages(images: { readonly kafka?: string; readonly etcd?: string; readonly worker?: string }): this {
    this.#images = { ...this.#images, ...images };
    return this;
  }

  /** Further variables of the workers, or other values than the ones that make faults show within seconds. */
  withWorkerEnvironment(variables: Readonly<Record<string, string>>): this {
    this.#variables = { ...this.#variables, ...variables };
    return this;
  }

  /** Labels for each container, beside those of testcontainers. */
  withLabels(labels: Readonly<Record<string, string>>): this {
    this.#labels = { ...this.#labels, ...labels };
    return this;
  }

  /** The topic that is made for the client's replies (default `id.replies.test`); as REPLY_TOPIC_PREFIX allows. */
  withReplyTopic(topic: string): this {
    this.#replyTopic = topic;
    return this;
  }

  /** How the client keeps its buffer. */
  withClient(options: BufferOptions): this {
    this.#client = { ...this.#client, ...options };
    return this;
  }

  /**
   * Resolves when all workers serve and the client's buffer is full. What was started before a failure is removed.
   *
   * @throws IdallocError INVALID_REPLY_TOPIC before anything is started, when workers would not reply to the reply topic;
   * an Error that names the image which did not start, with its last words.
   */
  async start(): Promise<StartedIdAllocEnvironment> {
    this.#requireReplyTopic();
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
      await this.#makeTopics(network, labels);
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
      throw new AggregateError([error, ...failures], 'the environment did not start, and not all of it was removed');
    }
  }

  #requireReplyTopic(): void {
    const replyPrefix = this.#variables.REPLY_TOPIC_PREFIX ?? 'id.replies.';
    const refusal = refuseReplyTopic(this.#replyTopic, replyPolicyOf({ replyPrefix, ...this.#topics() }));
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
        .withEnvironment(this.#variables)
        .withNetwork(network)
        .withLabels(labels),
    );
  }

  async #makeTopics(network: StartedNetwork, labels: Record<string, string>): Promise<void> {
    const init = new GenericContainer(this.#images.worker)
      .withEnvironment(this.#variables)
      .withNetwork(network)
      .withLabels(labels)
      .withCommand(['topics', 'init', '--reply-topic', this.#replyTopic])
      .withWaitStrategy(Wait.forOneShotStartup());
    await startTelling(init, this.#images.worker, () => init.start());
  }
}

/** A host port that is free, and how clients of the machine of this process reach it. */
async function hostPort(): Promise<{ readonly port: number; readonly address: string }> {
  const { host } = (await getContainerRuntimeClient()).info.containerRuntime;
  const port = await new RandomPortGenerator().generatePort();
  // 'localhost' may be ::1, where the port of an engine without IPv6 is not.
  return { port, address: `${host === 'localhost' ? '127.0.0.1' : host}:${port}` };
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

/** All results; when one fails the others are waited for, so that nothing is still starting while it is removed. */
async function settled<T extends readonly Promise<unknown>[]>(
  ...begun: T
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  await Promise.allSettled(begun);
  return (await Promise.all(begun)) as { -readonly [K in keyof T]: Awaited<T[K]> };
}

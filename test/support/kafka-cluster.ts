import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type KafkaProcess, newClusterId, startKafka } from '../../ops/bare/kafka.ts';
import { freePorts } from '../../ops/dev/ports.ts';

const NODES = [1, 2, 3] as const;
export type NodeId = (typeof NODES)[number];
const PORTS_EACH = 3;

/**
 * Properties of one broker in addition to the default ones. Its ports are those of the listeners CLIENT and BROKER, and
 * another.
 */
type Properties = (node: NodeId, ports: readonly number[]) => Readonly<Record<string, string>>;

function propertiesOf(node: NodeId, ports: readonly number[], controllerPort: number): Record<string, string> {
  const common = {
    'node.id': String(node),
    'offsets.topic.replication.factor': String(NODES.length),
    // By default the controller fences a dead broker after 9 s, and then moves its leaderships.
    'broker.session.timeout.ms': '6000',
    'broker.heartbeat.interval.ms': '1000',
    'controller.quorum.voters': `1@127.0.0.1:${controllerPort}`,
  };
  if (node === 1) return common;
  const listeners = `CLIENT://127.0.0.1:${ports[0]},BROKER://127.0.0.1:${ports[1]}`;
  return { ...common, 'process.roles': 'broker', listeners };
}

/**
 * Three brokers as child processes, which are stopped with this process at the latest. The first is also the
 * controller, and must stay up; the others may be killed, even both at once, and restarted on their data, with their
 * addresses or others.
 */
export class KafkaCluster implements AsyncDisposable {
  readonly #dir: string;
  readonly #clusterId = newClusterId();
  #ports: readonly number[];
  readonly #properties: Properties;
  readonly #classes: string | undefined;
  readonly #nodes = new Map<NodeId, KafkaProcess>();

  private constructor(dir: string, ports: readonly number[], properties: Properties, classes: string | undefined) {
    this.#classes = classes;
    this.#dir = dir;
    this.#ports = ports;
    this.#properties = properties;
  }

  /**
   * Resolves when all brokers serve; if it rejects, nothing is left behind. `classes`: a directory of classes that the
   * properties name.
   */
  static async start(properties: Properties = () => ({}), classes?: string): Promise<KafkaCluster> {
    const ports = await freePorts(NODES.length * PORTS_EACH);
    const cluster = new KafkaCluster(await mkdtemp(join(tmpdir(), 'idalloc-cluster-')), ports, properties, classes);
    const started = await Promise.allSettled(NODES.map((node) => cluster.startNode(node)));
    const failure = started.find((one) => one.status === 'rejected');
    if (failure === undefined) return cluster;
    await cluster[Symbol.asyncDispose]();
    throw failure.reason;
  }

  /** host:port of each broker, whether it runs or not. */
  get brokers(): readonly string[] {
    return NODES.map((node) => `127.0.0.1:${this.#portsOf(node)[0]}`);
  }

  /** host:port of the listeners that the brokers use among themselves. */
  get internal(): readonly string[] {
    return NODES.map((node) => `127.0.0.1:${this.#portsOf(node)[1]}`);
  }

  /** Kills a broker without a shutdown, as a power cut would. */
  async kill(node: Exclude<NodeId, 1>): Promise<void> {
    await this.#nodes.get(node)?.kill();
    this.#nodes.delete(node);
  }

  /** Freezes a broker: its connections stay open, and nothing answers. */
  freeze(node: Exclude<NodeId, 1>): void {
    this.#signal(node, 'SIGSTOP');
  }

  thaw(node: Exclude<NodeId, 1>): void {
    this.#signal(node, 'SIGCONT');
  }

  /** Starts a broker that was killed; resolves when it serves. */
  async startNode(node: NodeId): Promise<void> {
    const ports = this.#portsOf(node);
    const properties = { ...propertiesOf(node, ports, this.#portsOf(1)[2] ?? 0), ...this.#properties(node, ports) };
    const dir = join(this.#dir, String(node));
    this.#nodes.set(
      node,
      await startKafka({ dir, ports, clusterId: this.#clusterId, properties, classes: this.#classes }),
    );
  }

  /** Gives a broker that was killed other ports from its next start on. */
  async readdress(node: Exclude<NodeId, 1>): Promise<void> {
    const from = (node - 1) * PORTS_EACH;
    this.#ports = this.#ports.toSpliced(from, PORTS_EACH, ...(await freePorts(PORTS_EACH)));
  }

  /** Stops the brokers without waiting for a controlled shutdown, which needs the controller. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#nodes.values()].map((node) => node.kill()));
    await rm(this.#dir, { recursive: true, force: true });
  }

  #signal(node: NodeId, signal: NodeJS.Signals): void {
    const running = this.#nodes.get(node);
    if (running === undefined) throw new Error(`broker ${node} does not run`);
    process.kill(running.pid, signal);
  }

  #portsOf(node: NodeId): readonly number[] {
    return this.#ports.slice((node - 1) * PORTS_EACH, node * PORTS_EACH);
  }
}

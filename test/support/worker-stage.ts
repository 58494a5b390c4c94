import type { EtcdStatus } from '../../src/adapters/etcd/member.ts';
import { planTopics } from '../../src/adapters/kafka/topics/plan.ts';
import type { Runtime } from '../../src/async/runtime.ts';
import { type Config, loadWorkerConfig } from '../../src/config/config.ts';
import type { IdallocError } from '../../src/errors.ts';
import type { LedgerCopies } from '../../src/ledger/ledger-ports.ts';
import { createLogger } from '../../src/log.ts';
import { createMetrics } from '../../src/metrics/metrics.ts';
import { type AllocatorOptions, LeasedAllocator } from '../../src/worker/allocator.ts';
import type { Outside } from '../../src/worker/environment.ts';
import { Worker } from '../../src/worker/worker.ts';
import { FakeEtcd, type Link } from '../identity/fake-etcd.ts';
import { fakeKafka } from './fake-kafka/fake-kafka.ts';
import { withNumber } from './log-levels.ts';
import { MemoryIndex } from './memory-index.ts';
import { VirtualRuntime } from './virtual-runtime.ts';

const NODES = 3;
const PARTITIONS = 3;
const FOREIGN = { key: null, value: Buffer.from('hello') };

export const config = loadWorkerConfig({
  KAFKA_BROKERS: 'broker-1:9092',
  ETCD_ENDPOINTS: 'http://etcd:2379',
  DATACENTER_ID: '0',
  REQUEST_PARTITIONS: String(PARTITIONS),
  API_PORT: 'off',
});

/**
 * The runtime as an object of bound functions, since a worker passes some of them on separately. For a dead process no
 * timer fires any more.
 */
function bound(runtime: VirtualRuntime, isDead: () => boolean): Runtime {
  const never = new Promise<never>(() => {});
  return {
    monotonicMs: () => runtime.monotonicMs(),
    wallMs: () => runtime.wallMs(),
    schedule: (delayMs, run) => runtime.schedule(delayMs, () => (isDead() ? undefined : run())),
    sleep: (delayMs, signal) => runtime.sleep(delayMs, signal).then(() => (isDead() ? never : undefined)),
    busyMs: () => runtime.busyMs(),
    nextTurn: () => runtime.nextTurn(),
    random: () => runtime.random(),
    uuid: () => runtime.uuid(),
  };
}

interface LogLine extends Readonly<Record<string, unknown>> {
  readonly level: number;
  readonly msg: string;
}

/** Opens the index of a worker; each has one in memory by default. */
type IndexOpener = (...args: [...Parameters<Outside['openIndex']>, host: string]) => LedgerCopies;

/** Whole workers over simulated servers, with their log. */
export class WorkerStage {
  readonly runtime = new VirtualRuntime();
  readonly kafka = fakeKafka({ clock: this.runtime, nodes: NODES, delayMs: () => 1 });
  /** The hosts that reach no broker, or `host:node` that do not reach this one. */
  readonly cut = new Set<string>();
  /** The messages of the log. */
  readonly logged: string[] = [];
  readonly lines: LogLine[] = [];
  readonly etcd = new FakeEtcd(() => this.runtime.monotonicMs());
  /** With what every call of etcd fails. */
  etcdFault: IdallocError | undefined;
  /** Why the last call or write failed, and the status of each endpoint, as the adapter says. */
  readonly etcdTells: { error: IdallocError | undefined; statuses: ReadonlyMap<string, EtcdStatus> } = {
    error: undefined,
    statuses: new Map(),
  };
  /** Called when a worker has closed its connection to etcd. */
  onEtcdClosed: () => void = () => {};
  /** What the allocator of each worker got. */
  readonly allocators = new Map<string, AllocatorOptions>();
  readonly #workers = new Map<string, Worker>();
  readonly #dead = new Set<string>();
  readonly #openIndex: IndexOpener;

  readonly #etcdLink: Link = async () => {
    if (this.etcdFault !== undefined) throw this.etcdFault;
    return { fault: 'pass' };
  };

  constructor(openIndex: IndexOpener = () => new MemoryIndex()) {
    this.#openIndex = openIndex;
    for (const { name, partitions, configs } of planTopics(config.topics)) {
      this.kafka.cluster.createTopic(name, { partitions, replicas: NODES, configs });
    }
  }

  start(changes: Partial<Config> = {}, host = 'instance'): Worker {
    const { runtime, kafka, logged, lines, cut, etcdTells } = this;
    const isDead = () => this.#dead.has(host);
    const environment: Outside = {
      runtime: bound(runtime, isDead),
      dialer: kafka.dialer({
        name: host,
        deliver: (run) => (isDead() ? undefined : run()),
        reaches: (node) => !cut.has(host) && !cut.has(`${host}:${node}`),
      }),
      etcd: {
        ...this.etcd.port(this.#etcdLink),
        get lastError() {
          return etcdTells.error;
        },
        statuses: async () => etcdTells.statuses,
        close: () => this.onEtcdClosed(),
      },
      indexDisk: () => undefined,
      openIndex: (binding, events) => this.#openIndex(binding, events, host),
      instanceId: () => host,
      createAllocator: (options) => {
        this.allocators.set(host, options);
        return new LeasedAllocator(options);
      },
    };
    const write = (text: string) => {
      const line = withNumber(JSON.parse(text) as LogLine);
      lines.push(line);
      logged.push(line.msg);
    };
    const log = createLogger({ level: 'info', destination: { write } });
    const worker = new Worker({ ...config, ...changes }, { log, metrics: createMetrics(), environment });
    this.#workers.set(host, worker);
    return worker;
  }

  foreignEntry(partition: number): void {
    this.kafka.cluster.send(config.topics.ledger, partition, [FOREIGN]);
  }

  onBrokers(what: 'freeze' | 'thaw'): void {
    for (const node of this.kafka.cluster.brokers.keys()) this.kafka.cluster[what](node);
  }

  pass(ms: number): Promise<void> {
    return this.runtime.pass(ms);
  }

  /** Ends the process of a worker without a last word: its timers, and what it would have received, are gone. */
  kill(host: string): void {
    this.#dead.add(host);
    this.#workers.delete(host);
  }

  /** Stops one worker, or all. */
  async stop(host?: string): Promise<void> {
    for (const [name, worker] of this.#workers) {
      if (host !== undefined && name !== host) continue;
      this.#workers.delete(name);
      await this.runtime.until(worker[Symbol.asyncDispose]());
    }
  }
}

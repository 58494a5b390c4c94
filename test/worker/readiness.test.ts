import { afterEach, expect, test } from 'vitest';
import { planTopics } from '../../src/adapters/kafka/topics/plan.ts';
import { loadWorkerConfig } from '../../src/config/config.ts';
import type { Runtime } from '../../src/core/runtime.ts';
import { createLogger } from '../../src/log.ts';
import { createMetrics } from '../../src/metrics.ts';
import { ReignAllocator } from '../../src/worker/allocator.ts';
import type { Surroundings } from '../../src/worker/surroundings.ts';
import { Worker } from '../../src/worker/worker.ts';
import { FakeEtcd } from '../identity/fake-etcd.ts';
import { fakeKafka } from '../support/fake-kafka/fake-kafka.ts';
import { MemoryIndex } from '../support/memory-index.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

const NODES = 3;
const PARTITIONS = 3;
/** Time to acquire a worker ID and to join the group. */
const START_MS = 10_000;
/** Too short for the controller to give a broker up. */
const SILENT_MS = 8_000;
/** The index hears of the log's bounds at least so often. */
const EXPIRE_MS = 12_000;
const FOREIGN = { key: null, value: Buffer.from('hello') };

const config = loadWorkerConfig({
  KAFKA_BROKERS: 'broker-1:9092',
  ETCD_ENDPOINTS: 'http://etcd:2379',
  DATACENTER_ID: '0',
  REQUEST_PARTITIONS: String(PARTITIONS),
  API_PORT: 'off',
});

/** A worker passes single functions of its runtime on. */
function bound(runtime: VirtualRuntime): Runtime {
  return {
    monotonicMs: () => runtime.monotonicMs(),
    wallMs: () => runtime.wallMs(),
    schedule: (delayMs, run) => runtime.schedule(delayMs, run),
    sleep: (delayMs, signal) => runtime.sleep(delayMs, signal),
    nextTurn: () => runtime.nextTurn(),
    random: () => runtime.random(),
    uuid: () => runtime.uuid(),
  };
}

class DisposableIndex extends MemoryIndex implements Disposable {
  [Symbol.dispose](): void {}
}

/** A whole worker over simulated servers, and the messages that it logs. */
class Stage {
  readonly runtime = new VirtualRuntime();
  readonly kafka = fakeKafka({ clock: this.runtime, nodes: NODES, delayMs: () => 1 });
  readonly logged: string[] = [];
  readonly #etcd = new FakeEtcd(() => this.runtime.monotonicMs());
  #worker: Worker | undefined;

  constructor() {
    for (const { name, partitions, configs } of planTopics(config.topics)) {
      this.kafka.cluster.createTopic(name, { partitions, replicas: NODES, configs });
    }
  }

  start(): Worker {
    const { runtime, kafka, logged } = this;
    const surroundings: Surroundings = {
      runtime: bound(runtime),
      dialer: kafka.dialer(),
      etcd: { ...this.#etcd.port(), close: () => {} },
      openIndex: () => new DisposableIndex(),
      instanceId: () => 'instance',
      createAllocator: (options) => new ReignAllocator(options),
    };
    const destination = { write: (line: string) => void logged.push(JSON.parse(line).msg) };
    const log = createLogger({ level: 'info', destination });
    this.#worker = new Worker(config, { log, metrics: createMetrics(), surroundings });
    return this.#worker;
  }

  foreignEntry(partition: number): void {
    this.kafka.cluster.send(config.topics.ledger, partition, [FOREIGN]);
  }

  onBrokers(what: 'freeze' | 'thaw'): void {
    for (const node of this.kafka.cluster.brokers.keys()) this.kafka.cluster[what](node);
  }

  pass(ms: number): Promise<void> {
    return this.runtime.until(this.runtime.sleep(ms));
  }

  async stop(): Promise<void> {
    if (this.#worker !== undefined) await this.runtime.until(this.#worker[Symbol.asyncDispose]());
  }
}

let stage: Stage;

afterEach(() => stage.stop());

/** A worker, a while after its start. */
async function started(prepare: (stage: Stage) => void = () => {}, forMs = START_MS): Promise<Worker> {
  stage = new Stage();
  prepare(stage);
  const worker = stage.start();
  await stage.pass(forMs);
  return worker;
}

test('a worker that serves every partition is ready', async () => {
  const worker = await started();
  expect(worker.unready).toBeUndefined();
  expect(worker.vitals()).toMatchObject({ isMember: true, stoppedPartitions: 0 });
  expect(stage.logged).toContain('idalloc ready');
});

test('a worker that starts on a ledger that it can not read serves the other partitions, and is not ready', async () => {
  const worker = await started((at) => at.foreignEntry(1));
  expect(worker.unready).toBe('LEDGER_UNREADABLE');
  expect(worker.stoppedPartitions.map(({ message }) => message)).toEqual([
    expect.stringMatching(/^ledger partition 1 stops at offset \d+: ./),
  ]);
  expect(worker.vitals()).toMatchObject({ isMember: true, stoppedPartitions: 1 });
  expect(stage.logged).toEqual(
    expect.arrayContaining(['gate open', 'joined the request group', 'ledger partition stopped']),
  );
  expect(stage.logged).not.toContain('idalloc ready');
});

test('a worker that was ready is so no more when a ledger partition stops', async () => {
  const worker = await started();
  stage.foreignEntry(2);
  await stage.pass(2_000);
  expect(worker.unready).toBe('LEDGER_UNREADABLE');
  expect(stage.logged).not.toContain('gate closed');
});

test('a worker is ready again, by itself, when the log starts behind what it could not read', async () => {
  const worker = await started((at) => at.foreignEntry(1));
  expect(worker.unready).toBe('LEDGER_UNREADABLE');
  const ledger = stage.kafka.cluster.partition(config.topics.ledger, 1);
  ledger.trim(ledger.log.end);
  await stage.pass(EXPIRE_MS);
  expect([worker.unready, worker.vitals().stoppedPartitions]).toEqual([undefined, 0]);
  expect(stage.logged.filter((line) => line === 'ledger partition is restored from the log')).toHaveLength(1);
  expect(stage.logged).toContain('idalloc ready');
});

test('a worker tells for how long no broker has answered, from its own start on', async () => {
  const worker = await started((at) => at.onBrokers('freeze'), SILENT_MS);
  expect(worker.vitals()).toMatchObject({ isMember: false, kafkaSilenceMs: SILENT_MS });
  stage.onBrokers('thaw');
  await stage.pass(START_MS);
  expect(worker.vitals().isMember).toBe(true);
  stage.onBrokers('freeze');
  await stage.pass(SILENT_MS);
  expect(worker.unready).toBe('KAFKA_UNAVAILABLE');
  expect(SILENT_MS - worker.vitals().kafkaSilenceMs).toBeLessThan(1_000);
});

test('a worker that waits for Kafka stops at once', async () => {
  await started((at) => at.onBrokers('freeze'), SILENT_MS);
  await stage.stop();
  expect(stage.runtime.monotonicMs()).toBe(SILENT_MS);
});

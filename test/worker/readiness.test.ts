import { afterEach, expect, test } from 'vitest';
import type { Worker } from '../../src/worker/worker.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

/** Time to acquire a worker ID and to join the group. */
const START_MS = 10_000;
/** Shorter than the time after which the controller fences a broker. */
const SILENT_MS = 8_000;
/** The longest time between two checks of the log's bounds by the index. */
const EXPIRE_MS = 12_000;

let stage: WorkerStage;

afterEach(() => stage.stop());

/** A worker, a while after its start. */
async function started(prepare: (stage: WorkerStage) => void = () => {}, forMs = START_MS): Promise<Worker> {
  stage = new WorkerStage();
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

test("a worker that starts with a ledger partition that it can't read serves the others, and is not ready", async () => {
  const worker = await started((at) => at.foreignEntry(1));
  expect(worker.unready).toBe('LEDGER_UNREADABLE');
  expect(worker.closed).toBeUndefined(); // IDs over HTTP need no partition
  expect(worker.stoppedPartitions.map(({ message }) => message)).toEqual([
    expect.stringMatching(/^ledger partition 1 stops at offset \d+: ./),
  ]);
  expect(worker.vitals()).toMatchObject({ isMember: true, stoppedPartitions: 1 });
  expect(stage.logged).toEqual(
    expect.arrayContaining(['gate open', 'joined the request group', 'ledger partition stopped']),
  );
  expect(stage.logged).not.toContain('idalloc ready');
});

test('a worker whose end is announced is not ready, and allocates no more over HTTP as load balancers see it', async () => {
  const worker = await started();
  worker.announceEnd();
  expect([worker.unready, worker.incomplete, worker.closed]).toEqual(['STOPPING', 'STOPPING', 'STOPPING']);
});

test('a ready worker becomes unready when a ledger partition stops', async () => {
  const worker = await started();
  stage.foreignEntry(2);
  await stage.pass(2_000);
  expect(worker.unready).toBe('LEDGER_UNREADABLE');
  expect(stage.logged).not.toContain('gate closed');
});

test('a worker becomes ready again when the log starts after the unreadable entry', async () => {
  const worker = await started((at) => at.foreignEntry(1));
  expect(worker.unready).toBe('LEDGER_UNREADABLE');
  const ledger = stage.kafka.cluster.partition(config.topics.ledger, 1);
  ledger.trim(ledger.log.end);
  await stage.pass(EXPIRE_MS);
  expect([worker.unready, worker.vitals().stoppedPartitions]).toEqual([undefined, 0]);
  expect(stage.logged.filter((line) => line === 'restoring a ledger partition from the log')).toHaveLength(1);
  expect(stage.logged).toContain('idalloc ready');
});

test('a worker reports how long no broker has answered, counted from its start', async () => {
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

test('a worker that has no partition is not ready either when no broker answers', async () => {
  stage = new WorkerStage();
  const workers = ['a', 'b', 'c', 'd'].map((host) => stage.start({}, host));
  await stage.pass(3 * START_MS);
  const idle = workers.filter((worker) => worker.vitals().copies.every(({ state }) => state !== 'serving'));
  expect(idle.map(({ unready }) => unready)).toEqual([undefined]);
  stage.onBrokers('freeze');
  await stage.pass(SILENT_MS);
  expect(idle[0]?.unready).toBe('KAFKA_UNAVAILABLE');
});

test('a readiness probe does not read the certificate files, only the metric of their expiry does', async () => {
  let reads = 0;
  const ca = () => {
    reads += 1;
    return 'no certificate';
  };
  stage = new WorkerStage();
  const worker = stage.start({ kafka: { ...config.kafka, ca } });
  await stage.pass(START_MS);
  for (let probe = 0; probe < 10; probe += 1)
    expect([worker.unready, worker.unreadyDetail]).toEqual([undefined, undefined]);
  expect(worker.vitals().isMember).toBe(true);
  expect(reads).toBe(0);
  expect([worker.vitals().certificates, reads]).toEqual([[], 1]);
});

test('a worker that waits for Kafka stops immediately', async () => {
  await started((at) => at.onBrokers('freeze'), SILENT_MS);
  await stage.stop();
  expect(stage.runtime.monotonicMs()).toBe(SILENT_MS);
});

test.for([
  [config.topics.requests, 'requests'],
  [config.topics.ledger, 'ledger'],
  [config.topics.witness, 'witness'],
] as const)(
  'a worker that the brokers refuse %s reports that, continues, and is ready again with the right',
  async ([topic, resource]) => {
    const worker = await started();
    stage.kafka.cluster.deny(topic);
    await stage.pass(40_000);
    expect(worker.unready).toBe('KAFKA_REFUSED');
    expect(worker.unreadyDetail).toContain(`topic '${topic}'`);
    expect(worker.vitals().kafkaRefused).toEqual(new Set([resource]));
    stage.kafka.cluster.allow(topic);
    await stage.pass(20_000);
    expect([worker.unready, worker.vitals().kafkaRefused.size]).toEqual([undefined, 0]);
  },
);

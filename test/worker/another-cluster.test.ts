import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Worker } from '../../src/worker/worker.ts';
import { idsOf, StagedRequests } from '../support/staged-requests.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const SERVED_MS = 15_000;
const BINDING = `${config.etcd.prefix}/datacenter/0/clusters/${config.topics.ledger}`;

let stage: WorkerStage;
let asked: StagedRequests;

beforeEach(() => {
  stage = new WorkerStage();
  asked = new StagedRequests(stage);
});
afterEach(() => stage.stop());

/** A worker that has served, and bound the namespace to its cluster. */
async function served(): Promise<Worker> {
  const worker = stage.start();
  await stage.pass(SERVED_MS);
  expect(worker.unready).toBeUndefined();
  return worker;
}

const ledgerEnd = () => stage.kafka.cluster.partition(config.topics.ledger, 0).log.end;
const errors = () => stage.lines.filter(({ level }) => level >= 50);

test('a worker on another cluster says so, decides nothing, and serves without a restart once that is adopted', async () => {
  await served();
  expect(String(stage.etcd.peek(BINDING)?.value)).toBe('fake-kafka');
  await stage.stop();
  stage.kafka.cluster.clusterId = 'elsewhere';
  const worker = stage.start();
  const before = ledgerEnd();
  const ids = idsOf('a', 2);
  asked.send(ids);
  await stage.pass(SERVED_MS);
  expect(worker.unready).toBe('CLUSTER_CHANGED');
  expect([asked.counts(ids), ledgerEnd()]).toEqual([[0, 0], before]);
  const error = expect.stringMatching(/cluster fake-kafka,.* the cluster elsewhere.*adopt-cluster/);
  expect(errors()).toMatchObject([{ code: 'CLUSTER_CHANGED', error }]);
  stage.etcd.tamper(BINDING, Buffer.from('elsewhere'));
  await stage.pass(SERVED_MS);
  expect([worker.unready, asked.counts(ids)]).toEqual([undefined, [1, 1]]);
});

test('a worker whose namespace was given to another cluster meanwhile loses its worker ID', async () => {
  const worker = await served();
  stage.etcd.tamper(BINDING, Buffer.from('elsewhere'));
  await stage.pass(SERVED_MS);
  expect(worker.unready).toBe('CLUSTER_CHANGED');
});

test('a worker ends when brokers of another cluster answer at the same addresses', async () => {
  const worker = await served();
  const ended = expect(worker.done).rejects.toMatchObject({ code: 'CLUSTER_CHANGED' });
  const { cluster } = stage.kafka;
  for (const node of cluster.brokers.keys()) cluster.crash(node);
  await stage.pass(1_000);
  cluster.clusterId = 'elsewhere';
  for (const node of cluster.brokers.keys()) cluster.restart(node);
  const ids = idsOf('a', 1);
  asked.send(ids);
  await stage.pass(SERVED_MS);
  await ended;
  expect(asked.counts(ids)).toEqual([0]);
});

import { afterEach, expect, test } from 'vitest';
import { UNREADY_REASONS } from '../../src/core/gate.ts';
import { REMEDIES } from '../../src/worker/remedies.ts';
import { GateHistory } from '../../src/worker/status.ts';
import type { Worker } from '../../src/worker/worker.ts';
import { readPage } from '../support/docs.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;

let stage: WorkerStage;

afterEach(() => stage.stop());

async function started(): Promise<Worker> {
  stage = new WorkerStage();
  const worker = stage.start();
  await stage.pass(START_MS);
  return worker;
}

test('a ready worker shows its identity, partitions, layout and gate', async () => {
  const worker = await started();
  const { identity, layout, ...status } = worker.status;
  expect(status).toMatchObject({
    ready: true,
    reason: null,
    remedy: null,
    totals: { ids: 0, numbers: 0, requests: 0 },
  });
  expect(identity).toMatchObject({ datacenter_id: config.datacenterId, fence: expect.stringMatching(/^\d+$/) });
  expect(identity.lease_margin_ms).toBeGreaterThan(0);
  expect(layout.ends_ms).toBeGreaterThan(status.now_ms);
  expect(status.partitions).toHaveLength(config.topics.requestPartitions);
  expect(status.partitions[0]).toMatchObject({ owned: true, copy: 'serving', copy_lag: 0, oldest_request_ms: 0 });
  expect(status.gate.map(({ reason }) => reason)).toEqual(expect.arrayContaining(['STARTING', null]));
  expect(status.gate.at(-1)?.reason).toBeNull();
  expect(status.drift).not.toEqual([]);
});

test('the page for operators names each field', async () => {
  const page = readPage('docs/operations/running.md');
  expect(Object.keys((await started()).status).filter((field) => !page.includes(`\`${field}\``))).toEqual([]);
});

test('the worker IDs of the datacenter are read while somebody looks, at most every 5 s', async () => {
  const worker = await started();
  expect(worker.status.worker_ids).toBeNull(); // the first look starts the reading, and does not wait for it
  await stage.pass(1_000);
  expect(worker.status.worker_ids_error).toBeNull();
  const own = worker.status.worker_ids?.ids.find(({ worker_id: id }) => id === worker.status.identity.worker_id);
  expect(own).toMatchObject({ fence: worker.status.identity.fence, holder: expect.any(String) });
  expect(own?.ceiling_ahead_ms).toBeGreaterThan(0);
  const asOfMs = worker.status.worker_ids?.as_of_ms;
  await stage.pass(2_000);
  expect([worker.status.worker_ids?.as_of_ms, worker.status.worker_ids?.as_of_ms]).toEqual([asOfMs, asOfMs]);
  await stage.pass(4_000);
  void worker.status;
  await stage.pass(100);
  expect(worker.status.worker_ids?.as_of_ms).toBeGreaterThan(asOfMs ?? Number.POSITIVE_INFINITY);
});

test('worker IDs that were never used are left out; one that nobody holds any more shows its ceiling alone', async () => {
  const worker = await started();
  stage.start({}, 'other');
  await stage.pass(START_MS);
  await stage.stop('other');
  void worker.status;
  await stage.pass(1_000);
  const ids = worker.status.worker_ids?.ids ?? [];
  expect(ids.map(({ worker_id: id }) => id)).toEqual(ids.map(({ worker_id: id }) => id).toSorted((a, b) => a - b));
  const free = ids.filter(({ worker_id: id }) => id !== worker.status.identity.worker_id);
  expect([ids.length, free]).toMatchObject([2, [{ holder: null, fence: null, ceiling_ahead_ms: expect.any(Number) }]]);
});

test('the workers of the group are read while somebody looks, with the partitions that each answers and stands by for', async () => {
  const worker = await started();
  expect(worker.status.group).toBeNull();
  await stage.pass(1_000);
  const { group, group_error: error } = worker.status;
  const owned = Array.from({ length: config.topics.requestPartitions }, (_, partition) => partition);
  const members = [{ name: expect.any(String), host: '127.0.0.1', owned, standbys: [] }];
  expect([error, group]).toEqual([null, { as_of_ms: expect.any(Number), members }]);
  stage.onBrokers('freeze');
  await stage.pass(6_000);
  void worker.status;
  await stage.pass(60_000);
  expect(worker.status.group_error).not.toBeNull();
  expect(worker.status.group).toEqual(group); // as it was last known
});

test('without brokers the status still shows, with the reason, which brokers are silent, what it means and what to do', async () => {
  const worker = await started();
  stage.onBrokers('freeze');
  await stage.pass(60_000);
  const { ready, reason, detail, remedy, kafka, gate } = worker.status;
  expect(ready).toBe(false);
  expect(detail).toContain('broker-1:9092 has not answered');
  expect(remedy).toEqual(REMEDIES[reason as keyof typeof REMEDIES]);
  expect(kafka.silent_ms).toBeGreaterThan(50_000);
  expect(gate.at(-1)?.reason).not.toBeNull();
});

test('the history of a gate has the changes since a time and the last one before, and at most 500', () => {
  const history = new GateHistory(0, 'STARTING');
  history.changed(1_000, undefined);
  history.changed(5_000, 'LEASE_LOST');
  const reasons = (fromMs: number) => history.since(fromMs).map(({ reason }) => reason);
  expect([reasons(-1), reasons(500), reasons(1_000), reasons(6_000)]).toEqual([
    ['STARTING', null, 'LEASE_LOST'],
    ['STARTING', null, 'LEASE_LOST'],
    [null, 'LEASE_LOST'],
    ['LEASE_LOST'],
  ]);
  for (let i = 0; i < 1_000; i += 1) history.changed(6_000 + i, undefined);
  expect(reasons(0)).toHaveLength(500);
});

test('each reason has a meaning and a remedy in plain text', () => {
  expect(Object.keys(REMEDIES)).toEqual([...UNREADY_REASONS]);
  const texts = Object.values(REMEDIES).flatMap(({ meaning, remedy }) => [meaning, remedy]);
  expect(texts.filter((text) => text.length < 10 || /[`[\]*]|\.\.\//.test(text))).toEqual([]);
});

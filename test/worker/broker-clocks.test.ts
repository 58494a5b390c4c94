import { afterEach, beforeEach, expect, it } from 'vitest';
import { WorkerStage } from '../support/worker-stage.ts';

const HOUR_MS = 3_600_000;

let stage: WorkerStage;
beforeEach(() => {
  stage = new WorkerStage();
});
afterEach(() => stage.stop());

it.each([
  [1, HOUR_MS],
  [2, -HOUR_MS],
  [3, HOUR_MS],
])('a worker serves while the clock of broker %d is off by %d ms, and shows it', async (node, byMs) => {
  stage.kafka.cluster.broker(node).clockErrorMs = byMs;
  const worker = stage.start();
  await stage.pass(60_000);
  expect(worker.unready).toBeUndefined();
  const leads = new Map(worker.vitals().brokerLeads.map(({ broker, milliseconds }) => [broker, milliseconds]));
  expect([...leads.values()].filter((milliseconds) => milliseconds === 0)).toHaveLength(2);
  expect(Math.abs((leads.get(`${node}`) ?? 0) - byMs)).toBeLessThan(1_000);
  expect(stage.lines.filter(({ reason }) => reason === 'CLOCK_DRIFT')).toEqual([]);
});

it('a worker has compared its clock with most brokers when it gets a worker ID, so that none is judged alone', async () => {
  stage.kafka.cluster.broker(1).clockErrorMs = HOUR_MS;
  const worker = stage.start();
  for (let steps = 0; steps < 1_000 && !stage.logged.includes('worker ID acquired'); steps += 1) await stage.pass(10);
  expect(worker.vitals().brokerLeads.length).toBeGreaterThan(1);
});

it('a worker without requests notices within two minutes that all brokers say another time', async () => {
  const worker = stage.start();
  await stage.pass(60_000);
  expect(worker.unready).toBeUndefined();
  for (const node of [1, 2, 3]) stage.kafka.cluster.broker(node).clockErrorMs = HOUR_MS;
  await stage.pass(120_000);
  expect(stage.lines.map(({ reason }) => reason)).toContain('CLOCK_DRIFT');
});

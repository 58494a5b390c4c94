import { afterEach, beforeEach, expect, it } from 'vitest';
import { WorkerStage } from '../support/worker-stage.ts';

const HOUR_MS = 3_600_000;

let stage: WorkerStage;
beforeEach(() => {
  stage = new WorkerStage();
});
afterEach(() => stage.stop());

it.each([HOUR_MS, -HOUR_MS])('a worker serves beside one broker whose clock is off by %d ms, and shows it', async (byMs) => {
  const broker = stage.kafka.cluster.broker(2);
  broker.clockErrorMs = byMs;
  const worker = stage.start();
  await stage.pass(60_000);
  expect(worker.unready).toBeUndefined();
  const leads = new Map(worker.vitals().brokerLeads.map(({ broker, milliseconds }) => [broker, milliseconds]));
  expect([leads.get('1'), leads.get('3')]).toEqual([0, 0]);
  expect(Math.abs((leads.get('2') ?? 0) - byMs)).toBeLessThan(1_000);
  expect(stage.lines.filter(({ reason }) => reason === 'CLOCK_DRIFT')).toEqual([]);
});

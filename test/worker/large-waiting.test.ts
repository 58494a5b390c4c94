import { afterEach, expect, test } from 'vitest';
import { idsOf, StagedRequests } from '../support/staged-requests.ts';
import { WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;
const LARGEST = 100_000;

let stage: WorkerStage;

afterEach(() => stage.stop());

test('large requests beyond the capacity are counted, with the age of the oldest, until they are answered', async () => {
  stage = new WorkerStage();
  const asked = new StagedRequests(stage);
  const worker = stage.start();
  await stage.pass(START_MS);
  expect(worker.vitals().largeWaiting).toEqual([]);
  const ids = idsOf('large', 300);
  asked.send(ids, LARGEST);
  await stage.pass(1_000);
  const [early] = worker.vitals().largeWaiting;
  expect(early).toMatchObject({ partition: 0 });
  expect(early?.waiting).toBeGreaterThan(200);
  await stage.pass(1_000);
  const [late] = worker.vitals().largeWaiting;
  expect(late?.waiting).toBeLessThan(early?.waiting as number);
  expect(late?.milliseconds).toBeGreaterThan(1_500);
  await stage.pass(60_000);
  expect(worker.vitals().largeWaiting).toEqual([]);
  expect(asked.counts(ids)).toEqual(ids.map(() => 1));
});

import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Worker } from '../../src/worker/worker.ts';
import { idsOf, StagedRequests } from '../support/staged-requests.ts';
import { WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;
const SCRAPE_MS = 15_000;
const WAITED_MS = 60_000;
const LONG_SESSION_MS = 180_000;

let stage: WorkerStage;
let asked: StagedRequests;

beforeEach(() => {
  stage = new WorkerStage();
  asked = new StagedRequests(stage);
});

afterEach(() => stage.stop());

/** Scrapes a worker for a while; what the last scrape shows of each partition, in whole minutes. */
async function scraped(worker: Worker, forMs: number): Promise<Record<number, number>> {
  let { groupUnread } = worker.vitals();
  for (let passedMs = 0; passedMs < forMs; passedMs += SCRAPE_MS) {
    await stage.pass(SCRAPE_MS);
    ({ groupUnread } = worker.vitals());
  }
  return Object.fromEntries(
    groupUnread.map(({ partition, milliseconds }) => [partition, Math.floor(milliseconds / WAITED_MS)]),
  );
}

test('a worker that may not serve reports how long requests have waited that nobody answers, from before its start', async () => {
  asked.send(idsOf('early', 3));
  await stage.pass(2 * WAITED_MS);
  stage.etcd.fill(); // so that it gets no worker ID
  const worker = stage.start();
  const found = await scraped(worker, 2 * SCRAPE_MS);
  expect(worker.unready).toBe('NO_IDENTITY');
  expect(found).toEqual({ 0: 2 });
  stage.etcd.free();
  expect(await scraped(worker, WAITED_MS)).toEqual({});
  expect(asked.counts(idsOf('early', 3))).toEqual([1, 1, 1]);
});

test('a worker reports the partitions of one that is dead and still owns them, and nothing while all are answered', async () => {
  const changes = { groupSessionMs: LONG_SESSION_MS };
  const [one, other] = [stage.start(changes, 'one'), stage.start(changes, 'other')];
  await stage.pass(START_MS);
  expect(await scraped(other, WAITED_MS)).toEqual({});
  const before = idsOf('before', 4);
  for (const id of before) {
    asked.send([id]); // it waits while a look begins, and no longer
    expect(await scraped(other, SCRAPE_MS)).toEqual({});
  }
  expect(asked.counts(before)).toEqual([1, 1, 1, 1]);
  const owned = one.vitals().copies.filter(({ state }) => state === 'serving');
  const partition = owned[0]?.partition as number;
  stage.kill('one'); // its session lasts on
  asked.send(idsOf('after', 3), 1, partition);
  expect(await scraped(other, 2 * SCRAPE_MS + WAITED_MS)).toEqual({ [partition]: 1 });
  await stage.pass(LONG_SESSION_MS);
  expect(await scraped(other, WAITED_MS)).toEqual({});
});

import { afterEach, expect, test } from 'vitest';
import type { Worker } from '../../src/worker/worker.ts';
import { idsOf, StagedRequests } from '../support/staged-requests.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const JOINED_MS = 40_000;
const ANSWERED_MS = 40_000;
/** The standby is in its longest back-off when the brokers are back. */
const OUTAGE_MS = 5_300;

let stage: WorkerStage;
let asked: StagedRequests;

afterEach(() => stage.stop());

const ask = (ids: readonly string[]) => asked.send(ids);

function expectOneBatchEach(ids: readonly string[]): void {
  for (const id of ids) {
    const batches = asked.repliesTo(id).flatMap((reply) => ('batch' in reply ? [reply.batch] : []));
    expect(new Set(batches.map(({ ranges }) => ranges[0]?.first)).size, id).toBe(1);
  }
}

const owns = (worker: Worker) =>
  worker.vitals().copies.some(({ partition, state }) => partition === 0 && state === 'serving');

/** Two workers with complete copies of all partitions; the owner of partition 0 comes first. */
async function twoWorkers(): Promise<readonly [owner: string, standby: string]> {
  stage = new WorkerStage();
  asked = new StagedRequests(stage);
  const workers = new Map(['a', 'b'].map((name) => [name, stage.start({}, name)]));
  await stage.pass(JOINED_MS);
  ask(idsOf('old', 6));
  await stage.pass(ANSWERED_MS);
  const owner = [...workers].find(([, worker]) => owns(worker))?.[0] ?? 'none';
  expect(['a', 'b']).toContain(owner);
  return [owner, owner === 'a' ? 'b' : 'a'];
}

const ledger = () => stage.kafka.cluster.partition(config.topics.ledger, 0).log;
const loseTail = (entries: number) => stage.kafka.cluster.truncate(config.topics.ledger, 0, ledger().end - entries);

test('after all brokers were away and the ledger has lost its tail, each request has one batch, whoever decides', async () => {
  const [owner] = await twoWorkers();
  const { cluster } = stage.kafka;
  const end = ledger().end;
  for (const node of cluster.brokers.keys()) cluster.crash(node);
  await stage.pass(OUTAGE_MS);
  loseTail(2);
  for (const node of cluster.brokers.keys()) cluster.restart(node);
  await stage.pass(20);
  const fresh = idsOf('new', 8);
  ask(fresh);
  await stage.pass(ANSWERED_MS);
  expect(ledger().end, 'the log is as long again').toBeGreaterThanOrEqual(end);
  await stage.stop(owner);
  await stage.pass(JOINED_MS);
  ask(fresh); // the standby, which owns the partition now, gets each once more
  await stage.pass(ANSWERED_MS);
  expectOneBatchEach(fresh);
});

test('a worker that was cut off while the ledger lost its tail and grew again decides nothing twice', async () => {
  const [owner, standby] = await twoWorkers();
  const end = ledger().end;
  stage.cut.add(standby);
  await stage.pass(20_000);
  loseTail(4);
  await stage.pass(20_000);
  const fresh = idsOf('new', 6);
  ask(fresh);
  await stage.pass(ANSWERED_MS);
  expect(ledger().end, 'the log is as long again').toBeGreaterThanOrEqual(end);
  stage.cut.delete(standby);
  await stage.pass(JOINED_MS);
  await stage.stop(owner);
  await stage.pass(JOINED_MS);
  ask(fresh);
  await stage.pass(ANSWERED_MS);
  expectOneBatchEach(fresh);
});

test('a ledger recreated under its owner is restored with a warning, and each request has one batch', async () => {
  await twoWorkers();
  const { cluster } = stage.kafka;
  loseTail(ledger().end);
  cluster.crash(1);
  await stage.pass(JOINED_MS);
  cluster.restart(1);
  const fresh = idsOf('new', 2);
  ask(fresh);
  await stage.pass(ANSWERED_MS);
  expectOneBatchEach(fresh);
  const restored = stage.lines.filter(({ msg }) => msg === 'restoring a ledger partition from the log');
  expect(restored.map(({ cause }) => cause)).toContainEqual(expect.stringMatching(/^the log spans 0 to 0 now/));
});

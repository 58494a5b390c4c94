import { afterEach, expect, test } from 'vitest';
import { decodeIdReply } from '../../src/codec/id-reply.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { partitionFor } from '../../src/kafka/records/partitioner.ts';
import type { Worker } from '../../src/worker/worker.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const REPLIES = 'id.replies.test';
const JOINED_MS = 40_000;
const ANSWERED_MS = 40_000;
/** The standby is in its longest back-off when the brokers are back. */
const OUTAGE_MS = 5_300;

let stage: WorkerStage;

afterEach(() => stage.stop());

/** Correlation IDs whose home is partition 0. */
function idsOf(name: string, count: number): readonly string[] {
  const { requestPartitions } = config.topics;
  const ids = Array.from({ length: 300 }, (_, i) => `${name}${i}`);
  return ids.filter((id) => partitionFor(Buffer.from(id), requestPartitions, () => 0) === 0).slice(0, count);
}

function ask(ids: readonly string[]): void {
  const requests = ids.map((id) => {
    const correlationId = Buffer.from(id);
    return { key: correlationId, value: encodeIdRequest({ count: 1, correlationId, replyTopic: REPLIES }) };
  });
  stage.kafka.cluster.send(config.topics.requests, 0, requests);
}

/** The first IDs of the batches that each correlation ID got. */
function batches(): ReadonlyMap<string, ReadonlySet<bigint>> {
  const found = new Map<string, Set<bigint>>();
  for (const { log } of stage.kafka.cluster.topics.get(REPLIES)?.partitions ?? []) {
    for (const { key, value } of log.batches().flatMap(recordsOf)) {
      const reply = decodeIdReply(value as Buffer);
      if (!('batch' in reply)) continue;
      const id = String(key);
      found.set(id, (found.get(id) ?? new Set()).add(reply.batch.ranges[0]?.first ?? 0n));
    }
  }
  return found;
}

function expectOneBatchEach(ids: readonly string[]): void {
  const found = batches();
  for (const id of ids) expect(found.get(id)?.size, id).toBe(1);
}

const owns = (worker: Worker) =>
  worker.vitals().copies.some(({ partition, state }) => partition === 0 && state === 'serving');

/** Two workers with complete copies of all partitions; the owner of partition 0 comes first. */
async function twoWorkers(): Promise<readonly [owner: string, standby: string]> {
  stage = new WorkerStage();
  stage.kafka.cluster.createTopic(REPLIES, { partitions: 1, replicas: 3 });
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

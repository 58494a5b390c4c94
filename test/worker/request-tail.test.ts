import { afterEach, expect, test } from 'vitest';
import { decodeIdReply } from '../../src/codec/id-reply.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { partitionFor } from '../../src/kafka/records/partitioner.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const REPLIES = 'id.replies.test';
const START_MS = 10_000;
const CONFIRMED_MS = 15_000;
const { requests } = config.topics;

let stage: WorkerStage;

afterEach(() => stage.stop());

/** Correlation IDs whose home is partition 0. */
function idsOf(name: string, count: number): readonly string[] {
  const ids = Array.from({ length: 300 }, (_, i) => `${name}${i}`);
  const { requestPartitions } = config.topics;
  return ids.filter((id) => partitionFor(Buffer.from(id), requestPartitions, () => 0) === 0).slice(0, count);
}

function ask(ids: readonly string[]): void {
  const records = ids.map((id) => {
    const correlationId = Buffer.from(id);
    return { key: correlationId, value: encodeIdRequest({ count: 1, correlationId, replyTopic: REPLIES }) };
  });
  stage.kafka.cluster.send(requests, 0, records);
}

const log = () => stage.kafka.cluster.partition(requests, 0).log;

/** How many replies each correlation ID got. */
function replies(): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const partition of stage.kafka.cluster.topics.get(REPLIES)?.partitions ?? []) {
    for (const { key, value } of partition.log.batches().flatMap(recordsOf)) {
      expect(decodeIdReply(value as Buffer)).toHaveProperty('batch');
      counts.set(String(key), (counts.get(String(key)) ?? 0) + 1);
    }
  }
  return counts;
}

async function started(): Promise<void> {
  stage = new WorkerStage();
  stage.kafka.cluster.createTopic(REPLIES, { partitions: 1, replicas: 3 });
  stage.start();
  await stage.pass(START_MS);
}

test('after the request topic has lost its tail, requests at reused offsets get replies, old ones are not read again, and the loss is logged', async () => {
  await started();
  const old = idsOf('old', 4);
  ask(old);
  await stage.pass(120_000);
  ask(old); // known requests: the tail has no decisions
  await stage.pass(3_000);
  expect(replies().get(old[0] ?? '')).toBe(2);
  stage.kafka.cluster.truncate(requests, 0, 4);
  const [early, late] = [idsOf('early', 2), idsOf('late', 3)];
  ask(early); // before the worker has seen the shorter log
  await stage.pass(CONFIRMED_MS);
  ask(late);
  await stage.pass(CONFIRMED_MS);
  expect([...early, ...late].map((id) => replies().get(id))).toEqual([1, 1, 1, 1, 1]);
  expect(replies().get(old[0] ?? '')).toBe(2);
  expect(stage.lines.filter(({ msg }) => /ends below the read position/.test(msg))).toMatchObject([
    { partition: 0, position: 8, logStart: 0, end: 6, from: 4 },
  ]);
  expect(stage.kafka.cluster.groups.committed(config.groupId, requests, 0)).toBe(log().end);
});

test('requests are answered even if the log is as long again moments after its loss was seen', async () => {
  await started();
  const old = idsOf('old', 4);
  ask(old);
  await stage.pass(3_000);
  ask(old);
  await stage.pass(3_000);
  stage.kafka.cluster.truncate(requests, 0, 4);
  await stage.pass(3_000);
  const committed = stage.kafka.cluster.groups.committed(config.groupId, requests, 0);
  expect(committed, 'the next owner begins within the log').toBeLessThanOrEqual(4);
  const fresh = idsOf('fresh', 4);
  ask(fresh);
  expect(log().end).toBe(8);
  await stage.pass(CONFIRMED_MS);
  expect(fresh.map((id) => replies().get(id))).toEqual([1, 1, 1, 1]);
});

test('a worker that starts beyond the end of the log reads it from its start, once that is certain', async () => {
  await started();
  ask(idsOf('old', 4));
  await stage.pass(3_000);
  ask(idsOf('old', 4));
  await stage.pass(3_000);
  await stage.stop('instance');
  stage.kafka.cluster.truncate(requests, 0, 4);
  const fresh = idsOf('fresh', 2);
  ask(fresh);
  stage.start();
  await stage.pass(START_MS + CONFIRMED_MS + CONFIRMED_MS);
  expect(fresh.map((id) => replies().get(id))).toEqual([1, 1]);
});

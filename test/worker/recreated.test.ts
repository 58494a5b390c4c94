import { afterEach, expect, test } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

/** Time to acquire a worker ID and to join the group. */
const START_MS = 10_000;
const ERROR_LEVEL = 50;
const { requests, ledger } = config.topics;

let stage: WorkerStage;

afterEach(() => stage.stop());

/** Correlation IDs with home partition 0. */
const OWN_IDS = Array.from({ length: 200 }, (_, i) => Buffer.from(`c${i}`)).filter(
  (correlationId) => partitionFor(correlationId, config.topics.requestPartitions, () => 0) === 0,
);

function ask(count: number): void {
  const value = (correlationId: Buffer) => encodeIdRequest({ count: 1, correlationId, replyTopic: 'id.replies.cli' });
  const records = OWN_IDS.slice(0, count).map((correlationId) => ({ key: null, value: value(correlationId) }));
  stage.kafka.cluster.send(requests, 0, records);
}

const endOf = (topic: string) => stage.kafka.cluster.partition(topic, 0).log.end;

test.each([
  ['under its ledger', [requests], []],
  ['after its ledger was', [ledger, requests], [{ code: 'LEDGER_TRUNCATED' }]],
])('a request topic recreated %s is noticed within seconds, and nothing is decided', async (_, topics, losses) => {
  stage = new WorkerStage();
  stage.start();
  await stage.pass(START_MS);
  ask(5);
  await stage.pass(3_000);
  for (const topic of topics) {
    stage.kafka.cluster.truncate(topic, 0, 0);
    await stage.pass(3_000);
  }
  const before = endOf(ledger);
  ask(2);
  // Answers of deposed leaders may still arrive for a while.
  await stage.pass(15_000);
  expect(stage.lines.filter(({ level }) => level >= ERROR_LEVEL)).toMatchObject([
    ...losses,
    { error: expect.stringMatching(/^REQUESTS_RECREATED: /) },
  ]);
  expect(endOf(ledger)).toBe(before);
  expect(stage.kafka.cluster.partition(requests, 0).log.end).toBe(2);
});

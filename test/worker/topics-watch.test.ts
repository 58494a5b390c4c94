import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Worker } from '../../src/worker/worker.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;
/** The longest time between two looks, and what a look takes at most while brokers don't answer. */
const NOTICED_MS = 75_000 + 10_000;
const { requests, ledger, witness, deadLetters } = config.topics;

let stage: WorkerStage;
let worker: Worker;
let ended: unknown;

beforeEach(async () => {
  stage = new WorkerStage();
  worker = stage.start();
  ended = undefined;
  worker.done.catch((error: unknown) => {
    ended = error;
  });
  await stage.pass(START_MS);
});

afterEach(() => stage.stop());

const linesOf = (msg: string) => stage.lines.filter((line) => line.msg === msg);

/** Changes of an operator: topic, settings, code of the fault, and what its message names. */
const CHANGES = [
  [requests, { 'compression.type': 'gzip' }, 'TOPIC_INVALID', "topic 'id.requests' must have compression.type"],
  [deadLetters, { 'cleanup.policy': 'compact' }, 'TOPIC_INVALID', "topic 'id.requests.dlt' must have cleanup.policy"],
  [witness, { 'cleanup.policy': 'delete' }, 'TOPIC_INVALID', "topic 'id.witness' must have cleanup.policy"],
  [ledger, { 'unclean.leader.election.enable': 'true' }, 'LEDGER_WEAK', 'unclean.leader.election.enable=false'],
  [ledger, { 'retention.ms': '3600000' }, 'LEDGER_RETENTION', 'retention.ms of at least'],
  [ledger, { 'min.insync.replicas': '1' }, 'LEDGER_WEAK', 'min.insync.replicas of at least 2'],
] as const;

test('a running worker names changed settings within the next look, once, serves on, and takes that back when they are repaired', async () => {
  const undo = CHANGES.map(([topic, change]) => stage.kafka.cluster.configure(topic, change));
  const named = CHANGES.map(([, , code, what]) => ({ code, error: expect.stringContaining(what) }));
  await stage.pass(NOTICED_MS);
  expect(worker.vitals().topicFaults).toMatchObject(CHANGES.map(([, , code]) => ({ code })));
  expect(worker.unready).toBeUndefined();
  await stage.pass(NOTICED_MS);
  expect(linesOf('a topic was changed')).toMatchObject(named.map((line) => ({ level: 50, ...line })));
  const detail = linesOf('a topic was changed')
    .map(({ error }) => error)
    .join('; ');
  expect(worker.warning).toEqual({ code: 'TOPIC_INVALID', detail });
  for (const one of undo.reverse()) one();
  await stage.pass(NOTICED_MS);
  expect([worker.warning, worker.vitals().topicFaults]).toEqual([undefined, []]);
  expect(linesOf('a topic was repaired')).toMatchObject(named.map((line) => ({ level: 30, ...line })));
  expect(ended).toBeUndefined();
});

test('what was found holds while the brokers do not answer, and their silence is no fault of the topics', async () => {
  stage.onBrokers('freeze');
  await stage.pass(NOTICED_MS);
  expect(worker.warning).toBeUndefined();
  stage.onBrokers('thaw');
  stage.kafka.cluster.configure(ledger, { 'retention.ms': '1' });
  await stage.pass(NOTICED_MS);
  const { warning } = worker;
  expect(warning).toMatchObject({ code: 'LEDGER_RETENTION' });
  stage.onBrokers('freeze');
  await stage.pass(NOTICED_MS);
  expect(worker.warning).toEqual(warning);
  expect(ended).toBeUndefined();
});

test('a worker that may no longer read the settings is ready without a warning, and says so once', async () => {
  const { cluster } = stage.kafka;
  cluster.hidesConfigs = true;
  cluster.configure(ledger, { 'retention.ms': '1' });
  await stage.pass(2 * NOTICED_MS);
  expect(worker.warning).toBeUndefined();
  expect(worker.unready).toBeUndefined();
  expect(linesOf("the topics' settings could not be read")).toMatchObject([
    { level: 40, error: expect.stringContaining('TOPIC_AUTHORIZATION_FAILED') },
  ]);
  cluster.hidesConfigs = false;
  await stage.pass(NOTICED_MS);
  expect(worker.warning).toMatchObject({ code: 'LEDGER_RETENTION' });
});

test('added partitions and a changed setting are one warning, which names both', async () => {
  stage.kafka.cluster.growTopic(requests, 5);
  stage.kafka.cluster.configure(ledger, { 'retention.ms': '1' });
  await stage.pass(NOTICED_MS);
  expect(worker.warning).toEqual({
    code: 'TOPIC_INVALID',
    detail: expect.stringMatching(/has 5 partitions instead of 3.*; topic 'id.ledger' must have retention/),
  });
  expect(worker.vitals().topicFaults).toMatchObject([{ code: 'LEDGER_RETENTION' }]);
});

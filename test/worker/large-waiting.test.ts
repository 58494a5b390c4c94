import { afterEach, expect, test } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { IdallocError } from '../../src/errors.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { idsOf, StagedRequests } from '../support/staged-requests.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

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

test('requests for numbers are counted while etcd is silent, beside which IDs are served, and answered when it is not', async () => {
  stage = new WorkerStage();
  const asked = new StagedRequests(stage);
  const worker = stage.start();
  await stage.pass(START_MS);
  stage.etcdFault = new IdallocError('ETCD_UNAVAILABLE', 'silent');
  const sequence = 'invoices';
  const partition = partitionFor(Buffer.from(sequence), config.topics.requestPartitions, () => 0);
  const value = encodeIdRequest({ count: 1, correlationId: Buffer.from('n'), replyTopic: 'id.replies.test', sequence });
  stage.kafka.cluster.send(config.topics.requests, partition, [{ key: null, value }]);
  asked.send(idsOf('small', 5));
  await stage.pass(3_000);
  expect(asked.counts([...idsOf('small', 5), 'n'])).toEqual([1, 1, 1, 1, 1, 0]);
  const [waiting] = worker.vitals().numbersWaiting;
  expect(waiting).toMatchObject({ partition, waiting: 1 });
  expect(waiting?.milliseconds).toBeGreaterThan(2_000);
  expect(worker.vitals().oldestUnread.find((one) => one.partition === partition)?.milliseconds).toBeGreaterThan(2_000);
  stage.etcdFault = undefined;
  await stage.pass(3_000);
  expect(asked.repliesTo('n')).toMatchObject([{ error: { code: 'UNKNOWN_SEQUENCE' } }]);
  expect(worker.vitals().numbersWaiting).toEqual([]);
});

test('requests for reply topics that do not exist wait as one requester, whatever names they have', async () => {
  stage = new WorkerStage();
  const asked = new StagedRequests(stage);
  stage.start();
  await stage.pass(START_MS);
  asked.send(idsOf('first', 1));
  await stage.pass(2_000);
  asked.send(idsOf('small', 1)); // by now its topic is known
  await stage.pass(100);
  const values = idsOf('made-up', 1_000).map((id) => {
    return encodeIdRequest({ count: 1, correlationId: Buffer.from(id), replyTopic: `id.replies.${id}` });
  });
  stage.kafka.cluster.send(
    config.topics.requests,
    0,
    values.map((value) => ({ key: null, value })),
  );
  await stage.pass(20_000);
  const waits = stage.lines.filter(({ msg }) => msg.startsWith('requests wait, since'));
  expect(new Set(waits.map(({ account }) => account))).toEqual(new Set(['unknown topics']));
  asked.send(idsOf('last', 1));
  await stage.pass(1_000);
  expect(asked.counts([...idsOf('first', 1), ...idsOf('small', 1), ...idsOf('last', 1)])).toEqual([1, 1, 1]);
});

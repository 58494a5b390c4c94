import { afterEach, beforeEach, expect, test } from 'vitest';
import { IdallocError } from '../../src/errors.ts';
import type { Worker } from '../../src/worker/worker.ts';
import { idsOf, StagedRequests } from '../support/staged-requests.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;
/** Metadata is renewed every 10 s, and looked at every second. */
const NOTICED_MS = 11_500;
const REPLIED_MS = 3_000;
const { requests, ledger } = config.topics;

let stage: WorkerStage;
let asked: StagedRequests;
let worker: Worker;
let ended: unknown;

beforeEach(async () => {
  stage = new WorkerStage();
  asked = new StagedRequests(stage);
  worker = stage.start();
  ended = undefined;
  worker.done.catch((error: unknown) => {
    ended = error;
  });
  await stage.pass(START_MS);
});

afterEach(() => stage.stop());

const grow = (topic: string) => stage.kafka.cluster.growTopic(topic, 5);
const errors = () => stage.lines.filter(({ msg }) => msg === 'partitions were added to a topic');

async function expectReplies(ids: readonly string[], each: number): Promise<void> {
  asked.send(ids);
  await stage.pass(REPLIED_MS);
  expect(asked.counts(ids)).toEqual(ids.map(() => each));
}

test('a running worker names added partitions within seconds, once, and is still ready', async () => {
  expect(worker.warning).toBeUndefined();
  grow(requests);
  await stage.pass(NOTICED_MS);
  expect(errors()).toMatchObject([{ level: 50, code: 'TOPIC_INVALID', topic: requests, partitions: 5, served: 3 }]);
  expect(worker.warning).toEqual({
    code: 'TOPIC_INVALID',
    detail: expect.stringContaining('5 partitions instead of 3'),
  });
  expect(worker.warning?.detail).toMatch(/forward the requests of the others to them.*pair-of-topics/);
  expect(worker.vitals().addedPartitions).toEqual(new Map([['requests', 2]]));
  expect(worker.unready).toBeUndefined();
  await stage.pass(NOTICED_MS);
  expect(errors()).toHaveLength(1);
});

test('requests of the partitions from before are still served, over rebalances and at their homes of before', async () => {
  stage.start({}, 'second');
  await stage.pass(START_MS);
  const known = idsOf('known', 3);
  await expectReplies(known, 1);
  const [before] = asked.repliesTo(known[0] as string);
  grow(requests);
  await stage.pass(NOTICED_MS);
  await expectReplies(known, 2);
  await stage.stop('second');
  await stage.pass(START_MS);
  expect(stage.lines.at(-1)).toMatchObject({ msg: 'joined the request group', partitions: [0, 1, 2] });
  await expectReplies(idsOf('new', 3), 1);
  await expectReplies(known, 3);
  for (const reply of asked.repliesTo(known[0] as string)) expect(reply).toEqual(before);
  expect(ended).toBeUndefined();
});

test.each([
  ['the request topic', [requests]],
  ['the ledger', [ledger]],
  ['both', [requests, ledger]],
])(
  'after partitions were added to %s, a worker that starts serves those from before, with the same warning',
  async (_, grown) => {
    const known = idsOf('known', 3);
    await expectReplies(known, 1);
    for (const topic of grown) grow(topic);
    await stage.pass(NOTICED_MS);
    const before = worker.warning;
    await stage.stop();
    const successor = stage.start({}, 'successor');
    await stage.pass(START_MS);
    expect(successor.unready).toBeUndefined();
    expect(successor.warning).toEqual(before);
    expect(errors().map(({ topic }) => topic)).toEqual([...grown, ...grown]);
    await expectReplies(known, 2);
    await expectReplies(idsOf('new', 3), 1);
  },
);

test.each([
  ['is away', 'ETCD_UNAVAILABLE'],
  ['refuses reads', 'ETCD_REFUSED'],
] as const)(
  'a worker that starts on a topic with added partitions waits while etcd %s, and says so',
  async (_, code) => {
    grow(requests);
    await stage.stop();
    stage.etcdFault = new IdallocError(code, 'no rights');
    const successor = stage.start();
    await stage.pass(START_MS);
    expect(successor.unready).toBe('NO_IDENTITY');
    expect(stage.logged).toContain('waiting for etcd');
    stage.etcdFault = undefined;
    await stage.pass(START_MS);
    expect(successor.unready).toBeUndefined();
  },
);

test.each([
  ['etcd has no count', 3, () => stage.etcd.wipe(), 'TOPIC_INVALID', /has 5 partitions, .* set it to the number/],
  ['another count is bound', 4, () => {}, 'NAMESPACE_MISMATCH', /Set REQUEST_PARTITIONS=3/],
])(
  'no worker starts on more partitions than REQUEST_PARTITIONS where %s',
  async (_, requestPartitions, change, code, text) => {
    for (const topic of [requests, ledger]) grow(topic);
    await stage.stop();
    change();
    const { done } = stage.start({ topics: { ...config.topics, requestPartitions } });
    await expect(stage.runtime.until(done)).rejects.toMatchObject({ code, message: expect.stringMatching(text) });
  },
);

test('requests in added partitions are forwarded to their homes and answered once, over restarts and by whoever serves the others', async () => {
  grow(requests);
  const before = idsOf('before', 2); // sent before a worker has noticed
  for (const [i, id] of before.entries()) asked.send([id], 1, 3 + i);
  await stage.pass(NOTICED_MS + REPLIED_MS);
  expect(asked.counts(before)).toEqual([1, 1]);
  stage.start({}, 'second');
  await stage.pass(START_MS);
  const both = idsOf('both', 2);
  for (const [i, id] of both.entries()) asked.send([id], 1, 3 + i);
  await stage.pass(REPLIED_MS);
  await stage.stop('instance');
  await stage.pass(START_MS);
  const after = idsOf('after', 2);
  for (const [i, id] of after.entries()) asked.send([id], 1, 3 + i);
  await stage.pass(REPLIED_MS);
  await stage.stop('second');
  stage.start({}, 'third');
  await stage.pass(START_MS);
  const all = [...before, ...both, ...after];
  expect(asked.counts(all)).toEqual(all.map(() => 1));
});

test('large requests in added partitions are forwarded, too, and answered once', async () => {
  grow(requests);
  await stage.pass(NOTICED_MS);
  const [large, mixed] = [idsOf('large', 2), idsOf('mixed', 2)];
  asked.send(large, 6_000, 3);
  asked.send(mixed, 1, 3);
  await stage.pass(3 * REPLIED_MS);
  expect(asked.counts([...large, ...mixed])).toEqual([1, 1, 1, 1]);
  expect(worker.vitals().largeWaiting).toEqual([]);
});

test('partitions that were added to the ledger alone are named, and need no forwarding', async () => {
  grow(ledger);
  await stage.pass(NOTICED_MS);
  expect(worker.vitals().addedPartitions).toEqual(new Map([['ledger', 2]]));
  expect(worker.warning?.detail).not.toContain('forward');
  await expectReplies(idsOf('new', 3), 1);
});

test('a worker ends when a topic comes back with fewer partitions', async () => {
  stage.kafka.cluster.deleteTopic(ledger);
  stage.kafka.cluster.createTopic(ledger, { partitions: 2, replicas: 3 });
  await stage.pass(NOTICED_MS);
  expect(ended).toMatchObject({ code: 'TOPIC_INVALID', message: expect.stringContaining('2 partitions instead of 3') });
});

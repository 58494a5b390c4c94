import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Worker } from '../../src/worker/worker.ts';
import { idsOf, StagedRequests } from '../support/staged-requests.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const START_MS = 30_000;
/** The promise: a partition that its owner can't serve is served by another this soon. */
const BOUND_MS = 15_000;
/** Copies are complete, and the link has been good for a while. */
const BACK_MS = 60_000;
const LONG_MS = 300_000;
/** The broker that a worker is cut off from; it leads nothing but what a test gives it. */
const FAR = 3;
const NEAR = 1;
const { requests, ledger, witness } = config.topics;

let stage: WorkerStage;
let asked: StagedRequests;

beforeEach(() => {
  stage = new WorkerStage();
  asked = new StagedRequests(stage);
  const { cluster } = stage.kafka;
  while (cluster.coordinatorOf(config.groupId) === FAR) cluster.moveCoordinator(config.groupId);
  for (const topic of [requests, ledger, witness, 'id.replies.test']) {
    for (const partition of cluster.topics.get(topic)?.partitions.keys() ?? []) lead(topic, partition, NEAR);
  }
});

afterEach(() => stage.stop());

function lead(topic: string, partition: number, node: number): void {
  stage.kafka.cluster.moveLeader(topic, partition, node);
}

const owned = (worker: Worker) =>
  worker.vitals().copies.flatMap(({ partition, state }) => (state === 'serving' ? partition : []));
const replied = (ids: readonly string[]) => ids.filter((id) => asked.repliesTo(id).length > 0);
const joins = () => stage.logged.filter((line) => line === 'joined the request group').length;

/** Two workers, that of partition 0 first. */
async function two(): Promise<readonly [Worker, Worker, string]> {
  const [a, b] = [stage.start({}, 'a'), stage.start({}, 'b')];
  await stage.pass(START_MS);
  expect([a.unready, b.unready]).toEqual([undefined, undefined]);
  return owned(a).includes(0) ? [a, b, 'a'] : [b, a, 'b'];
}

test.each([
  ['requests', requests],
  ['the ledger', ledger],
  ['replies', 'id.replies.test'],
])(
  'a worker that does not reach the leader of %s hands its partitions over in time, and gets them back',
  async (_, topic) => {
    lead(topic, 0, FAR);
    const [owner, other, host] = await two();
    const before = owned(owner);
    stage.cut.add(`${host}:${FAR}`);
    const ids = idsOf('cut', 5);
    asked.send(ids);
    await stage.pass(BOUND_MS);
    expect(replied(ids)).toEqual(ids);
    expect([owned(owner).includes(0), owned(other).includes(0)]).toEqual([false, true]);
    expect(owner.unready, 'it serves all that is its own').toBeUndefined();
    stage.cut.clear();
    await stage.pass(BACK_MS);
    expect(owned(owner)).toEqual(before);
    const late = idsOf('back', 5);
    asked.send(late);
    await stage.pass(1_000);
    expect(replied(late)).toEqual(late);
  },
);

test('a worker that does not reach a leader is not ready, and names broker and partitions, until the partitions are handed over', async () => {
  lead(ledger, 0, FAR);
  const [owner, , host] = await two();
  stage.cut.add(`${host}:${FAR}`);
  await stage.pass(6_000);
  expect(owner.unready).toBe('KAFKA_UNAVAILABLE');
  expect(owner.unreadyDetail).toMatch(
    /^broker broker-3:9092 has not answered this worker for 6 s, and leads id\.ledger\/0: /,
  );
  expect(owner.vitals().silent).toMatchObject([{ partition: 0, topic: 'ledger', broker: 'broker-3:9092' }]);
  await stage.pass(BOUND_MS - 6_000);
  expect([owner.unready, owner.vitals().silent]).toEqual([undefined, []]);
});

test('partitions that no worker reaches stay where they are, the group is left alone, and all are served at the end', async () => {
  for (const partition of [0, 1, 2]) lead(requests, partition, FAR);
  const [owner, other] = await two();
  const before = [owned(owner), owned(other)];
  const joinsBefore = joins();
  stage.cut.add(`a:${FAR}`).add(`b:${FAR}`);
  const ids = idsOf('nobody', 3);
  asked.send(ids);
  await stage.pass(LONG_MS);
  expect([owned(owner), owned(other)]).toEqual(before);
  expect([owner.unready, other.unready]).toEqual(['KAFKA_UNAVAILABLE', 'KAFKA_UNAVAILABLE']);
  expect(joins() - joinsBefore, 'at most one rebalance a minute of each').toBeLessThanOrEqual(2 * 2 * 6);
  expect(Math.min(...owner.vitals().oldestUnread.map(({ milliseconds }) => milliseconds))).toBeGreaterThan(
    LONG_MS - 2_000,
  );
  stage.cut.clear();
  await stage.pass(BACK_MS);
  expect([owner.unready, other.unready]).toEqual([undefined, undefined]);
  expect(replied(ids)).toEqual(ids);
});

test('a link that fails again and again does not move partitions back and forth', async () => {
  lead(requests, 0, FAR);
  const [owner, other, host] = await two();
  stage.cut.add(`${host}:${FAR}`);
  await stage.pass(BOUND_MS);
  const joinsBefore = joins();
  for (let times = 0; times < 10; times += 1) {
    stage.cut.clear();
    await stage.pass(5_000);
    stage.cut.add(`${host}:${FAR}`);
    await stage.pass(10_000);
  }
  expect(owned(other)).toContain(0);
  expect(joins() - joinsBefore).toBeLessThanOrEqual(2);
  expect(owned(owner)).not.toContain(0);
});

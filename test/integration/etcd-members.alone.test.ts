import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { SHORT_LEASE } from '../support/realm.ts';
import { Scene } from '../support/scene.ts';
import { ETCD_SIZE, etcdLeader, suiteServers } from '../support/servers.ts';
import { closed, nextReplyBy, opened } from '../support/stops.ts';
import { report } from '../support/whole-history.ts';

const servers = suiteServers();
const PARTITIONS = 6;
/** A lease that survives the loss of an etcd leader and an election, which take a second or two. */
const PATIENT_LEASE = {
  LEASE_TTL_SECONDS: '15',
  LEASE_HEARTBEAT_MS: '2000',
  ETCD_REFUSE_AFTER_MS: '8000',
  RESERVATION_MS: '10000',
} as const;
const PATIENCE_MS = Number(PATIENT_LEASE.ETCD_REFUSE_AFTER_MS);
const REFUSE_MS = Number(SHORT_LEASE.ETCD_REFUSE_AFTER_MS);
const LATE_MS = 1_500;
/** Time after the grace time for leaving the group without a broker. */
const LEAVING_MS = 2_000;
/** Limit from an open gate to the first reply, with reserve for a busy machine. */
const RESUME_LIMIT_MS = 200;

afterEach(async () => {
  for (let index = 0; index < ETCD_SIZE; index += 1) await servers.resumeEtcd(index);
});

test('no worker stops when the etcd leader is frozen for longer than the deadline and the next one is killed and restarted', async ({
  annotate,
}) => {
  await using scene = await Scene.open({ partitions: PARTITIONS, env: PATIENT_LEASE });
  const frozen = await etcdLeader(servers);
  const leaderFirst = servers.etcdEndpoints.toSorted(
    (a, b) => Number(b === servers.etcdEndpoints[frozen]) - Number(a === servers.etcdEndpoints[frozen]),
  );
  const workers = [leaderFirst, leaderFirst.toReversed()].map((endpoints) =>
    scene.worker({ ETCD_ENDPOINTS: endpoints.join(',') }),
  );
  await Promise.all(workers.map((worker) => worker.hasPartitions(PARTITIONS / 2)));
  const margins: number[] = [];
  const watch = async (forMs: number): Promise<void> => {
    const untilMs = performance.now() + forMs;
    while (performance.now() < untilMs) {
      for (const worker of workers) margins.push(await worker.metric('idalloc_lease_margin_seconds'));
      await pause(250);
    }
  };
  const history = await scene.underLoad(async () => {
    await servers.pauseEtcd(frozen);
    await watch(PATIENCE_MS + LATE_MS);
    await servers.resumeEtcd(frozen);
    const killed = await etcdLeader(servers);
    await servers.killEtcd(killed);
    try {
      await watch(LATE_MS);
    } finally {
      await servers.restartEtcd(killed);
    }
    await watch(LATE_MS);
  });
  await report(
    annotate,
    `leader frozen, leader killed: the least margin to the deadline was ${Math.min(...margins)} s of ${PATIENCE_MS / 1_000}`,
  );
  expect(history.stops).toBe(0);
  expect(new Set(workers.map((worker) => worker.gate()))).toEqual(new Set(['open']));
});

test('with two of three etcd members frozen all workers stop in time, requests wait, and everything resumes by itself', async ({
  annotate,
}) => {
  await using scene = await Scene.open({ partitions: PARTITIONS, env: SHORT_LEASE });
  const { realm, replies } = scene;
  const workers = [scene.worker(), scene.worker()];
  await Promise.all(workers.map((worker) => worker.hasPartitions(PARTITIONS / 2)));
  const known = { correlationId: 'known', count: 7, partition: 0 };
  await realm.send([known]);
  const { reply: before } = await replies.reply('known');

  const from = workers.map(({ lines }) => lines.length);
  const frozenMs = performance.now();
  await Promise.all([servers.pauseEtcd(0), servers.pauseEtcd(1)]);
  const stops = await Promise.all(workers.map((worker, i) => closed(worker, from[i] ?? 0)));
  for (const { detail, reason, seenMs } of stops) {
    const silentMs = Number(/for (\d+) ms/.exec(String(detail))?.[1]);
    expect(reason).toBe('LEASE_SUSPENDED');
    expect(silentMs).toBeGreaterThanOrEqual(REFUSE_MS);
    expect(silentMs).toBeLessThan(REFUSE_MS + LATE_MS);
    await report(
      annotate,
      `two members frozen: stopped after ${Math.round(seenMs - frozenMs)} ms, ${silentMs} ms after the last success`,
    );
  }
  const expiresAtMs = Date.now() + 500;
  const waiting = Array.from({ length: 60 }, (_, i) => ({ correlationId: `waiting-${i}`, count: 3 }));
  await realm.send([
    ...waiting,
    { ...known, expiresAtMs },
    { correlationId: 'late', count: 7, partition: 0, expiresAtMs },
  ]);
  await expect.poll(() => Date.now(), { timeout: 5_000 }).toBeGreaterThan(expiresAtMs);
  expect(replies.seen).toHaveLength(1);

  const healedMs = performance.now();
  const firstReplies = workers.map((worker) => nextReplyBy(worker, replies));
  await Promise.all([servers.resumeEtcd(0), servers.resumeEtcd(1)]);
  for (const [i, worker] of workers.entries()) {
    const [open, repliedMs] = await Promise.all([opened(worker, from[i] ?? 0), firstReplies[i] ?? Number.NaN]);
    await report(
      annotate,
      `two members thawed: open after ${Math.round(open.seenMs - healedMs)} ms, first reply ${Math.round(repliedMs - open.seenMs)} ms later`,
    );
    expect(repliedMs - open.seenMs).toBeLessThan(RESUME_LIMIT_MS + LATE_MS);
  }
  expect((await replies.reply('late')).reply).toMatchObject({ error: { code: 'EXPIRED' } });
  const again = await replies.reply('known', 1);
  expect([again.reply, again.replayed]).toEqual([before, true]);
  const answered = await replies.replies(waiting.length + 2);
  for (const { correlationId } of waiting) expect(answered.get(correlationId)?.[0]?.reply).toHaveProperty('batch');
});

test('after broker and etcd were lost together for longer than the grace time, a worker is one member with all partitions', async ({
  annotate,
}) => {
  await using scene = await Scene.open({ partitions: PARTITIONS, env: { ...SHORT_LEASE, GATE_GRACE_MS: '500' } });
  const { realm, replies } = scene;
  const link = await scene.link();
  const worker = scene.worker(link.env);
  await worker.hasPartitions(PARTITIONS);
  const history = await scene.underLoad(async () => {
    await nextReplyBy(worker, replies);
    const from = worker.lines.length;
    link.cut();
    await servers.killKafka();
    try {
      await closed(worker, from);
      await pause(LEAVING_MS);
    } finally {
      await servers.restartKafka();
    }
    const healedMs = performance.now();
    link.heal();
    await opened(worker, from);
    const repliedMs = await nextReplyBy(worker, replies);
    await report(
      annotate,
      `broker and etcd lost together: first reply ${Math.round(repliedMs - healedMs)} ms after both`,
    );
  });
  const { groups } = await realm.admin.describeGroups([realm.groupId]);
  expect(groups[0]?.members).toHaveLength(1);
  expect(worker.partitions()).toHaveLength(PARTITIONS);
  expect(history.stops).toBe(1);
});

import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { ownServers } from '../support/own-servers.ts';
import { KEPT_LEASE, SHORT_LEASE } from '../support/realm.ts';
import { Scene } from '../support/scene.ts';
import { ETCD_SIZE, etcdLeader, SUITE } from '../support/servers.ts';
import { closed, closings, nextReplyBy, opened, WITHOUT_ETCD } from '../support/stops.ts';
import { report } from '../support/whole-history.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const servers = await ownServers(SUITE);
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
const WAIT_MS = 120_000;
const MARGIN_EVERY_MS = 250;

/**
 * Reads the margins to the deadlines until each worker's lease was renewed twice: the first renewal may have been sent
 * before the call. Returns the least margin.
 */
async function leastMargin(workers: readonly WorkerProcess[]): Promise<number> {
  const least = await Promise.all(
    workers.map(async (worker) => {
      const margins: number[] = [];
      const renewals = async () => {
        margins.push(await worker.metric('idalloc_lease_margin_seconds'));
        return margins.filter((margin, i) => margin > (margins[i - 1] ?? margin)).length;
      };
      await expect.poll(renewals, { timeout: WAIT_MS, interval: MARGIN_EVERY_MS }).toBeGreaterThanOrEqual(2);
      return Math.min(...margins);
    }),
  );
  return Math.min(...least);
}

afterEach(async () => {
  for (let index = 0; index < ETCD_SIZE; index += 1) await servers.resumeEtcd(index);
});

test('no worker stops when the etcd leader is frozen for longer than the deadline and the next one is killed and restarted', async ({
  annotate,
}) => {
  await using scene = await Scene.open({ partitions: PARTITIONS, env: PATIENT_LEASE }, servers);
  const frozen = await etcdLeader(servers);
  const leaderFirst = servers.etcdEndpoints.toSorted(
    (a, b) => Number(b === servers.etcdEndpoints[frozen]) - Number(a === servers.etcdEndpoints[frozen]),
  );
  const workers = [leaderFirst, leaderFirst.toReversed()].map((endpoints) =>
    scene.start({ ETCD_ENDPOINTS: endpoints.join(',') }),
  );
  await Promise.all(workers.map((worker) => worker.hasPartitions(PARTITIONS / 2)));
  const margins: number[] = [];
  const from = workers.map(({ lines }) => lines.length);
  const history = await scene.underLoad(async () => {
    await servers.pauseEtcd(frozen);
    const frozenMs = performance.now();
    while (performance.now() - frozenMs < PATIENCE_MS + LATE_MS) margins.push(await leastMargin(workers));
    await servers.resumeEtcd(frozen);
    const killed = await etcdLeader(servers);
    await servers.killEtcd(killed);
    try {
      margins.push(await leastMargin(workers));
    } finally {
      await servers.restartEtcd(killed);
    }
    margins.push(await leastMargin(workers));
  });
  await report(
    annotate,
    `leader frozen, leader killed: the least margin to the deadline was ${Math.min(...margins)} s of ${PATIENCE_MS / 1_000}`,
  );
  expect(workers.flatMap((worker, i) => closings(worker, from[i] ?? 0))).toEqual([]);
  for (const worker of workers) await expect.poll(() => worker.gate()).toBe('open');
  await report(annotate, `leader frozen, leader killed: ${JSON.stringify(history)}`);
});

test('with two of three etcd members frozen all workers stop, requests wait, and everything resumes by itself', async ({
  annotate,
}) => {
  await using scene = await Scene.open({ partitions: PARTITIONS, env: KEPT_LEASE }, servers);
  const { realm, replies } = scene;
  const workers = [scene.start(), scene.start()];
  await Promise.all(workers.map((worker) => worker.hasPartitions(PARTITIONS / 2)));
  const known = { correlationId: 'known', count: 7, partition: 0 };
  await realm.send([known]);
  const { reply: before } = await replies.reply('known');

  const from = workers.map(({ lines }) => lines.length);
  const frozenMs = performance.now();
  await Promise.all([servers.pauseEtcd(0), servers.pauseEtcd(1)]);
  const stops = await Promise.all(workers.map((worker, i) => closed(worker, from[i] ?? 0)));
  for (const { detail, reason, seenMs } of stops) {
    expect(WITHOUT_ETCD).toContain(reason);
    if (reason === 'PROCESS_PAUSED') continue;
    const silentMs = Number(/for (\d+) ms/.exec(String(detail))?.[1]);
    // That it stops no later, whether it allocates or not, is shown in virtual time, in
    // test/identity/heartbeat.test.ts.
    expect(silentMs).toBeGreaterThanOrEqual(REFUSE_MS);
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
  while (Date.now() <= expiresAtMs) await pause(50);
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
  }
  expect((await replies.reply('late')).reply).toMatchObject({ error: { code: 'EXPIRED' } });
  const again = await replies.reply('known', 1);
  expect([again.reply, again.replayed]).toEqual([before, true]);
  const answered = await replies.replies(waiting.length + 2);
  for (const { correlationId } of waiting) expect(answered.get(correlationId)?.[0]?.reply).toHaveProperty('batch');
});

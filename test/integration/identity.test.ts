import { expect, test } from 'vitest';
import { expandIds, type IdBatch } from '../../src/codec/id-batch.ts';
import { decompose } from '../../src/core/layout.ts';
import { EtcdLink } from '../support/etcd-link.ts';
import type { Followed } from '../support/followed.ts';
import { LAYOUT, Realm, SHORT_LEASE } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

/** Nothing listens on the discard port of a test machine. */
const DEAD_ENDPOINT = 'http://127.0.0.1:9';
const DEAD_PROXY = { http_proxy: DEAD_ENDPOINT, https_proxy: DEAD_ENDPOINT, grpc_proxy: DEAD_ENDPOINT };
/** Short, but a worker that a busy machine holds up for some seconds keeps its lease. */
const LEASE = { ...SHORT_LEASE, LEASE_TTL_SECONDS: '10', ETCD_REFUSE_AFTER_MS: '6000', RESERVATION_MS: '8000' };
/** The only worker ID of a pool for which workers compete. */
const WORKER_ID = 7;
const ONE_ID = { ...LEASE, POOL_FIRST: String(WORKER_ID), POOL_LAST: String(WORKER_ID) };

/** Requests a batch and returns it. */
async function ask(realm: Realm, replies: Followed, correlationId: string, count = 100): Promise<IdBatch> {
  await realm.send([{ correlationId, count }]);
  return await replies.batch(correlationId);
}

/** The ticks of a batch, lowest first. */
function ticksOf(batch: IdBatch): readonly number[] {
  return expandIds(batch).map((id) => decompose(LAYOUT, id).ticks);
}

/** Expects that a successor's IDs are above all earlier ones, and that the ceiling between them is too. */
function checkSuccession(before: IdBatch, after: IdBatch, ceilingBetween: number): void {
  expect(after.workerId).toBe(before.workerId);
  expect((expandIds(after)[0] ?? 0n) > (expandIds(before).at(-1) ?? 0n)).toBe(true);
  expect(after.fence).toBeGreaterThan(before.fence);
  expect(ticksOf(before).at(-1)).toBeLessThan(ceilingBetween);
  expect(ticksOf(after)[0]).toBeGreaterThanOrEqual(ceilingBetween);
}

test('of two workers that race for one worker ID one becomes ready; the other succeeds it, with higher IDs', async () => {
  // A lease that the winner does not lose before it is stopped, which gives it back.
  await using realm = await Realm.create(suiteServers(), { env: { ...ONE_ID, LEASE_TTL_SECONDS: '30' } });
  const replies = await realm.follow();
  const racers = [realm.worker(), realm.worker()];
  const [winner, loser] = await Promise.race(
    racers.map((racer, i) => racer.ready().then(() => [racer, racers[1 - i] as WorkerProcess] as const)),
  );
  await loser.line(({ reason }) => reason === 'POOL_EXHAUSTED');
  const readiness = await loser.ops('/readyz');
  expect(readiness.status).toBe(503);
  expect(await readiness.json()).toEqual({
    ...{ status: 'not ready', reason: 'POOL_EXHAUSTED' },
    detail: expect.stringMatching(/^worker ID \d+ is in use/),
  });
  expect((await loser.ops('/healthz')).status).toBe(200);

  const before = await ask(realm, replies, 'before');
  expect(loser.lines.some(({ msg }) => msg === 'idalloc ready')).toBe(false);
  const ceiling = await realm.ceiling(WORKER_ID); // later the loser may have raised it
  await winner.stop();

  await loser.ready();
  await expect.poll(async () => (await loser.ops('/readyz')).status).toBe(200);
  checkSuccession(before, await ask(realm, replies, 'after'), ceiling.ticks);
});

test('after kill -9 the worker ID is taken over when the lease has expired, with higher IDs', async () => {
  await using realm = await Realm.create(suiteServers(), { env: ONE_ID });
  const replies = await realm.follow();
  const first = realm.worker();
  await first.ready();
  const second = realm.worker(); // before the kill, since the lease may be shorter than a start
  await second.line(({ reason }) => reason === 'POOL_EXHAUSTED');
  const before = await ask(realm, replies, 'before');
  const ceiling = await realm.ceiling(WORKER_ID); // later the successor may have raised it
  first.kill('SIGKILL');
  await first.ended();

  await second.ready();
  checkSuccession(before, await ask(realm, replies, 'after'), ceiling.ticks);
});

test('a worker starts although one etcd endpoint is dead, another is silent, and so are the proxies of its environment', async () => {
  const { etcdEndpoints } = suiteServers();
  await using realm = await Realm.create(suiteServers());
  await using link = await EtcdLink.open(suiteServers());
  link.silence();
  const [silent = ''] = link.env.ETCD_ENDPOINTS.split(',');
  const endpoints = [DEAD_ENDPOINT, silent, etcdEndpoints[0]].join(',');
  const worker = realm.worker({ ...DEAD_PROXY, ETCD_ENDPOINTS: endpoints });
  await worker.ready();
  expect(worker.lines.some(({ endpoint }) => endpoint === DEAD_ENDPOINT)).toBe(true);
});

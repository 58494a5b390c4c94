import { expect, test } from 'vitest';
import { EtcdLink } from '../support/etcd-link.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { ask, checkSuccession, ONE_ID, WORKER_ID } from '../support/succession.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

/** Nothing listens on the discard port of a test machine. */
const DEAD_ENDPOINT = 'http://127.0.0.1:9';

test('of two workers that race for one worker ID one becomes ready; the other succeeds it, with higher IDs', async () => {
  await using realm = await Realm.create(suiteServers(), { env: ONE_ID });
  const replies = await realm.follow();
  const racers = [realm.worker(), realm.worker()];
  const [winner, loser] = await Promise.race(
    racers.map((racer, i) => racer.ready().then(() => [racer, racers[1 - i] as WorkerProcess] as const)),
  );
  await loser.line(({ reason }) => reason === 'POOL_EXHAUSTED');
  const readiness = await loser.ops('/readyz');
  expect(readiness.status).toBe(503);
  expect(await readiness.json()).toEqual({ status: 'not ready', reason: 'POOL_EXHAUSTED' });
  expect((await loser.ops('/healthz')).status).toBe(200);

  const before = await ask(realm, replies, 'before');
  expect(loser.lines.some(({ msg }) => msg === 'idalloc ready')).toBe(false);
  await winner.stop();
  const ceiling = await realm.ceiling(WORKER_ID);

  await loser.ready();
  expect((await loser.ops('/readyz')).status).toBe(200);
  checkSuccession(before, await ask(realm, replies, 'after'), ceiling.ticks);
});

test('after kill -9 the worker ID is taken over when the lease has expired, with higher IDs', async () => {
  await using realm = await Realm.create(suiteServers(), { env: ONE_ID });
  const replies = await realm.follow();
  const first = realm.worker();
  await first.ready();
  const before = await ask(realm, replies, 'before');
  first.kill('SIGKILL');
  await first.ended();
  const ceiling = await realm.ceiling(WORKER_ID);
  expect(await realm.owner(WORKER_ID)).toBeDefined();

  const second = realm.worker();
  await second.ready();
  expect(second.lines.some(({ reason }) => reason === 'POOL_EXHAUSTED')).toBe(true);
  checkSuccession(before, await ask(realm, replies, 'after'), ceiling.ticks);
});

test('a worker starts although one etcd endpoint is dead and another is silent', async () => {
  const { etcdEndpoints } = suiteServers();
  await using realm = await Realm.create(suiteServers());
  await using link = await EtcdLink.open(suiteServers());
  link.silence();
  const [silent = ''] = link.env.ETCD_ENDPOINTS.split(',');
  const worker = realm.worker({ ETCD_ENDPOINTS: [DEAD_ENDPOINT, silent, etcdEndpoints[0]].join(',') });
  await worker.ready();
  expect(worker.lines.some(({ endpoint }) => endpoint === DEAD_ENDPOINT)).toBe(true);
});

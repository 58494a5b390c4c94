import { noop } from 'cockatiel';
import { Etcd3 } from 'etcd3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type GrpcProxy, startGrpcProxy } from '../support/grpc-proxy.ts';
import { suiteServers } from '../support/servers.ts';
import { unique } from '../support/unique.ts';

const [upstream = ''] = suiteServers().etcdEndpoints;
const TXN = '/etcdserverpb.KV/Txn';
const ANSWER_MS = 3_000;
const SLOW_MS = 400;

let proxy: GrpcProxy;
let through: Etcd3;
let direct: Etcd3;

function client(hosts: string): Etcd3 {
  return new Etcd3({
    hosts,
    faultHandling: { host: () => noop, global: noop },
    defaultCallOptions: () => ({ deadline: Date.now() + ANSWER_MS }),
  });
}

/** One transaction that creates a key, and so can take effect only once. */
function create(etcd: Etcd3, key: string, value: string): Promise<boolean> {
  const swap = etcd
    .if(key, 'Create', '==', 0)
    .then(etcd.put(key).value(value))
    .options({ deadline: Date.now() + ANSWER_MS });
  return swap.commit().then(({ succeeded }) => succeeded);
}

beforeEach(async () => {
  proxy = await startGrpcProxy(upstream);
  through = client(proxy.endpoint);
  direct = client(upstream);
});

afterEach(async () => {
  through.close();
  direct.close();
  await proxy.close();
});

test('calls, errors and streams pass through', async () => {
  const key = `proxy/${unique()}`;
  expect(await create(through, key, 'a')).toBe(true);
  expect(await create(through, key, 'b')).toBe(false);
  expect(await through.get(key).string()).toBe('a');
  const lease = through.lease(30, { autoKeepAlive: false });
  await lease.put(`${key}/leased`).value('c');
  await lease.keepaliveOnce({ deadline: Date.now() + ANSWER_MS });
  await lease.revoke();
  expect(await direct.get(`${key}/leased`).string()).toBeNull();
  await expect(lease.keepaliveOnce({ deadline: Date.now() + ANSWER_MS })).rejects.toThrow();
  expect(proxy.dropped).toBe(0);
});

test('with a dropped answer the call takes effect, the client gets an error, and the next call works', async () => {
  const key = `proxy/${unique()}`;
  const done = proxy.dropAnswers(TXN, 1);
  await expect(create(through, key, 'lost')).rejects.toThrow();
  await done;
  expect(proxy.dropped).toBe(1);
  expect(await direct.get(key).string()).toBe('lost');
  await expect.poll(() => create(through, key, 'again').catch(() => undefined), { timeout: 60_000 }).toBe(false);
  expect(proxy.dropped).toBe(1);
});

test('only the calls that match lose their answer', async () => {
  const [kept, lost] = [`proxy/kept/${unique()}`, `proxy/lost/${unique()}`];
  const done = proxy.dropAnswers(TXN, 1, (request) => request.includes('proxy/lost/'));
  expect(await create(through, kept, 'x')).toBe(true);
  await expect(create(through, lost, 'x')).rejects.toThrow();
  await done;
  expect(await direct.get(lost).string()).toBe('x');
});

test('no call gets through while blocked, and later calls do', async () => {
  const key = `proxy/${unique()}`;
  expect(await create(through, `${key}/before`, 'x')).toBe(true);
  proxy.block();
  await expect(create(through, `${key}/during`, 'x')).rejects.toThrow();
  expect(await direct.get(`${key}/during`).string()).toBeNull();
  proxy.unblock();
  await expect
    .poll(() => create(through, `${key}/after`, 'x').then(Boolean, () => undefined), { timeout: 60_000 })
    .toBeDefined();
  expect(await direct.get(`${key}/after`).string()).toBe('x');
});

test('delayed answers arrive complete, and a held call arrives when it is released', async () => {
  const key = `proxy/${unique()}`;
  proxy.slow(SLOW_MS);
  expect(await create(through, `${key}/slow`, 'x')).toBe(true);
  const [cameMs = Number.NaN, answeredMs = 0] = [proxy.lastServedMs(TXN), performance.now()];
  // The time of a served call is that of its arrival, not of its answer.
  expect(answeredMs - cameMs).toBeGreaterThanOrEqual(SLOW_MS);
  proxy.slow(0);
  proxy.hold();
  const held = create(through, `${key}/held`, 'x');
  expect(await direct.get(`${key}/held`).string()).toBeNull();
  expect(proxy.lastServedMs(TXN)).toBe(cameMs);
  proxy.release();
  expect(await held).toBe(true);
});

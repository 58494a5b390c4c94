import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { ownServers } from '../support/own-servers.ts';
import { KEPT_LEASE, Realm, SHORT_LEASE } from '../support/realm.ts';
import { WITHOUT_ETCD } from '../support/stops.ts';
import { report } from '../support/whole-history.ts';
import type { LogLine } from '../support/worker-process.ts';

/** One test freezes etcd. */
const servers = await ownServers({ etcdMembers: 1 });

async function newId(url: string): Promise<bigint> {
  const response = await fetch(`${url}/api/v1/id`, { method: 'POST' });
  return BigInt(((await response.json()) as { readonly id: string }).id);
}

/** Requests an ID; returns the status, or 'refused' if the connection is refused. */
const requester = (url: string) => async () => {
  const response = await fetch(`${url}/api/v1/ids`).catch(() => undefined);
  await response?.body?.cancel();
  return response?.status ?? 'refused';
};

test('a revoked lease closes the HTTP port and cuts its connections; it opens again by itself, with higher IDs', async ({
  annotate,
}) => {
  await using realm = await Realm.create(servers, { env: SHORT_LEASE });
  const worker = realm.worker();
  const { workerId } = await worker.ready();
  const url = await worker.api();
  const before = await newId(url);
  const idle = connect({ host: '127.0.0.1', port: Number(new URL(url).port) });
  idle.on('error', () => undefined); // a cut connection may come as a reset
  const cut = new Promise((resolve) => idle.once('close', resolve));
  await new Promise((resolve) => idle.once('connect', resolve));

  const owner = await realm.owner(Number(workerId));
  const from = worker.lines.length;
  await realm.etcd.revokeLease(owner?.leaseId ?? 0n);
  const revokedMs = performance.now();
  await worker.line(({ msg }) => msg === 'the HTTP port is closed', from);
  await report(annotate, `port closed ${Math.round(performance.now() - revokedMs)} ms after the lease was revoked`);
  await cut;
  await worker.line(({ msg }) => msg === 'the HTTP API is listening', from);
  await expect.poll(async () => await requester(url)()).toBe(200);
  await report(annotate, `answered again ${Math.round(performance.now() - revokedMs)} ms after the lease was revoked`);
  expect(await newId(url)).toBeGreaterThan(before);
  expect((await worker.ops('/healthz')).status).toBe(200);
});

test('while etcd does not answer, the HTTP port answers 503 with Retry-After and the reason, and then serves again', async () => {
  await using realm = await Realm.create(servers, { env: KEPT_LEASE });
  const worker = realm.worker();
  await worker.ready();
  const url = await worker.api();
  await servers.pauseEtcd(0);
  try {
    const isClosed = ({ msg, reason }: LogLine) => msg === 'gate closed' && WITHOUT_ETCD.includes(String(reason));
    await worker.line(isClosed);
    const response = await fetch(`${url}/api/v1/ids`);
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '5']);
    expect(await response.json()).toMatchObject({ status: 503, code: expect.toBeOneOf([...WITHOUT_ETCD]) });
  } finally {
    await servers.resumeEtcd(0);
  }
  await expect.poll(async () => await requester(url)()).toBe(200);
});

test('the trace of an ID over HTTP without a key says so, and names the worker that allocated it', async () => {
  await using realm = await Realm.create(servers, { env: KEPT_LEASE });
  const worker = realm.worker();
  await worker.ready();
  const { id } = (await (await fetch(`${await worker.api()}/api/v1/id`, { method: 'POST' })).json()) as { id: string };
  const { error } = await realm.command(['trace', id], 1);
  expect(error).toMatchObject({
    code: 'NOT_FOUND',
    message: expect.stringMatching(/over HTTP without .* has held that worker ID since .*so it was that worker/),
  });
});

test('SIGTERM lets responses in progress finish', async () => {
  await using realm = await Realm.create(servers);
  const worker = realm.worker({ SHUTDOWN_DELAY_MS: '100' });
  await worker.ready();
  const url = await worker.api();
  const response = await fetch(`${url}/api/v1/ids?count=100000`);
  const reader = response.body?.getReader();
  const first = await reader?.read();
  worker.kill('SIGTERM');
  let bytes = first?.value?.length ?? 0;
  for (let next = await reader?.read(); next?.done === false; next = await reader?.read()) bytes += next.value.length;
  expect(bytes).toBeGreaterThan(15_000_000);
  expect(await worker.ended()).toEqual({ code: 0, signal: null });
});

test('after SIGTERM a worker is not ready, and serves HTTP and Kafka on for its shutdown delay, on no kept connection', async () => {
  await using realm = await Realm.create(servers);
  const replies = await realm.follow();
  const worker = realm.worker({ SHUTDOWN_DELAY_MS: '600000' });
  await worker.ready();
  const url = await worker.api();
  worker.kill('SIGTERM');
  await worker.line(({ delayMs }) => delayMs === 600_000);
  const readyz = await worker.ops('/readyz');
  expect([readyz.status, await readyz.json()]).toEqual([503, expect.objectContaining({ reason: 'STOPPING' })]);
  const answers: unknown[] = [];
  for (let i = 0; i < 50; i += 1) {
    const { status, headers } = await fetch(`${url}/api/v1/ids`);
    answers.push(`${status} ${headers.get('connection')}`);
  }
  expect(new Set(answers)).toEqual(new Set(['200 close']));
  await realm.send([{ correlationId: 'late', count: 1 }]);
  await replies.reply('late');
  expect((await worker.ops('/healthz')).status).toBe(200);
  worker.kill('SIGTERM');
  expect(await worker.ended()).toEqual({ code: 143, signal: null });
});

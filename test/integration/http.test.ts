import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { decompose } from '../../src/core/layout.ts';
import { ownServers } from '../support/own-servers.ts';
import { DATACENTER_ID, KEPT_LEASE, LAYOUT, Realm, SHORT_LEASE } from '../support/realm.ts';
import { report } from '../support/whole-history.ts';

/** One test freezes etcd. */
const servers = await ownServers({ etcdMembers: 1 });

async function json(url: string, init?: RequestInit): Promise<{ status: number; body: Record<string, unknown> }> {
  const response = await fetch(url, init);
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

/** Requests an ID; returns the status, or 'refused' if the connection is refused. */
const requester = (url: string) => async () => {
  const response = await fetch(`${url}/api/v1/ids`).catch(() => undefined);
  await response?.body?.cancel();
  return response?.status ?? 'refused';
};

test('each route answers as documented, with the identity that the worker has leased', async () => {
  await using realm = await Realm.create(servers, { apiReplies: true });
  const worker = realm.worker();
  const { workerId } = await worker.ready();
  const url = await worker.api();

  const ids = await json(`${url}/api/v1/ids?count=2`);
  expect(ids).toEqual({
    status: 200,
    body: { ids: [expect.anything(), expect.anything()], generated_at: expect.any(String) },
  });
  const [{ value_string, value_hex, breakdown }] = ids.body.ids as [Record<string, string>];
  const { sequence } = decompose(LAYOUT, BigInt(value_string ?? ''));
  expect(breakdown).toEqual({
    timestamp_ms: expect.any(Number),
    datacenter_id: DATACENTER_ID,
    worker_id: workerId,
    sequence_number: sequence,
  });
  expect(await json(`${url}/api/v1/ids/${value_hex}`)).toEqual({
    status: 200,
    body: { value_string, value_hex, breakdown },
  });
  const one = await json(`${url}/api/v1/id`, { method: 'POST' });
  expect(one).toEqual({ status: 200, body: { id: expect.stringMatching(/^[0-9]+$/) } });
  expect(BigInt(one.body.id as string)).toBeGreaterThan(BigInt(value_string ?? ''));
  expect((await json(`${url}/api/v1/openapi.json`)).body.openapi).toBe('3.1.0');

  const key = { headers: { 'idempotency-key': 'order-4711' } };
  const first = await json(`${url}/api/v1/ids?count=3`, key);
  expect(await json(`${url}/api/v1/ids?count=3`, key)).toEqual(first);
  expect(await json(`${url}/api/v1/ids?count=4`, key)).toMatchObject({ status: 422, body: { code: 'CONFLICT' } });

  expect(await worker.metric('idalloc_ids_total')).toBe(6);
  expect(await worker.metric('idalloc_http_requests_total{route="/api/v1/ids",status="200",caller="anonymous"}')).toBe(
    3,
  );
  expect(await worker.metric('idalloc_http_requests_total{route="/api/v1/ids",status="422",caller="anonymous"}')).toBe(
    1,
  );
  expect(await worker.metric('idalloc_http_request_seconds_count{route="/api/v1/id"}')).toBe(1);
  expect((await worker.ops('/api/v1/ids')).status).toBe(404);
  await worker.stop();
  expect(await requester(url)()).toBe('refused');
});

test('a revoked lease closes the HTTP port and cuts its connections; it opens again by itself, with higher IDs', async ({
  annotate,
}) => {
  await using realm = await Realm.create(servers, { env: SHORT_LEASE });
  const worker = realm.worker();
  const { workerId } = await worker.ready();
  const url = await worker.api();
  const before = await json(`${url}/api/v1/id`, { method: 'POST' });
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
  const after = await json(`${url}/api/v1/id`, { method: 'POST' });
  expect(BigInt(after.body.id as string)).toBeGreaterThan(BigInt(before.body.id as string));
  expect((await worker.ops('/healthz')).status).toBe(200);
});

test('while etcd does not answer, the HTTP port answers 503 with Retry-After and the reason, and then serves again', async () => {
  await using realm = await Realm.create(servers, { env: KEPT_LEASE });
  const worker = realm.worker();
  await worker.ready();
  const url = await worker.api();
  await servers.pauseEtcd(0);
  try {
    await worker.line(({ msg, reason }) => msg === 'gate closed' && reason === 'LEASE_SUSPENDED');
    const response = await fetch(`${url}/api/v1/ids`);
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '5']);
    expect(await response.json()).toMatchObject({ status: 503, code: 'LEASE_SUSPENDED' });
  } finally {
    await servers.resumeEtcd(0);
  }
  await expect.poll(async () => await requester(url)(), { timeout: 60_000 }).toBe(200);
});

test('SIGTERM lets responses in progress finish', async () => {
  await using realm = await Realm.create(servers);
  const worker = realm.worker();
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

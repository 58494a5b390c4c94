import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { decompose } from '../../src/core/layout.ts';
import { batchOf, decodeReply } from '../support/followed.ts';
import { loadHttp } from '../support/http-load.ts';
import { ownServers } from '../support/own-servers.ts';
import { DATACENTER_ID, KEPT_LEASE, LAYOUT, Realm, SHORT_LEASE } from '../support/realm.ts';
import { SeenIds } from '../support/seen-ids.ts';
import { report } from '../support/whole-history.ts';

const ERROR_LEVEL = 50;
/**
 * Limit as a share of the time that all responses take, so that a busy machine affects both. Unsliced, it is a quarter.
 */
const STALL_SHARE = 0.1;

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

test('concurrent requests over HTTP and Kafka are all answered, with disjoint IDs', async ({ annotate }) => {
  await using realm = await Realm.create(servers);
  const worker = realm.worker();
  await worker.ready();
  const url = await worker.api();
  const replies = await realm.follow();
  const seen = new SeenIds();
  const requests = 2_000;
  const askKafka = async (name: string) => {
    const beganMs = performance.now();
    await realm.send(Array.from({ length: requests }, (_, i) => ({ correlationId: `${name}${i}`, count: 500 })));
    await replies.until(`${requests} more replies`, (all) => all.length === requests * (name === 'alone' ? 1 : 2));
    return Math.round(performance.now() - beganMs);
  };

  const aloneMs = await askKafka('alone');
  const load = loadHttp({ url, count: 1_000, requests: 500, connections: 32, seen });
  const besideMs = await askKafka('beside');
  const { requestsPerSecond, p99Ms, failures } = await load;
  await report(
    annotate,
    `${requests} requests over Kafka: ${aloneMs} ms alone, ${besideMs} ms beside a flood over HTTP`,
  );
  await report(annotate, `count=1000 over HTTP: ${requestsPerSecond} requests/s, p99 ${p99Ms} ms, each response read`);
  for (const reply of replies.seen.map(decodeReply)) for (const id of expandIds(batchOf(reply))) seen.add(id);
  expect(failures).toBe(0);
  expect(seen.duplicates).toBe(0);
  expect(seen.size).toBe(2 * requests * 500 + 500 * 1_000);
  expect(await worker.metric('idalloc_ids_total')).toBe(seen.size);
  expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
});

test('hostile connections get errors or are cut, and the worker continues', async ({ annotate }) => {
  const limits = { API_MAX_CONNECTIONS: '100', API_REQUEST_TIMEOUT_MS: '500' };
  await using realm = await Realm.create(servers);
  const worker = realm.worker(limits);
  await worker.ready();
  const url = await worker.api();
  const { port } = new URL(url);
  const answerTo = (input: string) =>
    new Promise<string>((resolve) => {
      const socket = connect({ host: '127.0.0.1', port: Number(port) });
      let answer = '';
      socket.on('data', (chunk) => {
        answer += chunk;
      });
      socket.on('error', () => undefined); // a cut connection may come as a reset
      socket.once('close', () => resolve(answer));
      socket.write(input);
    });

  await worker.metric('nodejs_eventloop_lag_max_seconds'); // each reading resets the maximum
  const flood = 'GET /api/v1/ids?count=1000 HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(20_000);
  await Promise.all(Array.from({ length: 90 }, () => answerTo(flood)));
  const lag = await worker.metric('nodejs_eventloop_lag_max_seconds');
  await report(
    annotate,
    `90 floods of requests at once held the event loop up by at most ${Math.round(lag * 1_000)} ms`,
  );

  const silent = Array.from({ length: 200 }, (_, i) => answerTo(i % 2 === 0 ? '' : 'GET /api/v1/ids HTTP/1.1\r\nA: '));
  const answers = await Promise.all(silent);
  const late = answers.filter((answer) => answer.startsWith('HTTP/1.1 408 '));
  expect(late.length).toBeGreaterThan(0);
  expect(late.length).toBeLessThanOrEqual(100);
  expect(answers.filter((answer) => answer !== '' && !late.includes(answer))).toEqual([]);
  expect(await answerTo(`GET /${'x'.repeat(1_000_000)} HTTP/1.1\r\n\r\n`)).toMatch(/^HTTP\/1\.1 431 /);

  const replies = await realm.follow();
  await realm.send([{ correlationId: 'after', count: 1 }]);
  await replies.reply('after');
  expect(await requester(url)()).toBe(200);
  expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
  expect(worker.errors).toBe('');
});

test('concurrent requests for 100,000 IDs with their fields do not block the event loop', async ({ annotate }) => {
  await using realm = await Realm.create(servers, { apiReplies: true });
  const worker = realm.worker();
  await worker.ready();
  const url = await worker.api();
  // One key for all, so that allocations do not spread the responses.
  const load = { url, count: 100_000, requests: 16, connections: 16, headers: { 'idempotency-key': 'shared' } };
  await worker.metric('nodejs_eventloop_lag_max_seconds'); // each reading resets the maximum
  const { failures, p99Ms } = await loadHttp(load);
  const lag = await worker.metric('nodejs_eventloop_lag_max_seconds');
  const held = `event loop held up by at most ${Math.round(lag * 1_000)} ms`;
  await report(annotate, `16 x 100,000 IDs at once: p99 ${p99Ms} ms, ${held}`);
  expect(failures).toBe(0);
  expect(await worker.metric('idalloc_ids_total')).toBe(100_000);
  expect(lag * 1_000).toBeLessThan(p99Ms * STALL_SHARE);
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

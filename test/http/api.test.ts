import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterEach, describe, expect, test } from 'vitest';
import { decompose } from '../../src/core/layout.ts';
import type { ErrorCode } from '../../src/errors.ts';
import type { Api } from '../../src/http/api.ts';
import { ApiStage, STAGE_LAYOUT } from '../support/api-stage.ts';
import { FakeLedger } from '../support/fake-ledger.ts';

const PROBLEM = 'application/problem+json';
const JSON_TYPE: unknown = expect.stringMatching(/^application\/json/);
const open: Api[] = [];

afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close();
});

const KEY = { 'idempotency-key': 'order-1' };

function start({ hasLedger = true } = {}) {
  const ledger = new FakeLedger();
  const stage = new ApiStage(hasLedger ? { ledger } : {});
  const api = stage.api();
  open.push(api);
  return { stage, ledger, app: api.app };
}

type App = ReturnType<typeof start>['app'];

const getIds = (app: App, count: number, headers: Record<string, string> = {}) =>
  app.inject({ method: 'GET', url: `/api/v1/ids?count=${count}`, headers });
const postId = (app: App, headers: Record<string, string> = {}) =>
  app.inject({ method: 'POST', url: '/api/v1/id', headers });

describe('GET /api/v1/ids', () => {
  test('returns one ID with exactly the documented fields', async () => {
    const { app } = start();
    const response = await app.inject('/api/v1/ids');
    expect(response.statusCode).toBe(200);
    expect(response.headers).toMatchObject({ 'cache-control': 'no-store', 'content-type': JSON_TYPE });
    const { ids, generated_at } = response.json();
    const [{ value_string, value_hex, breakdown }] = ids;
    const { ticks, sequence } = decompose(STAGE_LAYOUT, BigInt(value_string));
    expect(response.json()).toEqual({ ids: [{ value_string, value_hex, breakdown }], generated_at });
    expect(BigInt(`0x${value_hex}`)).toBe(BigInt(value_string));
    expect(breakdown).toEqual({
      timestamp_ms: STAGE_LAYOUT.epochMs + ticks,
      datacenter_id: 4,
      worker_id: 18,
      sequence_number: sequence,
    });
    expect(new Date(generated_at).toISOString()).toBe(generated_at);
  });

  test('returns as many IDs as requested, ascending, and never one twice', async () => {
    const { app, stage } = start();
    const counts = [1, 100, 101, 5_000, 100_000];
    const answers = await Promise.all(counts.map((count) => getIds(app, count)));
    const all = answers.map((answer) => answer.json().ids.map((id: { value_string: string }) => id.value_string));
    expect(all.map((ids) => ids.length)).toEqual(counts);
    for (const ids of all) expect(ids).toEqual([...ids].sort((a, b) => (BigInt(a) < BigInt(b) ? -1 : 1)));
    expect(new Set(all.flat()).size).toBe(stage.issued);
    expect(stage.issued).toBe(105_202);
  });

  test.each(['GET', 'POST'] as const)('as %s, returns ranges of the same IDs', async (method) => {
    const { app, ledger } = start();
    const url = '/api/v1/ids?count=10000';
    const all = await app.inject({ method, url, headers: KEY });
    const short = await app.inject({ method, url: `${url}&encoding=ranges`, headers: KEY });
    const { ranges, step } = short.json();
    expect(short.json()).toEqual({ ranges, step: '1', generated_at: all.json().generated_at });
    const expanded = ranges.flatMap(({ first, count }: { first: string; count: number }) =>
      Array.from({ length: count }, (_, k) => String(BigInt(first) + BigInt(k) * BigInt(step))),
    );
    expect(expanded).toEqual(all.json().ids.map((id: { value_string: string }) => id.value_string));
    expect(short.body.length).toBeLessThan(1_024);
    expect((await app.inject({ method, url: `${url}&encoding=ids`, headers: KEY })).body).toBe(all.body);
    expect(ledger.decidedIds).toBe(10_000);
  });

  test.each([
    ['encoding=both', 'ids or ranges'],
    ['encoding=', 'ids or ranges'],
    ['encoding=RANGES', 'ids or ranges'],
    ['encoding=ids&encoding=ranges', 'once'],
    ['encoding=ranges&form=ulid', 'no forms'],
    ['encoding=ranges&count=100001', '100000'],
    ['coding=ranges', "'coding'"],
  ])('refuses %s, and uses no ID', async (query, detail) => {
    const { app, stage } = start();
    for (const method of ['GET', 'HEAD', 'POST'] as const) {
      const response = await app.inject({ method, url: `/api/v1/ids?${query}` });
      expect(response.statusCode).toBe(400);
      if (method !== 'HEAD') expect(response.json().detail).toContain(detail);
    }
    expect(stage.issued).toBe(0);
  });
});

describe('HEAD /api/v1/ids', () => {
  test('has the type of the GET and no length, and uses no ID', async () => {
    const { app, stage } = start();
    const response = await app.inject({ method: 'HEAD', url: '/api/v1/ids?count=100000' });
    expect([response.statusCode, response.body]).toEqual([200, '']);
    expect(response.headers).toMatchObject({ 'cache-control': 'no-store', 'content-type': JSON_TYPE });
    expect(response.headers).not.toHaveProperty('content-length');
    expect(stage.issued).toBe(0);
  });

  test('is the status of a GET: 400 for its faults, 503 while the gate is closed', async () => {
    const { app, stage } = start();
    const head = async (query: string) =>
      (await app.inject({ method: 'HEAD', url: `/api/v1/ids?${query}` })).statusCode;
    expect([await head('count=0'), await head('count=1')]).toEqual([400, 200]);
    stage.reason = 'LEASE_SUSPENDED';
    expect([await head('count=0'), await head('count=1')]).toEqual([400, 503]);
  });
});

test('a path that there is not, such as that of a browser, names the page that shows all', async () => {
  const response = await start().app.inject('/');
  expect([response.statusCode, response.json().detail]).toEqual([404, expect.stringMatching(/GET \/docs shows all/)]);
});

describe('POST /api/v1/ids', () => {
  test('returns what GET does', async () => {
    const { app, stage } = start();
    const response = await app.inject({ method: 'POST', url: '/api/v1/ids?count=150', payload: {} });
    expect([response.statusCode, response.json().ids.length, stage.issued]).toEqual([200, 150, 150]);
  });

  test.each([
    ['parameters in its body', '{"count":2}', 'application/json', 400],
    ['an array', '[]', 'application/json', 400],
    ['text', 'count=2', 'application/x-www-form-urlencoded', 415],
  ])('refuses %s, and uses no ID', async (_, payload, type, status) => {
    const { app, stage } = start();
    const headers = { 'content-type': type };
    const response = await app.inject({ method: 'POST', url: '/api/v1/ids', payload, headers });
    expect([response.statusCode, stage.issued]).toEqual([status, 0]);
    expect(response.json().detail).toMatch(/^parameters belong into the query, as in POST .*count=3: send no body, or/);
  });

  test('does not unpack a compressed body', async () => {
    const { app, stage } = start();
    const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
    const payload = gzipSync('{}');
    const response = await app.inject({ method: 'POST', url: '/api/v1/ids', payload, headers });
    expect([response.statusCode, stage.issued]).toEqual([400, 0]);
  });
});

describe('POST /api/v1/id', () => {
  test('returns one ID as a string', async () => {
    const { app } = start();
    const response = await postId(app);
    expect(response.statusCode).toBe(200);
    expect(Object.keys(response.json())).toEqual(['id']);
    expect(response.json().id).toMatch(/^[1-9][0-9]{16,18}$/);
  });

  test.each([
    ['no type and no body', {}, undefined],
    ['an empty JSON object', { 'content-type': 'application/json' }, '{ }'],
    ['an empty body of a type', { 'content-type': 'application/x-www-form-urlencoded' }, ''],
    ['an empty JSON body', { 'content-type': 'application/json; charset=utf-8' }, ''],
  ])('accepts %s', async (_, headers, payload) => {
    const { app } = start();
    const request = { method: 'POST', url: '/api/v1/id', headers } as const;
    const response = await app.inject(payload === undefined ? request : { ...request, payload });
    expect(response.statusCode).toBe(200);
  });
});

describe('GET /api/v1/ids/{id}', () => {
  test.each(['55325805773398016', '00c48e86f8092000', '0xc48e86f8092000'])('returns the fields of %s', async (id) => {
    const { app, stage } = start();
    stage.reason = 'LEASE_SUSPENDED'; // decoding needs no allocation
    const response = await app.inject(`/api/v1/ids/${id}`);
    expect(response.json()).toEqual({
      value_string: '55325805773398016',
      value_hex: '00c48e86f8092000',
      breakdown: { timestamp_ms: 1_780_416_300_000, datacenter_id: 4, worker_id: 18, sequence_number: 0 },
    });
  });
});

describe('an idempotency key', () => {
  test('sent twice is rejected, although Node joins both into one', async () => {
    const { app } = start();
    await app.listen({ port: 0, host: '127.0.0.1' });
    const { port } = app.server.address() as AddressInfo;
    const headers = { 'idempotency-key': ['a', 'b'] };
    const asked = request({ host: '127.0.0.1', port, method: 'POST', path: '/api/v1/id', headers, agent: false }).end();
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    answer.resume();
    expect(answer.statusCode).toBe(400);
    await app.close();
  });

  test('has the same bytes again, from the ledger alone, also after the port was reopened', async () => {
    const { app, stage, ledger } = start();
    const first = await getIds(app, 5_000, KEY);
    expect(first.headers).not.toHaveProperty('idempotency-replayed');
    const again = stage.api();
    open.push(again);
    const second = await getIds(again.app, 5_000, KEY);
    expect(second.headers['idempotency-replayed']).toBe('true');
    expect(second.body).toBe(first.body);
    expect(second.json().ids).toHaveLength(5_000);
    expect([ledger.decidedIds, ledger.asked.length, stage.issued]).toEqual([5_000, 2, 0]);
  });

  test('names its IDs in the ledger with the caller, who is nobody here', async () => {
    const { app, ledger } = start();
    await postId(app, KEY);
    expect(ledger.asked.map(({ key, count }) => [String(key), count])).toEqual([['http//order-1', 1]]);
  });

  test('has its IDs on every route, as ranges or one by one; with another count it is a CONFLICT that names both', async () => {
    const { app } = start();
    const { id } = (await postId(app, KEY)).json();
    for (const method of ['GET', 'POST'] as const) {
      const { ids } = (await app.inject({ method, url: '/api/v1/ids', headers: KEY })).json();
      expect(ids).toMatchObject([{ value_string: id }]);
    }
    const { ranges } = (await app.inject({ url: '/api/v1/ids?encoding=ranges', headers: KEY })).json();
    expect(ranges).toEqual([{ first: id, count: 1 }]);
    const other = await getIds(app, 3, KEY);
    expect([other.statusCode, other.json().code, other.json().detail]).toEqual([
      422,
      'CONFLICT',
      'this Idempotency-Key was used for another request; it differs in count (here 3, there 1): use a new Idempotency-Key',
    ]);
  });

  test('does not need this worker to allocate: another one decides', async () => {
    const { app, stage } = start();
    stage.reason = 'LEASE_SUSPENDED';
    expect((await postId(app, KEY)).statusCode).toBe(200);
    expect((await app.inject({ method: 'HEAD', url: '/api/v1/ids', headers: KEY })).statusCode).toBe(200);
    expect((await postId(app)).statusCode).toBe(503);
  });

  test('is a 501 that names API_REPLY_TOPIC where the worker has none, and uses no ID', async () => {
    const { app, stage } = start({ hasLedger: false });
    for (const response of [await getIds(app, 1, KEY), await postId(app, KEY)]) {
      expect([response.statusCode, response.json().detail]).toEqual([501, expect.stringContaining('API_REPLY_TOPIC')]);
    }
    expect((await app.inject({ method: 'HEAD', url: '/api/v1/ids', headers: KEY })).statusCode).toBe(501);
    expect([stage.issued, (await postId(app)).statusCode]).toEqual([0, 200]);
  });

  test.each<[ErrorCode, number, string | undefined]>([
    ['FORGOTTEN', 410, undefined],
    ['QUOTA_EXCEEDED', 429, '1'],
    ['MALFORMED_REPLY', 502, undefined],
    ['KAFKA_UNAVAILABLE', 503, '5'],
    ['NO_REPLY', 504, '1'],
  ])('that the workers refuse with %s is a %i, with Retry-After %s', async (code, status, retryAfter) => {
    const { app, ledger, stage } = start();
    ledger.refusal = { code };
    const response = await postId(app, KEY);
    expect([response.statusCode, response.headers['retry-after'], response.json().code]).toEqual([
      status,
      retryAfter,
      code,
    ]);
    expect([stage.faults, stage.issued]).toEqual([[], 0]);
  });
});

test('a refusal that says when a retry may succeed is passed on in whole seconds', async () => {
  const { app, ledger } = start();
  for (const [retryAfterMs, seconds] of [
    [4_200, '5'],
    [0, '1'],
  ] as const) {
    ledger.refusal = { code: 'QUOTA_EXCEEDED', retryAfterMs };
    expect((await postId(app, KEY)).headers['retry-after']).toBe(seconds);
  }
});

describe('503', () => {
  test.each(['STARTING', 'NO_IDENTITY', 'KAFKA_UNAVAILABLE', 'STOPPING'] as const)(
    "has Retry-After and the gate's reason: %s",
    async (reason) => {
      const { app, stage } = start();
      stage.reason = reason;
      for (const response of [await getIds(app, 1), await postId(app)]) {
        expect(response.statusCode).toBe(503);
        expect(response.headers).toMatchObject({
          'content-type': PROBLEM,
          'retry-after': expect.stringMatching(/^[1-9][0-9]?$/),
        });
        expect(response.json()).toMatchObject({ status: 503, code: reason, type: `urn:idalloc:problem:${reason}` });
      }
      expect(stage.issued).toBe(0);
    },
  );

  test('has the error of the allocator, even while the gate is open', async () => {
    const { app, stage } = start();
    stage.authority = { ok: false, code: 'LEASE_SUSPENDED', message: 'etcd has not confirmed the lease in time' };
    const response = await getIds(app, 1);
    expect([response.statusCode, response.headers['retry-after']]).toEqual([503, '5']);
    expect(response.json()).toMatchObject({ code: 'LEASE_SUSPENDED', detail: stage.authority.message });
    expect(stage.issued).toBe(0);
  });

  test('OVERLOADED when too many IDs are queued', async () => {
    const { app, stage } = start();
    const held = Promise.withResolvers<void>();
    stage.before = () => held.promise;
    const waiting = Promise.all(Array.from({ length: 40 }, () => getIds(app, 100_000)));
    const refused = await getIds(app, 100_000);
    expect([refused.statusCode, refused.headers['retry-after'], refused.json().code]).toEqual([503, '1', 'OVERLOADED']);
    stage.before = () => Promise.reject(new Error('the test is over'));
    held.resolve();
    await waiting;
  });
});

test('an internal error is a 500 without details, and is logged with the ID of its request', async () => {
  const { app, stage } = start();
  stage.before = () => Promise.reject(new TypeError('secret'));
  const response = await postId(app, { 'x-request-id': 'req-1' });
  expect([response.statusCode, response.headers['content-type']]).toEqual([500, PROBLEM]);
  expect([response.headers['x-request-id'], stage.faultyIds]).toEqual(['req-1', ['req-1']]);
  expect(response.body).not.toContain('secret');
  expect(stage.faults).toEqual([new TypeError('secret')]);
});

test('requests are counted by route and status, each from a closed set', async () => {
  const { app, stage } = start();
  for (const url of [
    '/api/v1/ids',
    '/api/v1/ids?count=x',
    '/api/v1/ids/7',
    '/api/v1/openapi.json',
    '/docs',
    '/a',
    '/api/v1/%zz',
  ]) {
    await app.inject(url);
  }
  await postId(app);
  expect(stage.answered.map(({ route, status }) => `${route} ${status}`)).toEqual([
    '/api/v1/ids 200',
    '/api/v1/ids 400',
    '/api/v1/ids/{id} 200',
    '/api/v1/openapi.json 200',
    '/docs 200',
    'other 404',
    'other 400',
    '/api/v1/id 200',
  ]);
});

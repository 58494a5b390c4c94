import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import type { Api } from '../../src/http/api.ts';
import { identifyBy } from '../../src/http/callers.ts';
import { Problem } from '../../src/http/problem.ts';
import { ApiStage } from '../support/api-stage.ts';
import { FakeLedger } from '../support/fake-ledger.ts';

const ORDERS = 'token-of-orders-1';
const ORDERS_2 = 'token-of-orders-2';
const BILLING = 'token-of-billing-1';
const TOKENS = `orders:${ORDERS}\norders:${ORDERS_2}\nbilling:${BILLING}\n`;
const open: Api[] = [];

afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close();
});

function start(options: ConstructorParameters<typeof ApiStage>[0] = { tokens: TOKENS }) {
  const stage = new ApiStage(options);
  const api = stage.api();
  open.push(api);
  const ask = (token?: string, headers: Record<string, string> = {}, url = '/api/v1/ids') =>
    api.app.inject({
      url,
      headers: { ...(token === undefined ? {} : { authorization: `Bearer ${token}` }), ...headers },
    });
  return { stage, app: api.app, ask };
}

describe('a token', () => {
  test('is required on every route but the documents; every token of a name is accepted', async () => {
    const { app, ask } = start();
    for (const url of ['/api/v1/ids', '/api/v1/ids/7', '/', '/docs/', '/docs/x', '/api/v1/openapi.json/x']) {
      expect((await ask(undefined, {}, url)).statusCode).toBe(401);
    }
    for (const url of ['/api/v1/openapi.json', '/docs']) {
      const answers = [await ask(undefined, {}, url), await ask('unknown', {}, url), await ask(ORDERS, {}, url)];
      expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 200, 200]);
      expect((await app.inject({ method: 'HEAD', url })).statusCode).toBe(200);
      expect((await app.inject({ method: 'POST', url })).statusCode).toBe(401);
    }
    for (const method of ['HEAD', 'POST'] as const) {
      expect((await app.inject({ method, url: '/api/v1/ids' })).statusCode).toBe(401);
    }
    for (const token of [ORDERS, ORDERS_2, BILLING]) expect((await ask(token)).statusCode).toBe(200);
  });

  test.each([
    ['none', {}, 'Bearer'],
    ['of another scheme', { authorization: `Basic ${ORDERS}` }, 'Bearer'],
    ['that is empty', { authorization: 'Bearer ' }, 'Bearer'],
    ['that is unknown', { authorization: `Bearer ${ORDERS}x` }, 'Bearer error="invalid_token"'],
    ['with its name', { authorization: `Bearer orders:${ORDERS}` }, 'Bearer'],
    ['in the query', {}, 'Bearer', `/api/v1/ids?access_token=${ORDERS}`],
  ])('%s is a 401 with a challenge, and uses no IDs', async (_, headers, challenge, url = '/api/v1/ids') => {
    const { stage, app } = start();
    const answer = await app.inject({ url, headers });
    expect([answer.statusCode, answer.headers['www-authenticate']]).toEqual([401, challenge]);
    expect(answer.headers['content-type']).toBe('application/problem+json');
    expect(answer.json()).toMatchObject({ type: 'about:blank', title: 'Unauthorized', status: 401 });
    expect(stage.issued).toBe(0);
    expect(stage.answered).toMatchObject([{ status: 401, caller: 'anonymous' }]);
  });

  test('sent twice is a 400, since the caller is ambiguous', async () => {
    const { app } = start();
    await app.listen({ port: 0, host: '127.0.0.1' });
    const { port } = app.server.address() as AddressInfo;
    const headers = ['host', 'x', ...[ORDERS, BILLING].flatMap((token) => ['authorization', `Bearer ${token}`])];
    const asked = request({ host: '127.0.0.1', port, path: '/api/v1/ids', headers, agent: false }).end();
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    answer.resume();
    expect(answer.statusCode).toBe(400);
  });

  test('may be replaced while the worker runs', async () => {
    const { stage, ask } = start();
    stage.tokens = `orders:${ORDERS_2}\nnew:token-of-somebody-new\n`;
    stage.aheadMs += 1_000;
    expect((await ask(ORDERS)).statusCode).toBe(401);
    expect((await ask(ORDERS_2)).statusCode).toBe(200);
    expect((await ask('token-of-somebody-new')).statusCode).toBe(200);
  });

  test('identifies callers in metrics', async () => {
    const { stage, ask } = start();
    for (const token of [ORDERS, BILLING, ORDERS_2, undefined]) await ask(token);
    expect(stage.answered.map(({ caller }) => caller)).toEqual(['orders', 'billing', 'orders', 'anonymous']);
  });

  test('is not required where none is configured', async () => {
    const { stage, ask } = start({});
    expect((await ask()).statusCode).toBe(200);
    expect((await ask('whatever')).statusCode).toBe(200);
    expect(stage.answered.map(({ caller }) => caller)).toEqual(['anonymous', 'anonymous']);
  });
});

describe('failed logins', () => {
  function logins() {
    const clock = { nowMs: 0 };
    const identify = identifyBy({ tokens: () => TOKENS, mutualTls: false, monotonicMs: () => clock.nowMs });
    /** The caller's name, or the status of the refusal. */
    const login = (remoteAddress: string, token?: string) => {
      const rawHeaders = token === undefined ? [] : ['Authorization', `Bearer ${token}`];
      try {
        return identify({ rawHeaders, socket: { remoteAddress } } as unknown as IncomingMessage).name;
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        return error.status === 429 ? error.headers : error.status;
      }
    };
    const fail = (times: number, address: string) => Array.from({ length: times }, () => login(address));
    return { clock, login, fail };
  }

  test('of an address above ten a second are a 429 with Retry-After, and close their connection', () => {
    const { clock, login, fail } = logins();
    expect(fail(9, '10.0.0.1')).toEqual(new Array(9).fill(401));
    expect(login('10.0.0.1', 'an-unknown-token')).toBe(401);
    const refused = { 'retry-after': '1', connection: 'close' };
    expect([login('10.0.0.1', 'an-unknown-token'), login('10.0.0.1')]).toEqual([refused, refused]);
    clock.nowMs += 100;
    expect(fail(2, '10.0.0.1')).toEqual([401, refused]);
  });

  test('do not keep out valid tokens from the same address, nor count for another', () => {
    const { login, fail } = logins();
    fail(1_000, '10.0.0.1');
    expect([login('10.0.0.1', ORDERS), login('10.0.0.2')]).toEqual(['orders', 401]);
  });

  test('are counted by the /64 network of an IPv6 address, since one host has all of it', () => {
    const { login } = logins();
    for (let nth = 0; nth < 10; nth += 1) login(`2001:db8:0:1::${nth}`);
    login('::ffff:10.0.0.1');
    const others = ['2001:db8:0:2::1', '2001:db8::1:0:0:1', '::1', '10.0.0.1'];
    expect(others.map((address) => login(address))).toEqual([401, 401, 401, 401]);
    expect(login('2001:db8:0:1:ffff::1')).toMatchObject({ 'retry-after': '1' });
    for (let nth = 0; nth < 8; nth += 1) login('10.0.0.1');
    expect(login('::ffff:10.0.0.1')).toMatchObject({ 'retry-after': '1' });
  });
});

test('documents above ten a second for an address are a 429, with a token or without, and IDs are not affected', async () => {
  const { stage, ask } = start();
  stage.standsAtMs = performance.now();
  const read = async (url: string, token?: string) => (await ask(token, {}, url)).statusCode;
  for (let nth = 0; nth < 5; nth += 1) {
    expect([await read('/docs'), await read('/api/v1/openapi.json')]).toEqual([200, 200]);
  }
  expect([await read('/docs'), await read('/docs', ORDERS), await read('/api/v1/ids', ORDERS)]).toEqual([
    429, 429, 200,
  ]);
  stage.aheadMs += 101; // a token takes 100 ms, and sums of milliseconds are rounded
  expect([await read('/docs'), await read('/docs')]).toEqual([200, 429]);
});

test('a caller with half of the connections in progress gets 429, and others are answered', async () => {
  const stage = new ApiStage({ tokens: TOKENS });
  const api = stage.api({ maxConnections: 4, requestTimeoutMs: 60_000 });
  open.push(api);
  await api.app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = api.app.server.address() as AddressInfo;
  const ask = async (token: string, path: string) =>
    (await fetch(`http://127.0.0.1:${port}${path}`, { headers: { authorization: `Bearer ${token}` } })).status;
  const held = Promise.withResolvers<void>();
  stage.before = () => held.promise;
  const inProgress = [ask(ORDERS, '/api/v1/ids'), ask(ORDERS_2, '/api/v1/ids')];
  await expect.poll(() => api.inFlight()).toBe(2);
  expect([await ask(ORDERS, '/api/v1/ids/7'), await ask(BILLING, '/api/v1/ids/7')]).toEqual([429, 200]);
  held.resolve();
  expect(await Promise.all(inProgress)).toEqual([200, 200]);
  await expect.poll(() => api.inFlight()).toBe(0);
  expect(await ask(ORDERS, '/api/v1/ids/7')).toBe(200);
});

describe('an idempotency key', () => {
  const key = { 'idempotency-key': 'order-1' };

  test('of IDs belongs to the caller, whichever token it uses', async () => {
    const ledger = new FakeLedger();
    const { ask } = start({ tokens: TOKENS, ledger });
    const first = await ask(ORDERS, key);
    expect((await ask(ORDERS_2, key)).body).toBe(first.body);
    expect((await ask(BILLING, key)).json().ids).not.toEqual(first.json().ids);
    expect((await ask(BILLING, key, '/api/v1/ids?count=2')).statusCode).toBe(422);
    const names = new Set(ledger.asked.map((asked) => String(asked.key)));
    expect(names).toEqual(new Set(['http/orders/order-1', 'http/billing/order-1']));
  });

  test('has room beside the name of the caller, and a longer one is a 400 that says how much', async () => {
    const { ask } = start({ tokens: TOKENS, ledger: new FakeLedger() });
    const status = async (length: number) => (await ask(ORDERS, { 'idempotency-key': 'k'.repeat(length) })).statusCode;
    expect([await status(244), await status(245)]).toEqual([200, 400]);
    const { detail } = (await ask(ORDERS, { 'idempotency-key': 'k'.repeat(250) })).json();
    expect(detail).toContain("at most 244 bytes for this caller: the ledger has it behind the caller's name, 'orders'");
  });
});

describe('a rate limit', () => {
  test('rejects only the caller above it, with 429 and Retry-After', async () => {
    const { stage, ask } = start({ tokens: TOKENS, perSecond: 100 });
    const idsOf = (token: string, count: number) => ask(token, {}, `/api/v1/ids?count=${count}`);
    expect((await idsOf(ORDERS, 100)).statusCode).toBe(200);
    const refused = await idsOf(ORDERS_2, 100);
    expect([refused.statusCode, refused.headers['retry-after']]).toEqual([429, '1']);
    expect(refused.json()).toMatchObject({ title: 'Too Many Requests', status: 429 });
    expect((await idsOf(BILLING, 100)).statusCode).toBe(200);
    expect(stage.issued).toBe(200);
    stage.aheadMs += 1_000;
    expect((await idsOf(ORDERS, 100)).statusCode).toBe(200);
    expect(stage.answered.map(({ status, caller }) => `${status} ${caller}`)).toContain('429 orders');
  });

  test('does not count failed requests', async () => {
    const { stage, ask } = start({ tokens: TOKENS, perSecond: 10 });
    const url = '/api/v1/ids?count=10';
    stage.before = () => Promise.reject(new Error('no'));
    expect((await ask(ORDERS, {}, url)).statusCode).toBe(500);
    stage.before = async () => undefined;
    expect([(await ask(ORDERS, {}, url)).statusCode, (await ask(ORDERS, {}, url)).statusCode]).toEqual([200, 429]);
  });

  test('counts IDs under a key each time, also where they are refused, since the workers were asked', async () => {
    const ledger = new FakeLedger();
    const { stage, ask } = start({ tokens: TOKENS, perSecond: 10, ledger });
    stage.standsAtMs = 0;
    const keyed = async () => (await ask(ORDERS, { 'idempotency-key': 'k' }, '/api/v1/ids?count=5')).statusCode;
    expect([await keyed(), await keyed(), await keyed()]).toEqual([200, 200, 429]);
    stage.standsAtMs = 1_000;
    ledger.refusal = { code: 'FORGOTTEN' };
    expect([await keyed(), await keyed(), await keyed()]).toEqual([410, 410, 429]);
    expect(ledger.asked).toHaveLength(4);
  });

  test('counts each decoded ID as one, also one that is refused', async () => {
    const { stage, ask } = start({ tokens: TOKENS, perSecond: 2 });
    stage.standsAtMs = performance.now();
    for (const id of ['7', 'no-id']) await ask(ORDERS, {}, `/api/v1/ids/${id}`);
    expect((await ask(ORDERS, {}, '/api/v1/ids/7')).statusCode).toBe(429);
    expect((await ask(BILLING, {}, '/api/v1/ids/7')).statusCode).toBe(200);
  });
});

test('browsers of other origins get no access: OPTIONS is 405, and no response allows an origin', async () => {
  const { app } = start({});
  const headers = { origin: 'https://other.example', 'access-control-request-method': 'POST' };
  const preflight = await app.inject({ method: 'OPTIONS', url: '/api/v1/id', headers });
  expect([preflight.statusCode, preflight.headers.allow]).toEqual([405, 'POST']);
  const simple = await app.inject({ method: 'POST', url: '/api/v1/id', headers });
  for (const answer of [preflight, simple]) {
    expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
  }
});

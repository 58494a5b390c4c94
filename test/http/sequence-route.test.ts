import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { noReply } from '../../src/client/refusals.ts';
import type { ErrorCode } from '../../src/errors.ts';
import type { Api } from '../../src/http/api.ts';
import { MAX_NUMBERS } from '../../src/http/id-routes.ts';
import { ApiStage } from '../support/api-stage.ts';
import { FakeLedger } from '../support/fake-ledger.ts';

const PATH = '/api/v1/sequences/invoices/2027';
const TOKEN = 'token-of-the-orders-service';
const JSON_TYPE: unknown = expect.stringMatching(/^application\/json/);
const open: Api[] = [];

afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close();
});

function start(options: Omit<ConstructorParameters<typeof ApiStage>[0] & object, 'ledger'> = {}) {
  const workers = new FakeLedger();
  const stage = new ApiStage({ ...options, ledger: workers });
  const api = stage.api();
  open.push(api);
  const post = (url = PATH, headers: Record<string, string> = { 'idempotency-key': 'order-1' }) =>
    api.app.inject({ method: 'POST', url, headers });
  const get = (url: string, method: 'GET' | 'HEAD' = 'GET', token?: string) =>
    api.app.inject({
      method,
      url,
      headers: {
        'idempotency-key': 'order-1',
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
    });
  return { workers, stage, app: api.app, post, get };
}

describe('numbers of a sequence', () => {
  test('come in its format, and the same key has the same ones', async () => {
    const { post, workers, stage } = start();
    const first = await post(`${PATH}?count=2`);
    expect([first.statusCode, first.json()]).toEqual([
      200,
      { sequence: 'invoices/2027', numbers: ['INV-000001', 'INV-000003'], first: 1, count: 2, step: 2 },
    ]);
    expect(first.headers).toMatchObject({ 'cache-control': 'no-store', 'content-type': JSON_TYPE });
    expect(first.headers['idempotency-replayed']).toBeUndefined();
    const again = await post(`${PATH}?count=2`);
    expect([again.body, again.headers['idempotency-replayed']]).toEqual([first.body, 'true']);
    expect((await post(PATH, { 'idempotency-key': 'order-2' })).json()).toMatchObject({ first: 5, count: 1 });
    expect(workers.asked).toHaveLength(3); // nothing is answered from the memory of this worker
    expect(stage.answered[0]).toMatchObject({ route: '/api/v1/sequences/{name}', status: 200, caller: 'anonymous' });
    expect(stage.ledgerOutcomes).toEqual(['answered', 'answered', 'answered']);
  });

  test('a name may be written with %2F, and a key with any bytes', async () => {
    const { workers, app } = start();
    await app.listen({ port: 0 });
    const { port } = app.server.address() as AddressInfo;
    const key = Buffer.from('bestellung-ä');
    const response = await new Promise<number | undefined>((resolve, reject) => {
      const headers = { 'idempotency-key': key.toString('latin1') };
      const sent = request({ port, method: 'POST', path: '/api/v1/sequences/invoices%2F2027', headers }, (got) =>
        resolve(got.resume().statusCode),
      );
      sent.once('error', reject).end();
    });
    expect(response).toBe(200);
    expect(workers.asked).toMatchObject([{ sequence: 'invoices/2027', count: 1, key }]);
  });

  test.each([
    ['without a key', PATH, {}, 'Idempotency-Key is required'],
    ['with an empty key', PATH, { 'idempotency-key': '' }, 'Idempotency-Key must be given once'],
    ['of an impossible name', '/api/v1/sequences/no%20name', undefined, 'not the name of a sequence'],
    ['without a name', '/api/v1/sequences/', undefined, 'not the name of a sequence'],
    ['of no numbers', `${PATH}?count=0`, undefined, 'count must be'],
    ['of too many numbers', `${PATH}?count=${MAX_NUMBERS + 1}`, undefined, `from 1 to ${MAX_NUMBERS}`],
    ['with another parameter', `${PATH}?form=ulid`, undefined, "unknown query parameter 'form': allowed: count"],
  ])('a request %s is a 400, and nobody is asked', async (_, url, headers, detail) => {
    const { post, workers } = start();
    const response = await post(url, headers as Record<string, string> | undefined);
    expect([response.statusCode, response.json().detail]).toEqual([400, expect.stringContaining(detail)]);
    expect(workers.asked).toEqual([]);
  });

  test('other methods are a 405, and a worker without API_REPLY_TOPIC answers 501', async () => {
    const { app } = start();
    const other = await app.inject({ method: 'PUT', url: PATH });
    expect([other.statusCode, other.headers.allow]).toEqual([405, 'GET, HEAD, POST']);
    const { app: without } = new ApiStage().api();
    const response = await without.inject({ method: 'POST', url: PATH, headers: { 'idempotency-key': 'a' } });
    expect([response.statusCode, response.json().detail]).toEqual([501, expect.stringContaining('API_REPLY_TOPIC')]);
    await without.close();
  });

  test.each<[ErrorCode, number, string | undefined]>([
    ['UNKNOWN_SEQUENCE', 404, undefined],
    ['SEQUENCE_EXHAUSTED', 409, undefined],
    ['SEQUENCE_CLOSED', 410, undefined],
    ['FORGOTTEN', 410, undefined],
    ['CONFLICT', 422, undefined],
    ['QUOTA_EXCEEDED', 429, '1'],
    ['REFUSED', 502, undefined],
    ['MALFORMED_REPLY', 502, undefined],
    ['SEQUENCE_STOPPED', 503, '60'],
    ['OVERTAKEN', 503, '1'],
    ['KAFKA_UNAVAILABLE', 503, '5'],
    ['OVERLOADED', 503, '5'],
    ['TOPIC_INVALID', 503, '60'],
    ['STOPPING', 503, '1'],
    ['EXPIRED', 504, '1'],
    ['NO_REPLY', 504, '1'],
  ])('%s is a %i, with Retry-After %s', async (code, status, retryAfter) => {
    const { post, workers, stage } = start();
    workers.refusal = { code };
    const response = await post();
    expect([response.statusCode, response.headers['retry-after']]).toEqual([status, retryAfter]);
    const detail = code === 'EXPIRED' ? 'ask again with the same Idempotency-Key' : 'the workers refuse it';
    expect(response.json()).toMatchObject({ code, detail: expect.stringContaining(detail) });
    expect(stage.faults).toEqual([]);
    expect(stage.ledgerOutcomes).toEqual([status < 500 ? 'refused' : 'failed']);
  });

  test('are not waited for any longer when the caller is gone', async () => {
    const { workers, app } = start();
    await app.listen({ port: 0 });
    const { port } = app.server.address() as AddressInfo;
    workers.before = new Promise(() => undefined);
    const sent = request({ port, method: 'POST', path: PATH, headers: { 'idempotency-key': 'a' } }).end();
    sent.on('error', () => undefined);
    await expect.poll(() => workers.asked.length).toBe(1);
    sent.destroy();
    await expect.poll(() => workers.asked[0]?.signal.aborted).toBe(true);
  });
});

describe('a look-up', () => {
  test('has the numbers of the key, and takes none', async () => {
    const { get, post, workers, stage } = start();
    const none = await get(PATH);
    expect([none.statusCode, none.json()]).toEqual([
      404,
      {
        type: 'about:blank',
        title: 'Not Found',
        status: 404,
        detail:
          'the ledger has no numbers of invoices/2027 for this Idempotency-Key: it got none, or longer ago than the ledger keeps them',
      },
    ]);
    const first = await post(PATH);
    const found = await get(PATH);
    expect([found.statusCode, found.body, found.headers['idempotency-replayed']]).toEqual([200, first.body, 'true']);
    expect(workers.asked.map(({ isLookUp }) => isLookUp)).toEqual([true, false, true]);
    expect((await get(PATH, 'HEAD')).headers['idempotency-replayed']).toBe('true');
    expect(stage.answered[0]).toMatchObject({ route: '/api/v1/sequences/{name}', status: 404 });
  });

  test('needs a key and a right, and counts against the rate limit, as what takes numbers does', async () => {
    const { app } = start();
    expect((await app.inject({ method: 'GET', url: PATH })).statusCode).toBe(400);
    const limited = start({
      tokens: `orders:${TOKEN} sequences:tickets\nbilling:${TOKEN}-2 sequences:*`,
      perSecond: 1,
    });
    limited.stage.standsAtMs = 0;
    const ask = async (token: string) => (await limited.get(PATH, 'GET', token)).statusCode;
    expect([await ask(TOKEN), await ask(`${TOKEN}-2`), await ask(`${TOKEN}-2`)]).toEqual([403, 404, 429]);
  });

  test('that nobody answers is not a 404, for there may be numbers', async () => {
    const { get, workers } = start();
    for (const [code, status] of [
      ['NO_REPLY', 504],
      ['FORGOTTEN', 410],
    ] as const) {
      workers.refusal = { code };
      expect((await get(PATH)).statusCode).toBe(status);
    }
  });
});

test('a CONFLICT speaks of the Idempotency-Key, whatever a worker calls it', async () => {
  const { post, workers } = start();
  const detailOf = async (message: string) => {
    workers.refusal = { code: 'CONFLICT', message };
    return (await post()).json().detail;
  };
  expect(await detailOf('this request ID has others: use a new request ID')).toBe(
    'this Idempotency-Key has others: use a new Idempotency-Key',
  );
  expect(await detailOf('order-1 has 1 number of invoices/2027, on id.replies.cli')).toBe(
    'this Idempotency-Key was used before: order-1 has 1 number of invoices/2027, on id.replies.cli',
  );
});

test('a caller is told nothing of a limit that it can not set', async () => {
  const { post, workers } = start();
  const { code, message } = noReply(
    { sequence: 'invoices', count: 2, replyTopic: 'id.replies.http', timeoutMs: 10_000 },
    { isWaiting: true },
  );
  expect(message).toMatch(
    / this one for 2 numbers of invoices waits its turn.* set a longer timeoutMs, or request fewer\./,
  );
  workers.refusal = { code, message };
  expect((await post()).json().detail).toMatch(/; request fewer\. Retrying with the same Idempotency-Key never yields/);
});

describe('bounds', () => {
  test('a caller may have half of the waits, so that others find some free', async () => {
    const tokens = `orders:${TOKEN} sequences:*\nbilling:${TOKEN}-2 sequences:*`;
    const { post, workers } = start({ tokens, maxWaiting: 4 });
    const ask = (token: string, key: string) =>
      post(PATH, { authorization: `Bearer ${token}`, 'idempotency-key': key });
    const { promise, resolve } = Promise.withResolvers<void>();
    workers.before = promise;
    const waiting = [ask(TOKEN, 'a'), ask(TOKEN, 'b')];
    await expect.poll(() => workers.asked.length).toBe(2);
    const third = await ask(TOKEN, 'c');
    expect([third.statusCode, third.headers['retry-after']]).toEqual([429, '1']);
    const other = ask(`${TOKEN}-2`, 'a');
    await expect.poll(() => workers.asked.length).toBe(3);
    resolve();
    expect((await Promise.all([...waiting, other])).map(({ statusCode }) => statusCode)).toEqual([200, 200, 200]);
    expect((await ask(TOKEN, 'c')).statusCode).toBe(200);
  });

  test('numbers count against the rate limit, also those of a known key', async () => {
    const { post, stage } = start({ perSecond: 10 });
    stage.standsAtMs = 0;
    expect((await post(`${PATH}?count=9`)).statusCode).toBe(200);
    const beyond = await post(`${PATH}?count=9`);
    expect([beyond.statusCode, beyond.json().detail]).toEqual([429, expect.stringContaining('rate limit')]);
  });
});

describe('a token', () => {
  const right = (rights: string) => start({ tokens: `orders:${TOKEN} ${rights}` });
  const headers = { authorization: `Bearer ${TOKEN}`, 'idempotency-key': 'a' };

  test.each([
    ['sequences:*', 200],
    ['sequences:invoices/*', 200],
    ['keyed-decode sequences:invoices/2027', 200],
    ['sequences:tickets sequences:invoices/2027', 200],
    ['sequences:invoices/2', 403],
    ['sequences:tickets*', 403],
    ['keyed-decode', 403],
    ['', 403],
  ])("with the rights '%s' gets %i", async (rights, status) => {
    const { post, workers } = right(rights);
    expect((await post(PATH, headers)).statusCode).toBe(status);
    expect(workers.asked).toHaveLength(status === 200 ? 1 : 0);
  });

  test('that is missing is a 401', async () => {
    expect((await right('sequences:*').post(PATH, { 'idempotency-key': 'a' })).statusCode).toBe(401);
  });
});

import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';
import { afterEach, expect, test } from 'vitest';
import type { Api } from '../../src/http/api.ts';
import { ApiStage } from '../support/api-stage.ts';
import { FakeLedger } from '../support/fake-ledger.ts';

const open: Api[] = [];
afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close();
});

function start() {
  const ledger = new FakeLedger();
  const stage = new ApiStage({ ledger });
  const api = stage.api();
  open.push(api);
  const get = (url: string, accepted?: string) =>
    api.app.inject({
      url,
      headers: { 'idempotency-key': url, ...(accepted === undefined ? {} : { 'accept-encoding': accepted }) },
    });
  return { ledger, api, get };
}

test.each([1, 5, 6, 100, 101, 5_000])(
  '%i IDs are the same compressed, and are compressed from 1 KiB on',
  async (count) => {
    const { get, ledger } = start();
    const url = `/api/v1/ids?count=${count}`;
    const plain = await get(url);
    const short = await get(url, 'gzip');
    const isLong = plain.rawPayload.length >= 1_024;
    expect(isLong).toBe(count > 5);
    expect(short.headers['content-encoding']).toBe(isLong ? 'gzip' : undefined);
    expect(short.headers.vary).toBe(isLong ? 'accept-encoding' : undefined);
    expect(String(isLong ? gunzipSync(short.rawPayload) : short.rawPayload)).toBe(plain.body);
    if (count >= 100) expect(short.rawPayload.length * 8).toBeLessThan(plain.rawPayload.length);
    expect(plain.headers).not.toHaveProperty('content-encoding');
    expect(ledger.decidedIds).toBe(count);
  },
);

test.each([
  ['gzip', 'gzip'],
  ['br, gzip, deflate', 'gzip'],
  ['*', 'gzip'],
  ['gzip;q=0.5, identity;q=0.1', 'gzip'],
  ['x-gzip', 'gzip'],
  ['identity, *;q=0.5', 'gzip'],
  ['gzip;q=0', undefined],
  ['gzip; q=0.000, *', undefined],
  ['*, GZIP;Q=0', undefined],
  ['*;q=0', undefined],
  ['br', undefined],
  ['identity', undefined],
  ['', undefined],
  ['gzip;q=nonsense', undefined],
  [',,;;=', undefined],
])('a client that accepts %j gets %s', async (accepted, encoding) => {
  const { get } = start();
  const { statusCode, headers, rawPayload } = await get('/api/v1/ids?count=50', accepted);
  expect([statusCode, headers['content-encoding']]).toEqual([200, encoding]);
  const body = encoding === undefined ? rawPayload : gunzipSync(rawPayload);
  expect(JSON.parse(String(body)).ids).toHaveLength(50);
});

test('a problem is never compressed: it is short, and quotes the request', async () => {
  const { get } = start();
  const { headers, rawPayload } = await get(`/api/v1/ids?${'x'.repeat(2_000)}=1`, 'gzip');
  expect(headers).not.toHaveProperty('content-encoding');
  expect(rawPayload.length).toBeLessThan(1_024);
});

test('a client that leaves a compressed response ends the rendering', async () => {
  const { api } = start();
  await api.app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = api.app.server.address() as AddressInfo;
  const headers = { 'accept-encoding': 'gzip' };
  const asked = request({ host: '127.0.0.1', port, path: '/api/v1/ids?count=100000', headers, agent: false }).end();
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  await once(answer, 'readable');
  asked.on('error', () => undefined);
  answer.on('error', () => undefined);
  asked.destroy();
  await expect.poll(() => api.inFlight()).toBe(0);
});

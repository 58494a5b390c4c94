import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { type AgentOptions, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { Authority } from '../support/certificates.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const ERROR_LEVEL = 50;
/** A worker checks its files once a second. */
const WITHIN = { timeout: 60_000 };
const OLD = 'orders-token-before';
const NEW = 'orders-token-after-';
const BILLING = 'billing-token-ever';

function directory(): string {
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-callers-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  return dir;
}

async function start(env: Readonly<Record<string, string>>): Promise<WorkerProcess> {
  const realm = await Realm.create(suiteServers());
  onTestFinished(() => realm[Symbol.asyncDispose]());
  const worker = realm.worker(env);
  await worker.ready();
  return worker;
}

test('tokens can be replaced in their file without a restart, and requests are counted by caller', async () => {
  const file = join(directory(), 'tokens');
  writeFileSync(file, `orders:${OLD}\nbilling:${BILLING}\n`);
  const worker = await start({ API_TOKEN_FILE: file, API_RATE_LIMIT: '100' });
  const url = `${await worker.api()}/api/v1/ids`;
  const ask = async (token: string, count = 1) =>
    (await fetch(`${url}?count=${count}`, { headers: { authorization: `Bearer ${token}` } })).status;

  expect([await ask(OLD), await ask(BILLING), await ask(NEW)]).toEqual([200, 200, 401]);
  writeFileSync(file, `orders:${OLD}\norders:${NEW}\nbilling:${BILLING}\n`);
  await expect.poll(() => ask(NEW), WITHIN).toBe(200);
  expect(await ask(OLD)).toBe(200);
  writeFileSync(file, `orders:${NEW}\nbilling:${BILLING}\n`);
  await expect.poll(() => ask(OLD), WITHIN).toBe(401);
  expect(await ask(BILLING, 1_000)).toBe(200);
  expect([await ask(BILLING), await ask(NEW)]).toEqual([429, 200]);

  writeFileSync(file, 'orders');
  const isWarned = () =>
    worker.lines.some(({ msg, variable }) => /^secret file invalid/.test(String(msg)) && variable === 'API_TOKEN_FILE');
  await expect.poll(async () => [await ask(NEW), isWarned()], WITHIN).toEqual([200, true]);
  expect(await ask(NEW)).toBe(200);
  const series = (status: number, caller: string) =>
    worker.metric(`idalloc_http_requests_total{route="/api/v1/ids",status="${status}",caller="${caller}"}`);
  expect(await series(429, 'billing')).toBe(1);
  expect(await series(401, 'anonymous')).toBeGreaterThanOrEqual(2);
  expect(JSON.stringify(worker.lines)).not.toMatch(new RegExp(`${OLD}|${NEW}|${BILLING}`));
  const errors = worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL);
  expect(errors.map(({ variable }) => variable)).toEqual(['API_TOKEN_FILE']);
});

test('certificates can be replaced in their files without a restart, and identify callers', async () => {
  const dir = directory();
  const authority = new Authority(dir);
  const own = { cert: join(dir, 'shown.crt'), key: join(dir, 'shown.key') };
  const show = (name: string, days?: number) => {
    const { certFile, keyFile } = authority.issue(name, days);
    copyFileSync(certFile, own.cert);
    copyFileSync(keyFile, own.key);
  };
  const expiry = () => worker.metric('idalloc_certificate_expiry_timestamp_seconds{variable="API_TLS_CERT"}');
  show('before');
  const worker = await start({
    API_TLS_CERT_FILE: own.cert,
    API_TLS_KEY_FILE: own.key,
    API_TLS_CLIENT_CA_FILE: authority.own.certFile,
  });
  const { port } = new URL(await worker.api());
  const { certFile, keyFile } = authority.issue('orders');
  const ca = readFileSync(authority.own.certFile);
  const client = { ca, cert: readFileSync(certFile), key: readFileSync(keyFile) };
  /** The status, and the common name of the certificate that the worker showed. */
  const ask = async (options: AgentOptions) => {
    const asked = request({ host: '127.0.0.1', port, path: '/api/v1/ids', agent: false, ...options }).end();
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    const shown = (answer.socket as TLSSocket).getPeerCertificate().subject.CN;
    answer.resume();
    return [answer.statusCode, shown];
  };

  expect(await ask(client)).toEqual([200, 'before']);
  await expect(ask({ ca })).rejects.toThrow();
  const endsBefore = await expiry();
  expect(endsBefore).toBe(Date.parse(new X509Certificate(readFileSync(own.cert)).validTo) / 1_000);
  show('after', 9);
  await expect.poll(() => ask(client), WITHIN).toEqual([200, 'after']);
  expect(await expiry()).toBeGreaterThan(endsBefore + 6 * 86_400);
  const name = 'idalloc_http_requests_total{route="/api/v1/ids",status="200",caller="mtls"}';
  expect(await worker.metric(name)).toBeGreaterThanOrEqual(2);
  expect((await worker.ops('/readyz')).status).toBe(200);
  expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
});

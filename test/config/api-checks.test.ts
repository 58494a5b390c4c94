import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { loadWorkerConfig } from '../../src/config/config.ts';
import { CertificateAuthority } from '../support/certificates.ts';

const WORKER = { KAFKA_BROKERS: 'kafka:9092', ETCD_ENDPOINTS: 'http://etcd:2379', DATACENTER_ID: '4' };
const tokens = 'orders:token-of-orders-1\n';
const dir = mkdtempSync(join(tmpdir(), 'idalloc-config-'));
const authority = new CertificateAuthority(dir);
const [own, other] = [authority.issue('own'), authority.issue('other')];
const tls = { API_TLS_CERT_FILE: own.certFile, API_TLS_KEY_FILE: own.keyFile };
afterAll(() => rmSync(dir, { recursive: true }));

function faultsOf(env: Readonly<Record<string, string>>): string {
  try {
    loadWorkerConfig({ ...WORKER, ...env });
  } catch (error) {
    return String(error);
  }
  return '';
}

test('tokens and certificates are read from their files at each use', () => {
  const files = new Map([['/t', tokens]]);
  const read = (path: string) => files.get(path) ?? readFileSync(path, 'utf8');
  const env = { ...WORKER, ...tls, API_TOKEN_FILE: '/t', API_TLS_CLIENT_CA_FILE: authority.own.certFile };
  const { api } = loadWorkerConfig({ ...env, API_RATE_LIMIT: '1000' }, read);
  expect(api?.rateLimit).toBe(1_000);
  expect(api?.tokens?.()).toBe(tokens.trim());
  files.set('/t', 'new:token-of-somebody\n');
  expect(api?.tokens?.()).toBe('new:token-of-somebody');
  files.set('/t', '\n');
  expect(api?.tokens?.()).toBe('new:token-of-somebody');
  expect(api?.tls?.cert()).toBe(readFileSync(own.certFile, 'utf8').trim());
  expect(api?.tls?.clientCa?.()).toContain('BEGIN CERTIFICATE');
});

test.each([
  ['a token that is too short', { API_TOKEN: 'orders:short' }, ['API_TOKEN']],
  ['a token without a name', { API_TOKEN: 'token-of-orders-1' }, ['API_TOKEN']],
  ['a certificate without its key', { ...tls, API_TLS_KEY_FILE: '' }, ['API_TLS_KEY']],
  ['a key without its certificate', { ...tls, API_TLS_CERT_FILE: '' }, ['API_TLS_CERT']],
  ["another certificate's key", { ...tls, API_TLS_KEY_FILE: other.keyFile }, ['API_TLS_KEY']],
  ['an authority without TLS', { API_TLS_CLIENT_CA_FILE: own.certFile }, ['API_TLS_CERT']],
  ['a key as a certificate', { ...tls, API_TLS_CERT_FILE: own.keyFile }, ['API_TLS_CERT']],
  ['a certificate as a key', { ...tls, API_TLS_KEY_FILE: own.certFile }, ['API_TLS_KEY']],
  ['a limit of nothing', { API_RATE_LIMIT: '0' }, ['API_RATE_LIMIT']],
])('%s is a fault that shows no secret', (_, env, names) => {
  const message = faultsOf(env);
  expect([...message.matchAll(/^ {2}(\w+):/gm)].map(([, name]) => name)).toEqual(names);
  expect(message).not.toMatch(/orders|PRIVATE|[A-Za-z0-9+/]{40}/);
});

test.each([
  ['all addresses', { API_HOST: '0.0.0.0' }, 1],
  ['a name that others may know', { API_HOST: 'ids.example' }, 1],
  ['TLS alone', { API_HOST: '::', ...tls }, 1],
  ['this machine', { API_HOST: '127.0.0.2' }, 0],
  ['a token', { API_HOST: '0.0.0.0', API_TOKEN: tokens, ...tls }, 0],
  ['mutual TLS', { API_HOST: '0.0.0.0', ...tls, API_TLS_CLIENT_CA_FILE: own.certFile }, 0],
  ['no API', { API_HOST: '0.0.0.0', API_PORT: 'off' }, 0],
])('%s: there is a warning exactly if anybody can use the API', (_, env, warnings) => {
  expect(loadWorkerConfig({ ...WORKER, ...env }).warnings).toHaveLength(warnings);
});

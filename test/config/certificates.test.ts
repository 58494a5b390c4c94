import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { certificateExpiries } from '../../src/config/certificates.ts';
import { loadWorkerConfig } from '../../src/config/config.ts';
import { CertificateAuthority } from '../support/certificates.ts';

const DAY_MS = 86_400_000;
const WORKER = { KAFKA_BROKERS: 'k:1', ETCD_ENDPOINTS: 'https://e:1', DATACENTER_ID: '0', KAFKA_TLS: '1' };

let dir: string;
let authority: CertificateAuthority;

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-certificates-'));
  authority = new CertificateAuthority(dir);
});

afterAll(() => rmSync(dir, { recursive: true }));

function issued(days: number): { cert: string; key: string } {
  const { certFile, keyFile } = authority.issue(`of-${days}`, days);
  return { cert: readFileSync(certFile, 'utf8'), key: readFileSync(keyFile, 'utf8') };
}

/** The days until each certificate expires, by variable. */
function daysOf(env: Record<string, string>): Record<string, number> {
  const found = certificateExpiries(loadWorkerConfig({ ...WORKER, ...env }));
  return Object.fromEntries(
    found.map(({ variable, expiresAtMs }) => [variable, Math.round((expiresAtMs - Date.now()) / DAY_MS)]),
  );
}

test('a configuration without certificates has none', () => {
  expect(daysOf({})).toEqual({});
});

test('each variable with certificates has an expiry', () => {
  const [kafka, etcd, api, ca] = [issued(3), issued(4), issued(5), authority.own.certPem];
  const own = {
    KAFKA_CERT: kafka.cert,
    KAFKA_KEY: kafka.key,
    ETCD_CERT: etcd.cert,
    ETCD_KEY: etcd.key,
    API_TLS_CERT: api.cert,
    API_TLS_KEY: api.key,
  };
  expect(daysOf({ ...own, KAFKA_CA: ca, ETCD_CA: ca, API_TLS_CLIENT_CA: ca })).toEqual({
    KAFKA_CERT: 3,
    KAFKA_CA: 2,
    ETCD_CERT: 4,
    ETCD_CA: 2,
    API_TLS_CERT: 5,
    API_TLS_CLIENT_CA: 2,
  });
  const oauth = { KAFKA_OAUTH_TOKEN_URL: 'https://t', KAFKA_OAUTH_CLIENT_ID: 'w', KAFKA_OAUTH_CLIENT_SECRET: 's' };
  expect(daysOf({ ...oauth, KAFKA_SASL_MECHANISM: 'oauthbearer', KAFKA_OAUTH_CA: ca })).toEqual({ KAFKA_OAUTH_CA: 2 });
});

test('a chain expires with its first certificate, a CA file with its last', () => {
  const [short, long] = [issued(3), issued(30)];
  for (const [one, other] of [
    [short, long],
    [long, short],
  ] as const) {
    const both = `${one.cert}\n${other.cert}`;
    expect(daysOf({ KAFKA_CERT: both, KAFKA_KEY: one.key, KAFKA_CA: both })).toEqual({ KAFKA_CERT: 3, KAFKA_CA: 30 });
  }
});

test('a text without a readable certificate is left out', () => {
  const ca = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
  expect(daysOf({ KAFKA_CA: ca })).toEqual({});
});

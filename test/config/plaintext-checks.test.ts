import { expect, test } from 'vitest';
import { loadKafkaConfig, loadWorkerConfig } from '../../src/config/config.ts';
import type { Environment } from '../../src/config/parse.ts';

const KAFKA = { KAFKA_BROKERS: 'kafka:9092' };
const WORKER = { ...KAFKA, ETCD_ENDPOINTS: 'http://etcd:2379', DATACENTER_ID: '4' };
const PASSWORD = { KAFKA_SASL_USERNAME: 'u', KAFKA_SASL_PASSWORD: 's3cret' };
const OAUTH = {
  KAFKA_SASL_MECHANISM: 'oauthbearer',
  KAFKA_TLS: '1',
  KAFKA_OAUTH_TOKEN_URL: 'https://login.example/token',
  KAFKA_OAUTH_CLIENT_ID: 'me',
  KAFKA_OAUTH_CLIENT_SECRET: 's3cret',
};
const REGISTRY = { SCHEMA_REGISTRY_USERNAME: 'me', SCHEMA_REGISTRY_PASSWORD: 's3cret' };
const ETCD = { ETCD_USERNAME: 'me', ETCD_PASSWORD: 's3cret' };
const API_TOKEN = 'orders:s3cret-of-orders-1';

const plain = { ...PASSWORD, KAFKA_SASL_MECHANISM: 'plain' };
const scram = { ...PASSWORD, KAFKA_SASL_MECHANISM: 'scram-sha-512' };
const registryAt = (SCHEMA_REGISTRY_URL: string) => ({ ...REGISTRY, SCHEMA_REGISTRY_URL });
const etcdAt = (ETCD_ENDPOINTS: string) => ({ ...ETCD, ETCD_ENDPOINTS });

test.each<[string, Environment, RegExp]>([
  ['PLAIN', plain, /^KAFKA_SASL_MECHANISM is plain without KAFKA_TLS=1: the password/],
  ['SCRAM', scram, /^KAFKA_SASL_MECHANISM is scram-sha-512 without KAFKA_TLS=1: .*try out passwords/],
  ['OAUTHBEARER', { ...OAUTH, KAFKA_TLS: '0' }, /^KAFKA_SASL_MECHANISM is oauthbearer without KAFKA_TLS=1: the token/],
  [
    'the token endpoint',
    { ...OAUTH, KAFKA_OAUTH_TOKEN_URL: 'http://login.example/token' },
    /^KAFKA_OAUTH_TOKEN_URL .*https:.*KAFKA_OAUTH_CLIENT_SECRET/,
  ],
  ['the registry', registryAt('http://registry:8081'), /^SCHEMA_REGISTRY_URL .*https:.*SCHEMA_REGISTRY_PASSWORD/],
  ['etcd', etcdAt('http://etcd:2379'), /^ETCD_ENDPOINTS .*https:.*ETCD_PASSWORD/],
  ['one member of etcd', etcdAt('https://a:2379,http://b:2379'), /^ETCD_ENDPOINTS /],
  ['the HTTP API', { API_HOST: '0.0.0.0', API_TOKEN }, /^the HTTP API listens on 0\.0\.0\.0 without TLS.*API_TOKEN/],
])('a secret for %s without TLS causes one warning, which does not show it', (_, env, said) => {
  const { warnings } = loadWorkerConfig({ ...WORKER, ...env });
  expect(warnings).toEqual([expect.stringMatching(said)]);
  expect(warnings.join()).not.toContain('s3cret');
});

test.each<[string, Environment]>([
  ['PLAIN over TLS', { ...plain, KAFKA_TLS: '1' }],
  ['SCRAM over TLS', { ...scram, KAFKA_TLS: '1' }],
  ['tokens over TLS', OAUTH],
  ['a token endpoint on this machine', { ...OAUTH, KAFKA_OAUTH_TOKEN_URL: 'http://localhost:8080/token' }],
  ['a registry over TLS', registryAt('https://registry:8081')],
  ['a registry on this machine', registryAt('http://[::1]:8081')],
  ['a registry without a login', { SCHEMA_REGISTRY_URL: 'http://registry:8081' }],
  ['etcd over TLS', etcdAt('https://a:2379,https://b:2379')],
  ['etcd on this machine', etcdAt('http://127.0.0.1:2379')],
  ['etcd without a login', {}],
  ['an API on this machine', { API_TOKEN }],
  ['an API that is off', { API_TOKEN, API_HOST: '0.0.0.0', API_PORT: 'off' }],
])('%s causes no warning', (_, env) => {
  expect(loadWorkerConfig({ ...WORKER, ...env }).warnings).toEqual([]);
});

test('commands that connect only to Kafka warn about what they send', () => {
  expect(loadKafkaConfig({ ...KAFKA, ...plain }).warnings).toHaveLength(1);
});

test.each([
  [{ ...ETCD, ETCD_ENDPOINTS: 'etcd' }, 'ETCD_ENDPOINTS'],
  [{ ...ETCD, ETCD_ENDPOINTS: '' }, 'ETCD_ENDPOINTS'],
  [registryAt('registry'), 'SCHEMA_REGISTRY_URL'],
  [{ ...OAUTH, KAFKA_OAUTH_TOKEN_URL: 'login' }, 'KAFKA_OAUTH_TOKEN_URL'],
])('an address that is invalid is only reported as that', (env, name) => {
  expect(() => loadWorkerConfig({ ...WORKER, ...env })).toThrow(new RegExp(`^1 configuration error:\n  ${name}: `));
});

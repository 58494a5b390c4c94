import { createHash, createHmac } from 'node:crypto';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { signMskToken } from '../../../src/kafka/wire/msk-iam.ts';

const REGION = 'eu-central-1';
const KEY_ID = 'AKIAIOSFODNN7EXAMPLE';
const KEY = 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY';

beforeEach(() => {
  vi.stubEnv('AWS_ACCESS_KEY_ID', KEY_ID);
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', KEY);
  vi.stubEnv('AWS_SESSION_TOKEN', undefined);
});

afterEach(() => vi.unstubAllEnvs());

const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const escaped = (text: string) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);

/** AWS's signature, version 4, of a GET without a body, as a broker computes it. */
function signatureOf(url: URL): string {
  const parameter = (name: string) => url.searchParams.get(name) ?? '';
  const [, day = '', region = '', service = ''] = parameter('X-Amz-Credential').split('/');
  const query = [...url.searchParams]
    .filter(([name]) => name !== 'X-Amz-Signature' && name !== 'User-Agent')
    .map(([name, value]) => `${escaped(name)}=${escaped(value)}`)
    .sort()
    .join('&');
  const request = ['GET', '/', query, `host:${url.host}`, '', 'host', sha256('')].join('\n');
  const scope = `${day}/${region}/${service}/aws4_request`;
  const text = ['AWS4-HMAC-SHA256', parameter('X-Amz-Date'), scope, sha256(request)].join('\n');
  const key = [day, region, service, 'aws4_request'].reduce<string | Buffer>(hmac, `AWS4${KEY}`);
  return hmac(key, text).toString('hex');
}

test('a login to MSK is a connect request, signed for the region with the credentials of the environment', async () => {
  const fromMs = Date.now();
  const { value, expiresAtMs } = await signMskToken(REGION);
  const untilMs = Date.now();
  const url = new URL(Buffer.from(value, 'base64url').toString());
  expect(url.host).toBe(`kafka.${REGION}.amazonaws.com`);
  const parameters = Object.fromEntries(url.searchParams);
  expect(parameters).toMatchObject({ Action: 'kafka-cluster:Connect', 'X-Amz-Expires': '900' });
  expect(parameters['X-Amz-Credential']).toMatch(new RegExp(`^${KEY_ID}/\\d{8}/${REGION}/kafka-cluster/aws4_request$`));
  expect(parameters['X-Amz-Signature']).toBe(signatureOf(url));
  expect(expiresAtMs).toBeGreaterThan(fromMs + 800_000);
  expect(expiresAtMs).toBeLessThanOrEqual(untilMs + 900_000);
});

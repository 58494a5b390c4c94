import { createHash, createHmac } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import { fetchToken, signMskToken, Tokens } from '../../../src/kafka/wire/logins.ts';

const LIFE_MS = 300_000;

function stage(lifeMs = LIFE_MS) {
  const clock = { nowMs: 1_000_000, isDown: false };
  let fetched = 0;
  const tokens = new Tokens(
    async () => {
      fetched += 1;
      if (clock.isDown) throw new Error('no answer');
      return { value: `token-${fetched}`, expiresAtMs: clock.nowMs + lifeMs };
    },
    () => clock.nowMs,
  );
  const value = async () => (await tokens.current()).value;
  return { clock, value, fetched: () => fetched };
}

describe('a token', () => {
  test('is kept until half a minute before it expires, and then fetched again', async () => {
    const { clock, value } = stage();
    expect(await value()).toBe('token-1');
    clock.nowMs += LIFE_MS - 30_001;
    expect(await value()).toBe('token-1');
    clock.nowMs += 1;
    expect(await value()).toBe('token-2');
  });

  test('that lives only for seconds is used for most of them', async () => {
    const { clock, value } = stage(10_000);
    await value();
    clock.nowMs += 3_999;
    expect(await value()).toBe('token-1');
    clock.nowMs += 1;
    expect(await value()).toBe('token-2');
  });

  test('is fetched once for concurrent logins', async () => {
    const { value, fetched } = stage();
    expect(await Promise.all([value(), value(), value()])).toEqual(['token-1', 'token-1', 'token-1']);
    expect(fetched()).toBe(1);
  });

  test("that can't be renewed is used until it expires, and requested again each time", async () => {
    const { clock, value, fetched } = stage();
    await value();
    clock.isDown = true;
    clock.nowMs += LIFE_MS - 20_000;
    expect([await value(), await value()]).toEqual(['token-1', 'token-1']);
    expect(fetched()).toBe(3);
    clock.nowMs += 18_000;
    await expect(value()).rejects.toThrow('no answer');
    clock.isDown = false;
    expect(await value()).toBe('token-5');
  });
});

let server: Server | undefined;

afterEach(async () => {
  server?.closeAllConnections();
  await new Promise((resolve) => (server === undefined ? resolve(undefined) : server.close(resolve)));
  server = undefined;
});

const SECRET = 'a/secret:value';

/** An endpoint with a fixed answer, and the requests it got. */
async function endpoint(status: number, body: string, headers: Record<string, string> = {}) {
  const asked: { authorization: string; body: string }[] = [];
  const listening = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk) => {
      text += chunk;
    });
    request.on('end', () => {
      asked.push({ authorization: request.headers.authorization ?? '', body: text });
      response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body);
    });
  });
  server = listening;
  await new Promise<void>((resolve) => listening.listen(0, '127.0.0.1', resolve));
  const tokenUrl = `http://127.0.0.1:${(listening.address() as AddressInfo).port}/token`;
  const settings = { tokenUrl, clientId: 'worker-1', clientSecret: () => SECRET, scope: 'kafka write' };
  return { asked, fetch: () => fetchToken(settings, () => 5_000) };
}

describe('a token endpoint', () => {
  test('receives the client and the scope, and returns how long the token lives', async () => {
    const { asked, fetch } = await endpoint(200, '{"access_token":"t","token_type":"Bearer","expires_in":60}');
    expect(await fetch()).toEqual({ value: 't', expiresAtMs: 65_000 });
    const login = Buffer.from(asked[0]?.authorization.slice('Basic '.length) ?? '', 'base64').toString();
    expect(login).toBe(`worker-1:${encodeURIComponent(SECRET)}`);
    expect(Object.fromEntries(new URLSearchParams(asked[0]?.body))).toEqual({
      grant_type: 'client_credentials',
      scope: 'kafka write',
    });
  });

  test.each([
    ['refresh token and scope are null', '"expires_in":60,"refresh_token":null,"scope":null,"id_token":null', 65_000],
    ['lifetime is null', '"expires_in":null', 65_000],
    [
      'refresh token is empty, with an ID token that nobody needs',
      '"expires_in":60,"refresh_token":"","id_token":"x"',
      65_000,
    ],
  ])('whose %s is accepted', async (_what, members, expiresAtMs) => {
    const { fetch } = await endpoint(200, `{"access_token":"t","token_type":"Bearer",${members}}`);
    expect(await fetch()).toEqual({ value: 't', expiresAtMs });
  });

  test.for([
    [
      'rejects the client',
      401,
      '{"error":"invalid_client"}',
      'LOGIN_REFUSED',
      /refuses the client 'worker-1' \(invalid_client\)/,
    ],
    ['rejects the scope', 400, '{"error":"invalid_scope"}', 'LOGIN_REFUSED', /invalid_scope/],
    ['is down', 503, 'sorry', 'UNREACHABLE', /KAFKA_OAUTH_TOKEN_URL/],
    ['is not a token endpoint', 200, '<html>', 'UNREACHABLE', /KAFKA_OAUTH_TOKEN_URL/],
    [
      'rejects the client, with null',
      401,
      '{"error":"invalid_client","error_uri":null}',
      'LOGIN_REFUSED',
      /invalid_client/,
    ],
    ['answers null', 200, 'null', 'UNREACHABLE', /KAFKA_OAUTH_TOKEN_URL/],
    ['has null for a token', 200, '{"access_token":null,"token_type":"Bearer"}', 'UNREACHABLE', /access_token/],
    ['answers nothing', 204, '', 'UNREACHABLE', /KAFKA_OAUTH_TOKEN_URL/],
    ['answers without a token', 200, '{"token_type":"Bearer"}', 'UNREACHABLE', /KAFKA_OAUTH_TOKEN_URL/],
    ['repeats the secret', 500, SECRET, 'UNREACHABLE', /KAFKA_OAUTH_TOKEN_URL/],
  ] as const)('that %s gets its own error, without the secret', async ([, status, body, errorCode, said]) => {
    const { fetch } = await endpoint(status, body);
    const error = await fetch().catch((thrown: Error) => thrown);
    expect([kafkaErrorCode(error), (error as Error).message]).toEqual([errorCode, expect.stringMatching(said)]);
    expect((error as Error).message).not.toContain(SECRET);
  });

  test('that redirects is not followed, since the secret would go there', async () => {
    const { fetch, asked } = await endpoint(302, '', { location: '/other' });
    expect(kafkaErrorCode(await fetch().catch((thrown: Error) => thrown))).toBe('UNREACHABLE');
    expect(asked).toHaveLength(1);
  });

  test("that can't be reached is named", async () => {
    const settings = { tokenUrl: 'http://127.0.0.1:1/token', clientId: 'worker', clientSecret: () => SECRET };
    const error = await fetchToken(settings, () => 0).catch((thrown: Error) => thrown);
    expect((error as Error).message).toMatch(/ECONNREFUSED.*check KAFKA_OAUTH_TOKEN_URL/);
  });
});

describe('a login to MSK', () => {
  test("uses the signer's token, for as long as it is valid", async () => {
    const signer = { generateAuthToken: async ({ region }: { region: string }) => ({ token: region, expiryTime: 7 }) };
    expect(await signMskToken('eu-central-1', async () => signer)).toEqual({ value: 'eu-central-1', expiresAtMs: 7 });
  });

  test("without the signer's package names the command that installs it", async () => {
    const error = await signMskToken('eu-central-1', () => Promise.reject(new Error('not found'))).catch(
      (e: Error) => e,
    );
    expect([kafkaErrorCode(error), (error as Error).message]).toEqual([
      'LOGIN_REFUSED',
      expect.stringMatching(/npm install aws-msk-iam-sasl-signer-js/),
    ]);
  });

  test('without credentials names the region and the credentials', async () => {
    const signer = { generateAuthToken: () => Promise.reject(new Error('no credentials')) };
    const error = await signMskToken('eu-central-1', async () => signer).catch((thrown: Error) => thrown);
    expect([kafkaErrorCode(error), (error as Error).message]).toEqual([
      'UNREACHABLE',
      expect.stringMatching(/no credentials.*KAFKA_AWS_REGION/),
    ]);
  });
});

describe('the signature of a login to MSK', () => {
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
    expect(parameters['X-Amz-Credential']).toMatch(
      new RegExp(`^${KEY_ID}/\\d{8}/${REGION}/kafka-cluster/aws4_request$`),
    );
    expect(parameters['X-Amz-Signature']).toBe(signatureOf(url));
    expect(expiresAtMs).toBeGreaterThan(fromMs + 800_000);
    expect(expiresAtMs).toBeLessThanOrEqual(untilMs + 900_000);
  });
});

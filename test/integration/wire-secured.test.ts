import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { installKafka } from '../../ops/dev/kafka-install.ts';
import { startKafka } from '../../ops/dev/kafka-process.ts';
import { cacheDir } from '../../ops/dev/paths.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { run } from '../../ops/dev/run.ts';
import type { ConnectionConfig } from '../../src/kafka/wire/connection-config.ts';
import { kafkaErrorCode } from '../../src/kafka/wire/kafka-error.ts';
import { dialerOf } from '../../src/kafka/wire/kafkajs-dialer.ts';
import type { BrokerAddress, BrokerLink } from '../../src/kafka/wire/port.ts';
import { type KafkaSettings, kafkaDialer, unreachable } from '../../src/kafka/wire/settings.ts';
import { Authority } from '../support/certificates.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import { batchOf, only } from '../support/wire-contract/stage.ts';

const USER = 'id-client';
const PASSWORD = 'kafka-pass';
const TOPIC = 'secured';
/** A session this short is renewed before nearly every call. */
const SESSION_MS = 1_500;
const why = whyNoProcesses('kafka', 'openssl');

const stack = new AsyncDisposableStack();
let secured: BrokerAddress;
let plaintext: BrokerAddress;
let ca: string;
let stranger: string;

function properties([client, broker, controller]: readonly number[], keystore: string) {
  const module = 'org.apache.kafka.common.security';
  const listener = 'listener.name.client';
  return {
    listeners: `CLIENT://127.0.0.1:${client},BROKER://127.0.0.1:${broker},CONTROLLER://127.0.0.1:${controller}`,
    'listener.security.protocol.map': 'CLIENT:SASL_SSL,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT',
    [`${listener}.sasl.enabled.mechanisms`]: 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER',
    [`${listener}.plain.sasl.jaas.config`]: `${module}.plain.PlainLoginModule required user_${USER}="${PASSWORD}";`,
    [`${listener}.scram-sha-256.sasl.jaas.config`]: `${module}.scram.ScramLoginModule required;`,
    [`${listener}.scram-sha-512.sasl.jaas.config`]: `${module}.scram.ScramLoginModule required;`,
    [`${listener}.oauthbearer.sasl.jaas.config`]: `${module}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
    [`${listener}.plain.connections.max.reauth.ms`]: String(SESSION_MS),
    [`${listener}.ssl.keystore.type`]: 'PEM',
    [`${listener}.ssl.keystore.location`]: keystore,
  };
}

/** Stores the passwords for SCRAM in the broker, which accepts one mechanism at a time. */
async function addScramUser(): Promise<void> {
  const { env } = process;
  const libs = await installKafka(env, { cache: cacheDir(env), log: () => {}, signal: undefined });
  const of = ['--entity-type', 'users', '--entity-name', USER, '--alter', '--add-config'];
  const to = ['--bootstrap-server', `${plaintext.host}:${plaintext.port}`];
  for (const bits of [256, 512]) {
    const password = `SCRAM-SHA-${bits}=[password=${PASSWORD}]`;
    await run({
      command: 'java',
      args: ['-cp', `${libs}/*`, 'kafka.admin.ConfigCommand', ...to, ...of, password],
      env,
      purpose: 'the password of a user',
      timeoutMs: 60_000,
    });
  }
}

beforeAll(async () => {
  if (why !== undefined) return;
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-wire-'));
  stack.defer(() => rmSync(dir, { recursive: true, force: true }));
  const [authority, other] = [new Authority(dir), new Authority(mkdtempSync(join(dir, 'other-')))];
  [ca, stranger] = [readFileSync(authority.own.certFile, 'utf8'), readFileSync(other.own.certFile, 'utf8')];
  const ports = await freePorts(3);
  const { bothFile } = authority.issue('server');
  const kafka = await startKafka({ dir: join(dir, 'kafka'), ports, properties: properties(ports, bothFile) });
  stack.defer(() => kafka.stop());
  secured = { host: '127.0.0.1', port: ports[0] ?? 0 };
  plaintext = { host: '127.0.0.1', port: ports[1] ?? 0 };
  await addScramUser();
  const link = await dial({}, plaintext);
  const topics = [{ name: TOPIC, partitions: 1, replicas: 1, configs: {} }];
  await link.call('createTopics', { topics, timeoutMs: 10_000 });
  link.close();
});

afterAll(() => stack.disposeAsync());

function dial(config: ConnectionConfig, to = secured): Promise<BrokerLink> {
  return dialerOf({ clientId: 'wire', ...config }).dial(to, AbortSignal.timeout(20_000));
}

/** The error of a dial, or of the first call after it. */
async function refusal(config: ConnectionConfig, to = secured): Promise<string> {
  let link: BrokerLink | undefined;
  try {
    link = await dial(config, to);
    await link.call('metadata', { topics: [] });
  } catch (error) {
    return `${kafkaErrorCode(error)}: ${(error as Error).message}`;
  } finally {
    link?.close();
  }
  return 'the login succeeded';
}

/** Appends one batch, and reads it back. */
async function roundTrip(link: BrokerLink): Promise<void> {
  const batch = batchOf(['a secret']);
  const { errorCode, baseOffset } = await link.call('produce', {
    topic: TOPIC,
    partition: 0,
    batch,
    acks: -1,
    timeoutMs: 5_000,
  });
  expect(errorCode).toBeUndefined();
  const partitions = [{ topic: TOPIC, partition: 0, offset: baseOffset, maxBytes: 1_000 }];
  const answer = await link.call('fetch', {
    maxWaitMs: 1_000,
    maxBytes: 1_000,
    isolation: 'read_committed',
    partitions,
  });
  expect(only(answer.partitions).records.includes('a secret')).toBe(true);
}

const login = (mechanism: 'plain' | 'scram-sha-256' | 'scram-sha-512', password = PASSWORD) =>
  ({ mechanism, username: USER, password }) as NonNullable<ConnectionConfig['sasl']>;
/** A token without a signature: accepted by a broker that is configured so. */
const token = (sub: string) => {
  const part = (of: object) => Buffer.from(JSON.stringify(of)).toString('base64url');
  const nowS = Math.floor(Date.now() / 1_000);
  return `${part({ alg: 'none' })}.${part({ sub, iat: nowS, exp: nowS + 600 })}.`;
};

describe.skipIf(why !== undefined)(`brokers behind TLS and logins${why ? `: ${why}` : ''}`, () => {
  test.for(['plain', 'scram-sha-256', 'scram-sha-512'] as const)('accept a login by %s', async (mechanism) => {
    const link = await dial({ ssl: { ca: [ca] }, sasl: login(mechanism) });
    await roundTrip(link);
    link.close();
    await link.ended;
  });

  test('accept a login by token', async () => {
    const sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token(USER) }) } as const;
    const link = await dial({ ssl: { ca: [ca] }, sasl });
    await roundTrip(link);
    link.close();
  });

  test("accept a connection with a worker's settings", async () => {
    const sasl = { mechanism: 'scram-sha-512', username: USER, password: () => PASSWORD } as const;
    const dialer = kafkaDialer({ clientId: 'worker', tls: true, ca: () => ca, sasl });
    const link = await dialer.dial(secured, AbortSignal.timeout(20_000));
    await roundTrip(link);
    link.close();
  });

  test('serve one connection beyond its session, which is renewed', async () => {
    const link = await dial({ ssl: { ca: [ca] }, sasl: login('plain'), reauthenticationThreshold: 500 });
    let hasEnded = false;
    void link.ended.then(() => {
      hasEnded = true;
    });
    const untilMs = performance.now() + 3 * SESSION_MS;
    while (performance.now() < untilMs) {
      await Promise.all([roundTrip(link), roundTrip(link)]);
      await pause(100);
    }
    expect(hasEnded).toBe(false);
    link.close();
  });

  test.for([
    ['plain', /^LOGIN_REFUSED: .*Invalid username or password/],
    ['scram-sha-256', /^LOGIN_REFUSED: .*invalid credentials/],
    ['scram-sha-512', /^LOGIN_REFUSED: .*invalid credentials/],
  ] as const)('refuse a wrong password by %s', async ([mechanism, said]) => {
    const refused = await refusal({ ssl: { ca: [ca] }, sasl: login(mechanism, 'no-such-word') });
    expect(refused).toMatch(said);
    expect(refused).not.toContain('no-such-word');
  });

  test('are refused with a certificate of another authority, and the error names the settings to check', async () => {
    for (const ssl of [{ ca: [stranger] }, true]) {
      expect(await refusal({ ssl, sasl: login('plain') })).toMatch(/^UNREACHABLE: .*(verify|self.signed|issuer)/);
    }
    const settings: KafkaSettings = {
      brokers: [`${secured.host}:${secured.port}`],
      clientId: 'worker',
      tls: true,
      ca: () => stranger,
      sasl: { mechanism: 'plain', username: USER, password: () => PASSWORD },
    };
    const fault = await kafkaDialer(settings)
      .dial(secured, AbortSignal.timeout(20_000))
      .then(
        () => new Error('the login succeeded'),
        (error: unknown) => unreachable(error, settings),
      );
    expect([(fault as { code?: string }).code, fault.message]).toEqual([
      'KAFKA_UNAVAILABLE',
      expect.stringMatching(/check KAFKA_BROKERS, KAFKA_TLS and KAFKA_CA/),
    ]);
  });

  test('report a missing login, and TLS on one side only', async () => {
    expect(await refusal({ sasl: login('plain') })).toMatch(/^UNREACHABLE: .*does that port want TLS\?/);
    expect(await refusal({ ssl: { ca: [ca] } })).toMatch(/^CONNECTION_LOST: .*does this listener require a login\?/);
    expect(await refusal({ ssl: { ca: [ca] } }, plaintext)).toMatch(/^UNREACHABLE: .*does that port speak TLS\?/);
    expect(await refusal({ sasl: login('plain') }, plaintext)).toMatch(/^LOGIN_REFUSED: /);
  });
});

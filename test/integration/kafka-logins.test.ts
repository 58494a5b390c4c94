import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IdClient } from '../../src/client/index.ts';
import { type Certificate, CertificateAuthority } from '../support/certificates.ts';
import { LoadedWorker, readiness } from '../support/loaded-worker.ts';
import { Realm } from '../support/realm.ts';
import { clientRights, grant, SecuredKafka, workerRights } from '../support/secured-kafka.ts';
import { suiteServers } from '../support/servers.ts';
import { TokenServer } from '../support/token-server.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import type { LogLine } from '../support/worker-process.ts';

const USER = 'id-worker';
const PLAIN_PASSWORD = 'plain-pass';
const CLIENT_SECRET = 'client:secret';
const PARTITIONS = 2;
/** How often brokers demand a new login. */
const SESSION_MS = 3_000;
const SESSIONS = 3;
const TOKEN_LIFE_S = 6;
const ERROR_LEVEL = 50;
const WARN_LEVEL = 40;
const POLL = { timeout: 120_000, interval: 200 };
const SECURITY = 'org.apache.kafka.common.security';
const OAUTH = 'listener.name.client.oauthbearer';
const why = whyNoProcesses('kafka', 'etcd', 'openssl');

const stack = new AsyncDisposableStack();
let kafka: SecuredKafka;
let tokens: TokenServer;

beforeAll(async () => {
  if (why !== undefined) return;
  tokens = stack.use(
    await TokenServer.start({ clientId: USER, clientSecret: CLIENT_SECRET, audience: 'kafka', lifeS: TOKEN_LIFE_S }),
  );
  const login = `${SECURITY}.plain.PlainLoginModule required user_${USER}="${PLAIN_PASSWORD}";`;
  const sessions = ['plain', 'scram-sha-512', 'oauthbearer'].map((mechanism) => {
    return [`listener.name.client.${mechanism}.connections.max.reauth.ms`, String(SESSION_MS)];
  });
  const properties = {
    ...Object.fromEntries(sessions),
    'listener.name.client.sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-512,OAUTHBEARER',
    'listener.name.client.plain.sasl.jaas.config': login,
    [`${OAUTH}.sasl.jaas.config`]: `${SECURITY}.oauthbearer.OAuthBearerLoginModule required;`,
    [`${OAUTH}.sasl.server.callback.handler.class`]: `${SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler`,
    [`${OAUTH}.sasl.oauthbearer.jwks.endpoint.url`]: tokens.keysUrl,
    [`${OAUTH}.sasl.oauthbearer.expected.audience`]: 'kafka',
  };
  const javaFlags = [`-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=${tokens.keysUrl}`];
  kafka = stack.use(await SecuredKafka.start({ properties, javaFlags }));
});

afterAll(() => stack.disposeAsync());

/** The settings of a worker for each kind of login. */
const LOGINS: Record<string, () => Record<string, string>> = {
  plain: () => ({ KAFKA_SASL_USERNAME: USER, KAFKA_SASL_PASSWORD: PLAIN_PASSWORD }),
  'scram-sha-512': () => ({ KAFKA_SASL_USERNAME: USER, KAFKA_SASL_PASSWORD_FILE: secretFile('password') }),
  oauthbearer: () => ({
    KAFKA_OAUTH_TOKEN_URL: tokens.tokenUrl,
    KAFKA_OAUTH_CLIENT_ID: USER,
    KAFKA_OAUTH_CLIENT_SECRET_FILE: secretFile('client-secret'),
    KAFKA_OAUTH_SCOPE: 'kafka',
  }),
};

const ofKafka = ({ component, code, reason }: LogLine) =>
  component === 'kafka' || [code, reason].some((name) => String(name).startsWith('KAFKA_'));

const secretFile = (name: string) => join(kafka.dir, name);

async function start(env: Record<string, string>): Promise<LoadedWorker> {
  const realm = await Realm.create({ ...suiteServers(), brokers: [kafka.plaintext] }, { partitions: PARTITIONS });
  await grant(realm, Object.values(workerRights(realm, USER)).flat());
  return await LoadedWorker.under(realm, {
    KAFKA_BROKERS: kafka.byLogin,
    KAFKA_TLS: '1',
    KAFKA_CA_FILE: kafka.authority.own.certFile,
    ...env,
  });
}

describe.skipIf(why !== undefined)(`logins under load${why ? `: ${why}` : ''}`, () => {
  test.for(Object.keys(LOGINS))(
    'by %s are renewed for each session, without an effect on requests',
    async (mechanism) => {
      if (mechanism === 'scram-sha-512') await kafka.setPassword(USER, 'first');
      writeFileSync(secretFile('password'), 'first');
      writeFileSync(secretFile('client-secret'), CLIENT_SECRET);
      await using stage = await start({ KAFKA_SASL_MECHANISM: mechanism, ...LOGINS[mechanism]?.() });
      const { worker } = stage;
      const from = worker.lines.length;
      const asked = tokens.asked;
      const begunMs = performance.now();
      while (performance.now() - begunMs < SESSIONS * SESSION_MS) {
        await stage.answered(5);
        await stage.ready();
      }
      await stage.check();
      const warnings = worker.lines.slice(from).filter(({ level }) => Number(level) >= WARN_LEVEL);
      // A busy machine also pauses the process, and makes etcd late: only Kafka knows of logins.
      expect(warnings.filter(ofKafka)).toEqual([]);
      if (mechanism === 'oauthbearer') {
        const most = (performance.now() - begunMs) / (TOKEN_LIFE_S * 400) + 8;
        expect(tokens.asked - asked).toBeGreaterThan(1);
        expect(tokens.asked - asked).toBeLessThan(most);
      }
    },
  );

  test('with a wrong password or CA are reported with the variable, and succeed once the file is right', async () => {
    await kafka.setPassword(USER, 'first-password');
    const [password, ca] = [secretFile('password'), secretFile('ca')];
    writeFileSync(password, 'first-password\n');
    writeFileSync(ca, kafka.authority.own.certPem);
    const login = LOGINS['scram-sha-512']?.();
    await using stage = await start({
      KAFKA_SASL_MECHANISM: 'scram-sha-512',
      ...login,
      KAFKA_CA_FILE: ca,
    });
    const { worker } = stage;
    const from = worker.lines.length;
    await kafka.setPassword(USER, 'second-password');
    expect(await stage.stopped('KAFKA_REFUSED')).toMatch(/'id-worker'.*KAFKA_SASL_PASSWORD/);
    expect(await worker.metric('idalloc_kafka_refused{resource="login"}')).toBe(1);
    await worker.line(({ code }) => code === 'KAFKA_REFUSED', from);
    const refusals = () =>
      worker.lines.slice(from).filter(({ level, code }) => level === ERROR_LEVEL && code === 'KAFKA_REFUSED');
    expect(refusals()).toHaveLength(1);

    const { certPem: other } = new CertificateAuthority(kafka.mkdir()).own;
    writeFileSync(ca, other);
    writeFileSync(password, 'second-password\n');
    await expect.poll(async () => (await readiness(worker)).detail, POLL).toMatch(/certificate.*KAFKA_CA/);

    writeFileSync(ca, kafka.authority.own.certPem);
    await stage.ready();
    expect(await worker.metric('idalloc_kafka_refused{resource="login"}')).toBe(0);
    await stage.check();
    expect(JSON.stringify(worker.lines)).not.toMatch(/(first|second)-password/);
  });

  test('of the client library go on with what `sasl()` returns, after the old password was revoked and the sessions have ended', async () => {
    const user = 'orders';
    await kafka.setPassword(user, 'first');
    await using realm = await Realm.create(
      { ...suiteServers(), brokers: [kafka.plaintext] },
      { partitions: PARTITIONS },
    );
    await grant(realm, clientRights(realm, user));
    await realm.worker({}).ready();
    const { requestTopic, replyTopic } = realm;
    const ca = readFileSync(kafka.authority.own.certFile);
    const faults: string[] = [];
    const used: string[] = [];
    let password = 'first';
    await using client = await IdClient.connect({
      brokers: [kafka.byLogin],
      ssl: () => ({ ca }),
      sasl: async () => {
        used.push(password);
        return { mechanism: 'scram-sha-512', username: user, password };
      },
      ...{ requestTopic, replyTopic, prefetch: false, timeoutMs: POLL.timeout },
      hooks: { onError: ({ message }) => faults.push(message) },
    });
    await client.request({ count: 1 });
    expect(faults).toEqual([]);

    await kafka.setPassword(user, 'second');
    await expect.poll(() => faults.join(), POLL).toMatch(/the brokers reject this client.*check .* ssl and sasl/);
    const waiting = client.request({ count: 1 });
    password = 'second';
    expect((await waiting).batch.ranges).toHaveLength(1);
    const [refused, logins] = [faults.length, used.length];
    expect(used).toContain('second');
    await expect.poll(() => used.length, POLL).toBeGreaterThan(logins + SESSIONS); // further sessions
    await client.request({ count: 1 });
    expect(faults.slice(refused)).toEqual([]);
  });

  test('of a client that the token endpoint refuses are reported, and succeed again by themselves', async () => {
    writeFileSync(secretFile('client-secret'), CLIENT_SECRET);
    await using stage = await start({ KAFKA_SASL_MECHANISM: 'oauthbearer', ...LOGINS.oauthbearer?.() });
    tokens.refuses = true;
    expect(await stage.stopped('KAFKA_REFUSED')).toMatch(/'id-worker'.*invalid_client.*KAFKA_OAUTH_CLIENT_SECRET/);
    tokens.refuses = false;
    await stage.ready();
    await stage.check();
    expect(JSON.stringify(stage.worker.lines)).not.toContain(CLIENT_SECRET);
  });

  test('by certificate are accepted where brokers require one, and an expiring certificate can be replaced on disk', async () => {
    const [cert, key] = [secretFile('cert'), secretFile('key')];
    const show = ({ certFile, keyFile }: Certificate) => {
      copyFileSync(certFile, cert);
      copyFileSync(keyFile, key);
    };
    show(kafka.authority.issue(USER));
    await using stage = await start({
      KAFKA_BROKERS: kafka.byCertificate,
      KAFKA_CERT_FILE: cert,
      KAFKA_KEY_FILE: key,
    });
    show(kafka.authority.issueExpired(USER));
    await kafka.frozen(() => stage.unready('KAFKA_UNAVAILABLE')); // which ends the connections
    expect(await stage.stopped('KAFKA_REFUSED')).toMatch(/certificate.*KAFKA_CERT/i);
    show(kafka.authority.issue(USER));
    await stage.ready();
    await stage.check();
  });

  test('to a host that the certificate does not name are reported, and retried', async () => {
    await using realm = await Realm.create({ ...suiteServers(), brokers: [kafka.plaintext] });
    const worker = realm.worker({
      KAFKA_BROKERS: kafka.byCertificate.replace('127.0.0.1', 'localhost'),
      KAFKA_TLS: '1',
      KAFKA_CA_FILE: kafka.authority.own.certFile,
    });
    await expect
      .poll(() => readiness(worker), POLL)
      .toMatchObject({ reason: 'KAFKA_REFUSED', detail: expect.stringMatching(/altnames.*KAFKA_BROKERS/) });
  });

  test.for([
    ['no certificate', () => ({})],
    [
      'a certificate of another CA',
      () => {
        const { certFile, keyFile } = new CertificateAuthority(kafka.mkdir()).issue(USER);
        return { KAFKA_CERT_FILE: certFile, KAFKA_KEY_FILE: keyFile };
      },
    ],
  ] as const)(
    'with %s end the start where brokers require a certificate, and the variable is named',
    async ([, env]) => {
      await using realm = await Realm.create({ ...suiteServers(), brokers: [kafka.plaintext] });
      const worker = realm.worker({
        KAFKA_BROKERS: kafka.byCertificate,
        KAFKA_TLS: '1',
        KAFKA_CA_FILE: kafka.authority.own.certFile,
        ...env(),
      });
      expect(await worker.ended()).toMatchObject({ code: 78 });
      expect(JSON.stringify(worker.lines)).toMatch(/CONFIG_INVALID: .*KAFKA_CERT/);
    },
  );
});

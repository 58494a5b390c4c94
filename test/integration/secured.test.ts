import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Etcd3, type IOptions, Range } from 'etcd3';
import kafkajs, { type AclEntry } from 'kafkajs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startEtcd } from '../../ops/dev/etcd-process.ts';
import { startKafka } from '../../ops/dev/kafka-process.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { IdClient } from '../../src/client/index.ts';
import { countIds } from '../../src/codec/id-batch.ts';
import { claimKey } from '../../src/identity/bindings.ts';
import { Authority, type Certificate } from '../support/certificates.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import { DATACENTER_ID, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const USER = 'id-worker';
const PASSWORD = 'kafka-pass';
/** A service of somebody else. */
const CLIENT = 'id-client';
const CLIENT_PASSWORD = 'client-pass';
/** Somebody who runs commands. */
const OPERATOR = 'id-operator';
const OPERATOR_PASSWORD = 'operator-pass';
const ETCD_PASSWORD = 'etcd-pass';
const ETCD_PREFIX = '/secured';
const PARTITIONS = 2;
const ERROR_LEVEL = 50;
const FATAL_LEVEL = 60;
const why = whyNoProcesses('kafka', 'etcd', 'openssl');

const stack = new AsyncDisposableStack();
let realm: Realm;
let worker: WorkerProcess;
let replies: Followed;
/** What a worker needs to be let in. */
let env: Record<string, string>;

/** Users come by TLS with a password; the test itself, and the broker, by a listener of their own as nobody. */
function secured([client, broker, controller]: readonly number[], { bothFile }: Certificate) {
  const login = 'org.apache.kafka.common.security.plain.PlainLoginModule required';
  const passwords = { [USER]: PASSWORD, [CLIENT]: CLIENT_PASSWORD, [OPERATOR]: OPERATOR_PASSWORD };
  const users = Object.entries(passwords)
    .map(([user, password]) => `user_${user}="${password}"`)
    .join(' ');
  return {
    listeners: `CLIENT://127.0.0.1:${client},BROKER://127.0.0.1:${broker},CONTROLLER://127.0.0.1:${controller}`,
    'listener.security.protocol.map': 'CLIENT:SASL_SSL,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'listener.name.client.sasl.enabled.mechanisms': 'PLAIN',
    'listener.name.client.plain.sasl.jaas.config': `${login} ${users};`,
    'listener.name.client.ssl.keystore.type': 'PEM',
    'listener.name.client.ssl.keystore.location': bothFile,
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'super.users': 'User:ANONYMOUS',
  };
}

/** A rule for a user, that allows unless told otherwise. */
function rule(
  of: Pick<AclEntry, 'resourceType' | 'resourceName' | 'resourcePatternType' | 'operation'>,
  permissionType: number = kafkajs.AclPermissionTypes.ALLOW,
  user = USER,
): AclEntry {
  return { ...of, principal: `User:${user}`, host: '*', permissionType };
}

/** What README says that the client library must be allowed. */
function clientAcls({ requestTopic, replyTopic }: Realm): AclEntry[] {
  const { AclResourceTypes: on, AclOperationTypes: may, ResourcePatternTypes: as } = kafkajs;
  const place = { resourceType: on.TOPIC, resourcePatternType: as.LITERAL };
  return [
    { ...place, resourceName: requestTopic, operation: may.WRITE },
    { ...place, resourceName: replyTopic, operation: may.READ },
  ].map((of) => rule(of, kafkajs.AclPermissionTypes.ALLOW, CLIENT));
}

/** What README says that somebody must be allowed who runs commands that read topics. */
function readerAcls({ requestTopic, replyTopic, ledgerTopic, deadLetterTopic }: Realm): AclEntry[] {
  const { AclResourceTypes: on, AclOperationTypes: may, ResourcePatternTypes: as } = kafkajs;
  return [requestTopic, replyTopic, ledgerTopic, deadLetterTopic].map((resourceName) => {
    const of = { resourceType: on.TOPIC, resourcePatternType: as.LITERAL, resourceName, operation: may.READ };
    return rule(of, kafkajs.AclPermissionTypes.ALLOW, OPERATOR);
  });
}

/** What README says that a worker must be allowed. */
function aclsOf({ requestTopic, ledgerTopic, deadLetterTopic, witnessTopic, env: names, groupId }: Realm): AclEntry[] {
  const { AclResourceTypes: on, AclOperationTypes: may, ResourcePatternTypes: as } = kafkajs;
  const allow = (
    resourceType: number,
    resourceName: string,
    resourcePatternType: number,
    operations: readonly number[],
  ): AclEntry[] => operations.map((operation) => rule({ resourceType, resourceName, resourcePatternType, operation }));
  return [
    ...allow(on.TOPIC, requestTopic, as.LITERAL, [may.READ, may.WRITE, may.DESCRIBE_CONFIGS]),
    ...allow(on.TOPIC, ledgerTopic, as.LITERAL, [may.READ, may.WRITE, may.DESCRIBE_CONFIGS]),
    ...allow(on.TOPIC, witnessTopic, as.LITERAL, [may.READ, may.WRITE, may.DESCRIBE_CONFIGS]),
    ...allow(on.TOPIC, deadLetterTopic, as.LITERAL, [may.WRITE, may.DESCRIBE_CONFIGS]),
    ...allow(on.TOPIC, `${names.REPLY_TOPIC_PREFIX}`, as.PREFIXED, [may.WRITE]),
    ...allow(on.GROUP, groupId, as.LITERAL, [may.READ]),
  ];
}

/** A user that may do what it likes under its prefix, and claim its datacenter, and nothing else. */
async function secureEtcd(
  hosts: string,
  credentials: NonNullable<IOptions['credentials']>,
  idSpace: string,
): Promise<void> {
  const client = new Etcd3({ hosts, credentials });
  try {
    await client.role('root').create();
    await client.user('root').create(ETCD_PASSWORD);
    await client.user('root').addRole('root');
    await client.role('worker').create();
    await client.role('worker').grant({ permission: 'Readwrite', range: Range.prefix(`${ETCD_PREFIX}/`) });
    const key = claimKey(idSpace, DATACENTER_ID);
    await client.role('worker').grant({ permission: 'Readwrite', key });
    await client.user(USER).create(ETCD_PASSWORD);
    await client.user(USER).addRole('worker');
    await client.auth.authEnable();
  } finally {
    client.close();
  }
}

beforeAll(async () => {
  if (why !== undefined) return;
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-secured-'));
  stack.defer(() => rmSync(dir, { recursive: true, force: true }));
  const authority = new Authority(dir);
  const [server, own] = [authority.issue('server'), authority.issue('worker')];
  const { certFile: ca } = authority.own;
  const ports = await freePorts(3);
  const [kafka, etcd] = await Promise.all([
    startKafka({ dir: join(dir, 'kafka'), ports, properties: secured(ports, server) }),
    startEtcd({ dir: join(dir, 'etcd'), tls: { ca, cert: server.certFile, key: server.keyFile } }),
  ]);
  stack.defer(() => Promise.all([kafka.stop(), etcd.stop()]).then(() => undefined));
  realm = stack.use(
    await Realm.create({ ...suiteServers(), brokers: [`127.0.0.1:${ports[1]}`] }, { partitions: PARTITIONS }),
  );
  const [endpoint = ''] = etcd.endpoints;
  const credentials = {
    rootCertificate: readFileSync(ca),
    certChain: readFileSync(own.certFile),
    privateKey: readFileSync(own.keyFile),
  };
  await secureEtcd(endpoint, credentials, realm.env.ID_SPACE ?? '');
  await realm.admin.createAcls({ acl: [...aclsOf(realm), ...clientAcls(realm), ...readerAcls(realm)] });
  env = {
    KAFKA_BROKERS: kafka.brokers.join(),
    KAFKA_TLS: '1',
    KAFKA_CA_FILE: ca,
    KAFKA_SASL_MECHANISM: 'plain',
    KAFKA_SASL_USERNAME: USER,
    KAFKA_SASL_PASSWORD: PASSWORD,
    ETCD_ENDPOINTS: endpoint,
    ETCD_PREFIX,
    ETCD_CA_FILE: ca,
    ETCD_CERT_FILE: own.certFile,
    ETCD_KEY_FILE: own.keyFile,
    ETCD_USERNAME: USER,
    ETCD_PASSWORD,
  };
  replies = await realm.follow();
  worker = realm.worker(env);
});

afterAll(() => stack.disposeAsync());

function connect(password: string): Promise<IdClient> {
  const { KAFKA_BROKERS = '', KAFKA_CA_FILE = '' } = env;
  const kafka = {
    brokers: KAFKA_BROKERS.split(','),
    ssl: { ca: [readFileSync(KAFKA_CA_FILE)] },
    sasl: { mechanism: 'plain' as const, username: CLIENT, password },
  };
  const { requestTopic, replyTopic } = realm;
  return IdClient.connect({ kafka, requestTopic, replyTopic, prefetch: false });
}

/** Runs a command as somebody who may read. */
function command(args: readonly string[], more: Record<string, string> = {}): ReturnType<typeof runIdalloc> {
  const login = { KAFKA_SASL_USERNAME: OPERATOR, KAFKA_SASL_PASSWORD: OPERATOR_PASSWORD };
  return runIdalloc(args, { ...realm.env, ...env, ...login, ...more });
}

/** Ends the worker, and resolves with its last words. */
async function refusal(more: Record<string, string>): Promise<{ code: number | null; said: string }> {
  const refused = realm.worker({ ...env, ...more });
  const { code } = await refused.ended();
  return { code, said: String(refused.lines.find(({ level }) => level === FATAL_LEVEL)?.msg ?? refused.errors) };
}

describe.skipIf(why !== undefined)(`servers with logins, certificates and rights${why ? `: ${why}` : ''}`, () => {
  test('a worker with the rights that README lists answers, without an error for the operator', async () => {
    await worker.ready();
    await realm.send([{ correlationId: 'let-in', count: 3, partition: 0 }]);
    expect('batch' in (await replies.reply('let-in')).reply).toBe(true);
    await realm.sendRaw([{ key: 'bad', value: Buffer.of(1, 2, 3), partition: 0 }]);
    await (await realm.follow(realm.deadLetterTopic)).until('a dead letter', (seen) => seen.length > 0);
    await expect.poll(async () => [...(await realm.committed()).values()], { timeout: 30_000 }).toContain(2);
    expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
  });

  test('a reply topic that the worker may not write to fails alone, and is named', async () => {
    const forbidden = `${realm.env.REPLY_TOPIC_PREFIX}forbidden`;
    await realm.createTopic(forbidden);
    const { AclResourceTypes, ResourcePatternTypes, AclOperationTypes, AclPermissionTypes } = kafkajs;
    const write = {
      resourceType: AclResourceTypes.TOPIC,
      resourceName: forbidden,
      resourcePatternType: ResourcePatternTypes.LITERAL,
      operation: AclOperationTypes.WRITE,
    };
    await realm.admin.createAcls({ acl: [rule(write, AclPermissionTypes.DENY)] });
    const letters = await realm.follow(realm.deadLetterTopic);
    const letterOf = () => letters.seen.find(({ message }) => String(message.key) === 'forbidden');
    await worker.ready();
    await realm.send([
      { correlationId: 'forbidden', count: 3, partition: 1, replyTopic: forbidden },
      { correlationId: 'beside', count: 3, partition: 1 },
    ]);
    expect('batch' in (await replies.reply('beside')).reply).toBe(true);
    await letters.until('the dead letter', () => letterOf() !== undefined);
    const headers = letterOf()?.message.headers ?? {};
    expect(String(headers['kafka_dlt-exception-fqcn'])).toBe('REPLY_UNDELIVERABLE');
    expect(String(headers['kafka_dlt-exception-message'])).toContain(forbidden);
  });

  test('a client with the rights that README lists is answered', async () => {
    await worker.ready();
    await using client = await connect(CLIENT_PASSWORD);
    const { batch } = await client.request({ count: 3 });
    expect(countIds(batch.ranges)).toBe(3);
  });

  test('commands read topics with the rights that README lists, none of them on a group', async () => {
    await worker.ready();
    await realm.send([{ correlationId: 'to-trace', count: 1, partition: 0 }]);
    const { first } = batchOf(await replies.reply('to-trace')).ranges[0] ?? { first: 0n };
    const audit = await command(['audit', '--json']);
    expect([audit.code, JSON.parse(audit.stdout).findings]).toEqual([0, []]);
    const trace = await command(['trace', String(first), '--json']);
    expect(JSON.parse(trace.stdout)).toMatchObject({ correlation_id: 'to-trace', replies: [{ has_id: true }] });
    expect((await command(['deadletters', 'list', '--json'])).code).toBe(0);
  });

  test('replay says which right it lacks on the group, and works with it', async () => {
    await worker.ready();
    const refused = await command(['replay', '--from', '1h', '--dry-run']);
    expect(refused).toMatchObject({ code: 69, stderr: expect.stringMatching(/group/i) });
    const { AclResourceTypes, ResourcePatternTypes, AclOperationTypes, AclPermissionTypes } = kafkajs;
    const read = {
      resourceType: AclResourceTypes.GROUP,
      resourceName: realm.groupId,
      resourcePatternType: ResourcePatternTypes.LITERAL,
      operation: AclOperationTypes.READ,
    };
    await realm.admin.createAcls({ acl: [rule(read, AclPermissionTypes.ALLOW, OPERATOR)] });
    const dryRun = async () => (await command(['replay', '--from', '1h', '--dry-run'])).code;
    await expect.poll(dryRun, { timeout: 30_000 }).toBe(0);
  });

  test('a command whose password is wrong ends at once, and says which variables to look at', async () => {
    const { code, stderr } = await command(['audit'], { KAFKA_SASL_PASSWORD: 'wrong' });
    expect({ code, stderr }).toMatchObject({
      code: 78,
      stderr: expect.stringMatching(/'id-operator'.*KAFKA_SASL_PASSWORD/),
    });
  });

  test('a client whose password is wrong is refused at once', async () => {
    const beganMs = performance.now();
    await expect(connect('wrong')).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/authentication failed.*check .*ssl and sasl/i),
    });
    expect(performance.now() - beganMs).toBeLessThan(5_000);
  });

  test('a wrong password for Kafka ends the start, and tells which variables to look at', async () => {
    const { code, said } = await refusal({ KAFKA_SASL_PASSWORD: 'wrong' });
    expect(said).toMatch(/^CONFIG_INVALID: .*'id-worker'.*KAFKA_SASL_PASSWORD/);
    expect(said).not.toContain('wrong');
    expect(code).toBe(78);
  });

  test('a broker whose certificate is not trusted is waited for, and the log names the cause and the variable', async () => {
    const waiting = realm.worker({ ...env, KAFKA_CA_FILE: '' });
    const { error } = await waiting.line(({ msg }) => msg === 'waiting for Kafka');
    expect(error).toMatch(/^KAFKA_UNAVAILABLE: .*verify the first certificate.*KAFKA_CA/);
    expect((await waiting.ops('/readyz')).status).toBe(503);
    await waiting.stop();
  });

  test.for([
    ['a wrong password', { ETCD_PASSWORD: 'wrong' }, /invalid user ID or password/],
    ['no certificate', { ETCD_CERT_FILE: '', ETCD_KEY_FILE: '' }, /certificate|No connection|UNAVAILABLE/],
    ['a prefix that the user has no right to', { ETCD_PREFIX: '/elsewhere' }, /permission denied/],
    ['a datacenter that the user may not claim', { DATACENTER_ID: '5' }, /datacenter\/5.*permission denied/],
  ] as const)('%s for etcd leaves the worker without an identity, and its log tells why', async ([, more, cause]) => {
    const refused = realm.worker({ ...env, ...more });
    await refused.line(({ msg, error }) => /etcd|namespace/.test(String(msg)) && cause.test(String(error)));
    expect(refused.gate()).not.toBe('open');
    expect((await refused.ops('/readyz')).status).toBe(503);
    await refused.stop();
  });
});

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Etcd3, type IOptions, Range } from 'etcd3';
import kafkajs from 'kafkajs';
import { startEtcd } from '../../ops/bare/etcd.ts';
import { startKafka } from '../../ops/bare/kafka.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import type { EtcdRight } from '../../src/cli/namespace/namespace-run.ts';
import { type Certificate, CertificateAuthority } from './certificates.ts';
import { Realm } from './realm.ts';
import { suiteServers } from './servers.ts';
import { runIdalloc } from './worker-process.ts';

/** The users of Kafka and, except for the client, of etcd. The client is another team's service. */
export const USERS = {
  worker: { name: 'id-worker', password: 'kafka-pass' },
  client: { name: 'id-client', password: 'client-pass' },
  operator: { name: 'id-operator', password: 'operator-pass' },
  admin: { name: 'id-admin', password: 'admin-pass' },
} as const;
export type User = keyof typeof USERS;

const ETCD_PASSWORD = 'etcd-pass';
const ETCD_PREFIX = '/secured';
const PARTITIONS = 2;

/** Servers that deny everything by default, with users who have exactly the rights that `topics acls` grants. */
export interface SecuredServers {
  readonly realm: Realm;
  /** The variables with which a user logs in. */
  login(user: User): Record<string, string>;
  /** The variables for full access, through a separate listener. */
  readonly superUser: Record<string, string>;
}

/** Properties of the broker: users connect with TLS and a password; the test and the broker use a separate listener. */
function secured([client, broker, controller]: readonly number[], { bothFile }: Certificate) {
  const login = 'org.apache.kafka.common.security.plain.PlainLoginModule required';
  const users = Object.values(USERS)
    .map(({ name, password }) => `user_${name}="${password}"`)
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

/** Runs a command that must succeed. */
async function done(args: readonly string[], env: Record<string, string>): Promise<string> {
  const { code, stdout, stderr } = await runIdalloc(args, env);
  if (code !== 0) throw new Error(`idalloc ${args.join(' ')} exited with ${code}: ${stderr}`);
  return stdout;
}

/** Denies a user one operation on a topic, whatever was granted. */
export async function deny({ admin }: Realm, user: User, topic: string, operation: 'WRITE' | 'READ'): Promise<void> {
  const { AclResourceTypes, ResourcePatternTypes, AclOperationTypes, AclPermissionTypes } = kafkajs;
  const rule = {
    resourceType: AclResourceTypes.TOPIC,
    resourceName: topic,
    resourcePatternType: ResourcePatternTypes.LITERAL,
    operation: AclOperationTypes[operation],
    principal: `User:${USERS[user].name}`,
    host: '*',
    permissionType: AclPermissionTypes.DENY,
  };
  await admin.createAcls({ acl: [rule] });
}

/** Creates a role for each user, with the commands that `namespace rights` prints. */
async function secureEtcd(
  hosts: string,
  credentials: NonNullable<IOptions['credentials']>,
  env: Record<string, string>,
): Promise<void> {
  const client = new Etcd3({ hosts, credentials });
  try {
    await client.role('root').create();
    await client.user('root').create(ETCD_PASSWORD);
    await client.user('root').addRole('root');
    for (const role of ['worker', 'operator', 'admin'] as const) {
      const user = USERS[role].name;
      const printed = await done(['namespace', 'rights', '--user', user, '--role', role, '--json'], env);
      await client.role(user).create();
      for (const { permission, key, isPrefix } of JSON.parse(printed).rights as readonly EtcdRight[]) {
        const kind = permission === 'read' ? 'Read' : 'Readwrite';
        await client.role(user).grant({ permission: kind, ...(isPrefix ? { range: Range.prefix(key) } : { key }) });
      }
      await client.user(user).create(ETCD_PASSWORD);
      await client.user(user).addRole(user);
    }
    await client.auth.authEnable();
  } finally {
    client.close();
  }
}

/** Starts a separate Kafka and etcd, which the stack stops. */
export async function startSecured(stack: AsyncDisposableStack): Promise<SecuredServers> {
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-secured-'));
  stack.defer(() => rmSync(dir, { recursive: true, force: true }));
  const authority = new CertificateAuthority(dir);
  const [server, own] = [authority.issue('server'), authority.issue('worker')];
  const { certFile: ca } = authority.own;
  const ports = await freePorts(3);
  const [kafka, etcd] = await Promise.all([
    startKafka({ dir: join(dir, 'kafka'), ports, properties: secured(ports, server) }),
    startEtcd({ dir: join(dir, 'etcd'), tls: () => ({ ca, cert: server.certFile, key: server.keyFile }) }),
  ]);
  stack.defer(() => Promise.all([kafka.stop(), etcd.stop()]).then(() => undefined));
  const brokers = [`127.0.0.1:${ports[1]}`];
  const realm = stack.use(await Realm.create({ ...suiteServers(), brokers }, { partitions: PARTITIONS }));
  const superUser = { ...realm.env, ETCD_PREFIX, KAFKA_BROKERS: brokers.join() };
  const [endpoint = ''] = etcd.endpoints;
  const credentials = {
    rootCertificate: readFileSync(ca),
    certChain: readFileSync(own.certFile),
    privateKey: readFileSync(own.keyFile),
  };
  const acls = (role: User, ...more: string[]) =>
    done(['topics', 'acls', '--principal', `User:${USERS[role].name}`, '--role', role, ...more, '--apply'], superUser);
  await Promise.all([
    acls('worker'),
    acls('client', '--reply-topic', realm.replyTopic),
    acls('operator'),
    acls('admin'),
    secureEtcd(endpoint, credentials, superUser),
  ]);
  const login = (user: User) => ({
    ...realm.env,
    KAFKA_BROKERS: kafka.brokers.join(),
    KAFKA_TLS: '1',
    KAFKA_CA_FILE: ca,
    KAFKA_SASL_MECHANISM: 'plain',
    KAFKA_SASL_USERNAME: USERS[user].name,
    KAFKA_SASL_PASSWORD: USERS[user].password,
    ETCD_ENDPOINTS: endpoint,
    ETCD_PREFIX,
    ETCD_CA_FILE: ca,
    ETCD_CERT_FILE: own.certFile,
    ETCD_KEY_FILE: own.keyFile,
    ETCD_USERNAME: USERS[user].name,
    ETCD_PASSWORD,
  });
  return { realm, login, superUser };
}

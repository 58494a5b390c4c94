import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import kafkajs, { type AclEntry } from 'kafkajs';
import { installKafka, startKafka } from '../../ops/bare/kafka.ts';
import { cacheDir } from '../../ops/dev/paths.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { run } from '../../ops/dev/run.ts';
import { aclRules, type Role, rightsOf } from '../../src/adapters/kafka/topics/rights.ts';
import type { AclRule } from '../../src/kafka/wire/topic-apis.ts';
import { type Certificate, CertificateAuthority } from './certificates.ts';
import type { Realm } from './realm.ts';

const SECURITY = 'org.apache.kafka.common.security';
const SCRAM_BITS = 512;

export interface SecuredOptions {
  readonly properties?: Readonly<Record<string, string>>;
  /** Flags of the broker's JVM. */
  readonly javaFlags?: readonly string[];
}

/**
 * A broker with an authorizer that denies by default. Users connect with TLS and a login or a client certificate. The
 * test, which may do everything, uses a separate listener without TLS and login.
 */
export class SecuredKafka implements AsyncDisposable {
  readonly dir: string;
  readonly authority: CertificateAuthority;
  readonly server: Certificate;
  /** The listener where users log in. */
  readonly byLogin: string;
  /** The listener that requires client certificates; the certificate's name is the user. */
  readonly byCertificate: string;
  readonly plaintext: string;
  readonly #libs: string;
  readonly #pid: number;
  readonly #stop: () => Promise<void>;

  private constructor(
    dir: string,
    ports: readonly number[],
    of: { authority: CertificateAuthority; server: Certificate; libs: string; pid: number; stop: () => Promise<void> },
  ) {
    this.dir = dir;
    const [login, broker, , certificate] = ports.map((port) => `127.0.0.1:${port}`);
    this.byLogin = login ?? '';
    this.plaintext = broker ?? '';
    this.byCertificate = certificate ?? '';
    this.authority = of.authority;
    this.server = of.server;
    this.#libs = of.libs;
    this.#pid = of.pid;
    this.#stop = of.stop;
  }

  static async start({ properties = {}, javaFlags = [] }: SecuredOptions = {}): Promise<SecuredKafka> {
    const { env } = process;
    const dir = mkdtempSync(join(tmpdir(), 'idalloc-secured-'));
    const authority = new CertificateAuthority(dir);
    const server = authority.issue('server');
    const ports = await freePorts(4);
    const libs = await installKafka(env, { cache: cacheDir(env), log: () => {}, signal: undefined });
    const kafka = await startKafka({
      dir: join(dir, 'kafka'),
      ports,
      properties: { ...propertiesOf(ports, authority, server), ...properties },
      env: { ...env, JDK_JAVA_OPTIONS: javaFlags.join(' ') },
    });
    const stop = async () => {
      await kafka.stop();
      rmSync(dir, { recursive: true, force: true });
    };
    return new SecuredKafka(dir, ports, { authority, server, libs, pid: kafka.pid, stop });
  }

  /** Sets the SCRAM-SHA-512 password of a user. Open connections stay open until their sessions expire. */
  async setPassword(user: string, password: string): Promise<void> {
    const of = ['--entity-type', 'users', '--entity-name', user, '--alter', '--add-config'];
    const to = ['--bootstrap-server', this.plaintext];
    const value = `SCRAM-SHA-${SCRAM_BITS}=[password=${password}]`;
    await run({
      command: 'java',
      args: ['-XX:TieredStopAtLevel=1', '-cp', `${this.#libs}/*`, 'kafka.admin.ConfigCommand', ...to, ...of, value],
      env: process.env,
      purpose: 'the password of a user',
      timeoutMs: 120_000,
    });
  }

  /** Freezes the broker while the work runs. */
  async frozen(work: () => Promise<unknown>): Promise<void> {
    process.kill(this.#pid, 'SIGSTOP');
    try {
      await work();
    } finally {
      process.kill(this.#pid, 'SIGCONT');
    }
  }

  /** Creates a directory that is removed with the broker. */
  mkdir(): string {
    return mkdtempSync(join(this.dir, 'more-'));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stop();
  }
}

function propertiesOf(
  ports: readonly number[],
  authority: CertificateAuthority,
  server: Certificate,
): Record<string, string> {
  const [login, broker, controller, certificate] = ports.map((port) => `127.0.0.1:${port}`);
  const listener = 'listener.name.client';
  const tls = (name: string) => ({
    [`listener.name.${name}.ssl.keystore.type`]: 'PEM',
    [`listener.name.${name}.ssl.keystore.location`]: server.bothFile,
    [`listener.name.${name}.ssl.truststore.type`]: 'PEM',
    [`listener.name.${name}.ssl.truststore.location`]: authority.own.certFile,
  });
  return {
    listeners: `CLIENT://${login},BROKER://${broker},CONTROLLER://${controller},CERT://${certificate}`,
    'advertised.listeners': `CLIENT://${login},BROKER://${broker},CERT://${certificate}`,
    'listener.security.protocol.map': 'CLIENT:SASL_SSL,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,CERT:SSL',
    ...tls('client'),
    ...tls('cert'),
    'listener.name.cert.ssl.client.auth': 'required',
    'listener.name.cert.ssl.principal.mapping.rules': 'RULE:^CN=(.*?)$/$1/',
    [`${listener}.sasl.enabled.mechanisms`]: 'SCRAM-SHA-512',
    [`${listener}.scram-sha-512.sasl.jaas.config`]: `${SECURITY}.scram.ScramLoginModule required;`,
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'super.users': 'User:ANONYMOUS',
  };
}

const { AclResourceTypes, AclOperationTypes, ResourcePatternTypes, AclPermissionTypes } = kafkajs;
const OPERATIONS: Readonly<Record<string, number>> = {
  Read: AclOperationTypes.READ,
  Write: AclOperationTypes.WRITE,
  DescribeConfigs: AclOperationTypes.DESCRIBE_CONFIGS,
};

export function isOperation(name: keyof typeof OPERATIONS): (entry: AclEntry) => boolean {
  return ({ operation }) => operation === OPERATIONS[name];
}

type Resource = 'requests' | 'ledger' | 'witness' | 'deadLetters' | 'replies' | 'apiReplies' | 'group';
export type WorkerRights = Readonly<Record<Resource, readonly AclEntry[]>>;

/** The rights of a role, from the list that `topics acls` grants. */
function rulesOf(realm: Realm, role: Role, user: string): AclRule[] {
  const { requestTopic, ledgerTopic, deadLetterTopic, witnessTopic, replyTopic, env, groupId } = realm;
  const topics = {
    requests: requestTopic,
    ledger: ledgerTopic,
    witness: witnessTopic,
    deadLetters: deadLetterTopic,
    replyPrefix: env.REPLY_TOPIC_PREFIX ?? '',
    apiReplies: env.API_REPLY_TOPIC,
  };
  return aclRules(`User:${user}`, rightsOf(role, { topics, groupId, replyTopics: [replyTopic] }));
}

function entryOf({ resource, name, pattern, operation, principal, host }: AclRule): AclEntry {
  return {
    resourceType: resource === 'topic' ? AclResourceTypes.TOPIC : AclResourceTypes.GROUP,
    resourceName: name,
    resourcePatternType: pattern === 'prefixed' ? ResourcePatternTypes.PREFIXED : ResourcePatternTypes.LITERAL,
    operation: OPERATIONS[operation] ?? Number.NaN,
    principal,
    host,
    permissionType: AclPermissionTypes.ALLOW,
  };
}

/** The rights of a worker by resource. */
export function workerRights(realm: Realm, user: string): WorkerRights {
  const { requestTopic, ledgerTopic, deadLetterTopic, witnessTopic, env, groupId } = realm;
  const rules = rulesOf(realm, 'worker', user);
  const on = (resource: AclRule['resource'], resourceName: string) =>
    rules.filter((rule) => rule.resource === resource && rule.name === resourceName).map(entryOf);
  return {
    requests: on('topic', requestTopic),
    ledger: on('topic', ledgerTopic),
    witness: on('topic', witnessTopic),
    deadLetters: on('topic', deadLetterTopic),
    replies: on('topic', env.REPLY_TOPIC_PREFIX ?? ''),
    apiReplies: env.API_REPLY_TOPIC === undefined ? [] : on('topic', env.API_REPLY_TOPIC),
    group: on('group', groupId),
  };
}

export function clientRights(realm: Realm, user: string): AclEntry[] {
  return rulesOf(realm, 'client', user).map(entryOf);
}

export async function grant(realm: Realm, acl: readonly AclEntry[]): Promise<void> {
  await realm.admin.createAcls({ acl: [...acl] });
}

export async function revoke(realm: Realm, acl: readonly AclEntry[]): Promise<void> {
  await realm.admin.deleteAcls({ filters: [...acl] });
}

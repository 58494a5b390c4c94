import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Etcd3, Range } from 'etcd3';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startEtcd } from '../../ops/dev/etcd-process.ts';
import { claimKey } from '../../src/identity/bindings.ts';
import { Authority, type Certificate } from '../support/certificates.ts';
import type { Followed } from '../support/followed.ts';
import { DATACENTER_ID, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import type { LogLine, WorkerProcess } from '../support/worker-process.ts';

const USER = 'id-worker';
const PREFIX = '/secured';
const PASSWORDS = ['first-pass', 'second-pass'] as const;
/** A token that nobody uses for so long ends. */
const TOKEN_SECONDS = 1;
const SHORT = {
  LEASE_TTL_SECONDS: '10',
  LEASE_HEARTBEAT_MS: '1500',
  ETCD_REFUSE_AFTER_MS: '3000',
  RESERVATION_MS: '5000',
};
const HEARTBEATS = 3;
const ERROR_LEVEL = 50;
const why = whyNoProcesses('etcd', 'openssl');

const stack = new AsyncDisposableStack();
let dir: string;
let own: Certificate;
let foreign: Certificate;
let expired: Certificate;
let env: Record<string, string>;
let root: Etcd3;
let realm: Realm;
let replies: Followed;
let worker: WorkerProcess;
const files = { password: '', cert: '', key: '' };

/** As whoever rotates a secret replaces its file: whole, at once. */
function replace(file: string, text: string): void {
  writeFileSync(`${file}.new`, text);
  renameSync(`${file}.new`, file);
}

function show({ certFile, keyFile }: Certificate): void {
  replace(files.cert, readFileSync(certFile, 'utf8'));
  replace(files.key, readFileSync(keyFile, 'utf8'));
}

const grant = () => root.role('worker').grant({ permission: 'Readwrite', range: Range.prefix(`${PREFIX}/`) });

beforeAll(async () => {
  if (why !== undefined) return;
  dir = mkdtempSync(join(tmpdir(), 'idalloc-secured-etcd-'));
  stack.defer(() => rmSync(dir, { recursive: true, force: true }));
  const [authority, other] = [new Authority(dir), new Authority(mkdtempSync(join(dir, 'other-')))];
  const server = authority.issue('server');
  [own, foreign, expired] = [authority.issue('worker'), other.issue('worker'), authority.issueExpired('worker')];
  const { certFile: ca } = authority.own;
  const etcd = await startEtcd({
    dir: join(dir, 'etcd'),
    tls: { ca, cert: server.certFile, key: server.keyFile },
    args: ['--auth-token-ttl', String(TOKEN_SECONDS)],
  });
  stack.defer(() => etcd.stop());
  const [endpoint = ''] = etcd.endpoints;
  root = stack.adopt(clientOf(endpoint, ca), (client) => client.close());
  realm = stack.use(await Realm.create(suiteServers(), { partitions: 1 }));
  await root.role('root').create();
  await root.user('root').create('root-pass');
  await root.user('root').addRole('root');
  await root.role('worker').create();
  await grant();
  await root.role('worker').grant({ permission: 'Readwrite', key: claimKey(realm.env.ID_SPACE ?? '', DATACENTER_ID) });
  await root.user(USER).create(PASSWORDS[0]);
  await root.user(USER).addRole('worker');
  await root.auth.authEnable();
  root.close();
  root = stack.adopt(clientOf(endpoint, ca, 'root-pass'), (client) => client.close());
  for (const name of ['password', 'cert', 'key'] as const) files[name] = join(dir, name);
  replace(files.password, `${PASSWORDS[0]}\n`);
  show(own);
  replies = await realm.follow();
  env = {
    ...SHORT,
    ETCD_ENDPOINTS: endpoint,
    ETCD_PREFIX: PREFIX,
    ETCD_CA_FILE: ca,
    ETCD_CERT_FILE: files.cert,
    ETCD_KEY_FILE: files.key,
    ETCD_USERNAME: USER,
    ETCD_PASSWORD_FILE: files.password,
  };
  worker = realm.worker(env);
});

afterAll(() => stack.disposeAsync());

function clientOf(hosts: string, ca: string, password?: string): Etcd3 {
  const credentials = {
    rootCertificate: readFileSync(ca),
    certChain: readFileSync(own.certFile),
    privateKey: readFileSync(own.keyFile),
  };
  return new Etcd3({ hosts, credentials, ...(password === undefined ? {} : { auth: { username: 'root', password } }) });
}

/** Waits until the worker refuses, and checks that what it says names the variables to look at. */
async function refuses(remedy: RegExp, from: number): Promise<void> {
  await worker.line(({ msg, reason }) => msg === 'gate closed' && reason === 'LEASE_SUSPENDED', from);
  const answer = await worker.ops('/readyz');
  expect([answer.status, await answer.json()]).toEqual([
    503,
    { status: 'not ready', reason: 'LEASE_SUSPENDED', detail: expect.stringMatching(remedy) },
  ]);
  const isAlarm = ({ level, remedy: told }: LogLine) => level === ERROR_LEVEL && remedy.test(String(told));
  expect(worker.lines.slice(from).some(isAlarm)).toBe(true);
}

/** A request is answered, without a restart of the worker. */
async function serves(correlationId: string, from: number): Promise<void> {
  await worker.line(({ msg }) => msg === 'gate open', from);
  await realm.send([{ correlationId, count: 3 }]);
  expect('batch' in (await replies.reply(correlationId)).reply).toBe(true);
}

describe.skipIf(why !== undefined)(`an etcd with logins and certificates${why ? `: ${why}` : ''}`, () => {
  test('a token that ends between two heartbeats stops nothing', async () => {
    await serves('at first', 0);
    const from = worker.lines.length;
    const rises = async () => {
      const before = marginSeconds;
      marginSeconds = await worker.metric('idalloc_lease_margin_seconds');
      return marginSeconds > before;
    };
    let marginSeconds = Number.POSITIVE_INFINITY;
    for (let heartbeat = 1; heartbeat <= HEARTBEATS; heartbeat += 1) {
      await expect.poll(rises, { timeout: 10_000, interval: 100 }).toBe(true);
    }
    expect(worker.lines.slice(from).filter(({ msg }) => msg === 'gate closed')).toEqual([]);
  });

  test('a password that is changed in etcd first suspends the worker until its file has it', async () => {
    const from = worker.lines.length;
    await root.user(USER).setPassword(PASSWORDS[1]);
    await refuses(/ETCD_USERNAME and ETCD_PASSWORD/, from);
    replace(files.password, `${PASSWORDS[1]}\n`);
    await serves('after the password', from);
  });

  test.for([
    ['of another authority', () => foreign],
    ['that has expired', () => expired],
  ] as const)('a certificate %s suspends the worker until its file has a good one', async ([what, certificate]) => {
    const from = worker.lines.length;
    show(certificate());
    await refuses(/ETCD_CERT/, from);
    show(own);
    await serves(`after a certificate ${what}`, from);
  });

  test('a host that the certificate does not name leaves a worker without an identity, and is named', async () => {
    const elsewhere = realm.worker({
      ...env,
      ETCD_ENDPOINTS: env.ETCD_ENDPOINTS?.replace('127.0.0.1', 'localhost') ?? '',
    });
    const readiness = async () => (await elsewhere.ops('/readyz')).json();
    await expect
      .poll(readiness, { timeout: 30_000 })
      .toMatchObject({ reason: 'NO_IDENTITY', detail: expect.stringMatching(/altnames.*ETCD_ENDPOINTS/) });
    await elsewhere.stop();
  });

  test('a right that is revoked suspends the worker until it is given back', async () => {
    const from = worker.lines.length;
    await root.role('worker').revoke({ permission: 'Readwrite', range: Range.prefix(`${PREFIX}/`) });
    await refuses(/allow ETCD_USERNAME/, from);
    await grant();
    await serves('after the right', from);
  });

  test('a file that is emptied for a moment stops nothing, and is reported', async () => {
    const from = worker.lines.length;
    replace(files.password, '');
    const { variable, problem } = await worker.line(({ msg }) => String(msg).startsWith("a secret's file"), from);
    expect([variable, problem]).toEqual(['ETCD_PASSWORD_FILE', 'is empty']);
    replace(files.password, `${PASSWORDS[1]}\n`);
    expect((await worker.ops('/readyz')).status).toBe(200);
  });
});

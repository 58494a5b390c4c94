import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { claimKey } from '../../src/identity/bindings.ts';
import { type Certificate, CertificateAuthority } from '../support/certificates.ts';
import { LoadedWorker, readiness } from '../support/loaded-worker.ts';
import { DATACENTER_ID, Realm } from '../support/realm.ts';
import { replaceFile, SecuredEtcd, ShownCertificate } from '../support/secured-etcd.ts';
import { suiteServers } from '../support/servers.ts';
import { closings } from '../support/stops.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';

const USER = 'id-worker';
const PREFIX = '/secured';
const ID_SPACE = 'secured';
const PASSWORDS = ['first-pass', 'second-pass'] as const;
const TOKEN_SECONDS = 1;
/** A lease that is short, but longer than an election and a call that waits for one on a busy machine. */
const LEASE = {
  LEASE_TTL_SECONDS: '20',
  LEASE_HEARTBEAT_MS: '1500',
  ETCD_REFUSE_AFTER_MS: '8000',
  RESERVATION_MS: '10000',
};
const HEARTBEATS = 3;
const ERROR_LEVEL = 50;
const why = whyNoProcesses('etcd', 'openssl');

const stack = new AsyncDisposableStack();
let etcd: SecuredEtcd;
let own: Certificate;
/** The client certificate of the worker. */
let shown: ShownCertificate;
let files: { readonly password: string; readonly ca: string };
let env: Record<string, string>;
/** The same worker and load for all tests: nothing here needs a restart. */
let loaded: LoadedWorker;

beforeAll(async () => {
  if (why !== undefined) return;
  const key = claimKey(ID_SPACE, DATACENTER_ID);
  etcd = stack.use(
    await SecuredEtcd.start({ key, prefix: PREFIX, user: USER, password: PASSWORDS[0], tokenSeconds: TOKEN_SECONDS }),
  );
  own = etcd.authority.issue('worker');
  shown = new ShownCertificate(etcd.dir, 'worker', own);
  files = { password: join(etcd.dir, 'password'), ca: join(etcd.dir, 'ca') };
  replaceFile(files.password, `${PASSWORDS[0]}\n`);
  replaceFile(files.ca, etcd.authority.own.certPem);
  env = {
    ...LEASE,
    ETCD_ENDPOINTS: etcd.endpoints.join(),
    ETCD_PREFIX: PREFIX,
    ETCD_CA_FILE: files.ca,
    ETCD_CERT_FILE: shown.cert,
    ETCD_KEY_FILE: shown.key,
    ETCD_USERNAME: USER,
    ETCD_PASSWORD_FILE: files.password,
  };
  const realm = await Realm.create(suiteServers(), { partitions: 2, env: { ID_SPACE } });
  loaded = stack.use(await LoadedWorker.under(realm, env));
});

afterAll(() => stack.disposeAsync());

/** Waits for heartbeats that etcd confirms. */
async function heartbeats(count = HEARTBEATS): Promise<void> {
  let marginSeconds = Number.POSITIVE_INFINITY;
  const rises = async () => {
    const before = marginSeconds;
    marginSeconds = await loaded.worker.metric('idalloc_lease_margin_seconds');
    return marginSeconds > before;
  };
  for (let heartbeat = 1; heartbeat <= count; heartbeat += 1) {
    await expect.poll(rises, { interval: 100 }).toBe(true);
  }
}

/** Replaces the worker's certificate by another valid one, so that its next call uses new connections. */
function connectAnew(): void {
  shown.show(etcd.authority.issue('worker'));
}

/** Waits until the worker is suspended and requests wait, and expects that its log names the variables to check. */
async function refuses(remedy: RegExp, from: number, reason = 'LEASE_SUSPENDED'): Promise<void> {
  expect(await loaded.stopped(reason)).toMatch(remedy);
  await loaded.worker.line(({ level, remedy: logged }) => level === ERROR_LEVEL && remedy.test(String(logged)), from);
}

/** Waits until requests are answered again, including those that waited. */
async function resumes(): Promise<void> {
  await loaded.ready();
  await loaded.answered(loaded.load.requests.length - loaded.answers);
}

describe.skipIf(why !== undefined)(`three secured etcd members under load${why ? `: ${why}` : ''}`, () => {
  test('a token that expires between two heartbeats stops nothing', async () => {
    const from = loaded.worker.lines.length;
    await heartbeats();
    expect(closings(loaded.worker, from)).toEqual([]);
  });

  test('a password that is changed in etcd suspends the worker until its file has the new one', async () => {
    const from = loaded.worker.lines.length;
    await etcd.setPassword(PASSWORDS[1]);
    await refuses(/ETCD_USERNAME and ETCD_PASSWORD/, from);
    replaceFile(files.password, `${PASSWORDS[1]}\n`);
    await resumes();
  });

  test.for([
    ['of another CA', () => new CertificateAuthority(mkdtempSync(join(etcd.dir, 'other-'))).issue('worker')],
    ['that has expired', () => etcd.authority.issueExpired('worker')],
  ] as const)('a certificate %s suspends the worker until its file has a valid one', async ([, certificate]) => {
    const from = loaded.worker.lines.length;
    shown.show(certificate());
    await refuses(/ETCD_CERT/, from);
    shown.show(own);
    await resumes();
  });

  test('a worker whose endpoint is not in the certificates gets no identity, and logs the host', async () => {
    const elsewhere = loaded.realm.worker({
      ...env,
      KAFKA_GROUP_ID: `${loaded.realm.groupId}-elsewhere`,
      ETCD_ENDPOINTS: etcd.endpoints.join().replaceAll('127.0.0.1', 'localhost'),
    });
    onTestFinished(() => elsewhere.stop());
    await expect
      .poll(() => readiness(elsewhere))
      .toMatchObject({ reason: 'NO_IDENTITY', detail: expect.stringMatching(/altnames.*ETCD_ENDPOINTS/) });
  });

  test('a revoked right suspends the worker until it is granted again', async () => {
    const from = loaded.worker.lines.length;
    await etcd.revoke();
    await refuses(/grant ETCD_USERNAME/, from);
    await etcd.grant();
    await resumes();
  });

  test('a right to write that is revoked costs the worker ID, is named, and another one is acquired when it is granted again', async () => {
    const from = loaded.worker.lines.length;
    await etcd.grant('Read');
    await refuses(/grant ETCD_USERNAME/, from, 'NO_IDENTITY');
    await etcd.grant();
    await resumes();
    expect(loaded.worker.lines.slice(from).filter(({ msg }) => msg === 'worker ID acquired')).toHaveLength(1);
  });

  test('a secret file that is briefly empty stops nothing, and is reported', async () => {
    const from = loaded.worker.lines.length;
    replaceFile(files.password, '');
    const { variable, problem } = await loaded.worker.line(({ msg }) => /^secret file invalid/.test(String(msg)), from);
    expect([variable, problem]).toEqual(['ETCD_PASSWORD_FILE', 'is empty']);
    replaceFile(files.password, `${PASSWORDS[1]}\n`);
    await loaded.ready();
    expect(closings(loaded.worker, from)).toEqual([]);
  });

  test('replacing the certificate by another valid one stops nothing', async () => {
    const from = loaded.worker.lines.length;
    connectAnew();
    await heartbeats();
    expect(closings(loaded.worker, from)).toEqual([]);
  });

  test('a member with a certificate of an unknown CA is skipped, and named', async () => {
    const from = loaded.worker.lines.length;
    const unknown = etcd.nextAuthority.issue('server');
    const named = () =>
      loaded.worker.lines
        .slice(from)
        .find(({ msg, remedy }) => msg === 'etcd failed a call' && /ETCD_CA/.test(String(remedy)));
    const before = etcd.authority.issue('server');
    for (const member of etcd.shown) {
      member.show(unknown); // the worker notices only the member that it asks first
      connectAnew();
      await heartbeats(2);
      member.show(before);
      if (named() !== undefined) break;
    }
    connectAnew();
    await heartbeats(1);
    expect(named()).toMatchObject({ level: ERROR_LEVEL, endpoint: expect.stringMatching(/^https:/) });
    expect(closings(loaded.worker, from)).toEqual([]);
  });

  test('changing the CA of all members, one after the other, with a restart of one, stops nothing', async () => {
    const from = loaded.worker.lines.length;
    const { certPem: next } = etcd.nextAuthority.own;
    replaceFile(files.ca, etcd.authority.own.certPem + next);
    for (const member of etcd.shown) {
      member.show(etcd.nextAuthority.issue('server'));
      connectAnew();
      await heartbeats(1);
    }
    replaceFile(files.ca, next);
    await heartbeats();
    await etcd.without(0, () => heartbeats(2));
    await heartbeats(1);
    expect(closings(loaded.worker, from)).toEqual([]);
    await loaded.ready();
  });

  test('after all that, every request has one batch, and none was allocated while the worker was suspended', async () => {
    const { requests } = await loaded.check();
    expect(requests).toBeGreaterThan(100);
  });
});

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { deny, type SecuredServers, startSecured, USERS, type User } from '../support/secured-servers.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import { runIdalloc } from '../support/worker-process.ts';

const why = whyNoProcesses('kafka', 'etcd', 'openssl');
/** Checks of the machine that the tests run on, whose results don't matter here. */
const MACHINE = ['NTP', 'NTP steps', 'limits', 'index directory'];

const stack = new AsyncDisposableStack();
let servers: SecuredServers;

beforeAll(async () => {
  if (why === undefined) servers = await startSecured(stack);
});

afterAll(() => stack.disposeAsync());

interface CheckLine {
  readonly name: string;
  readonly state: 'ok' | 'warn' | 'fault';
  readonly detail: string;
  readonly fix?: string;
}

async function doctor(user: User, more: Record<string, string> = {}) {
  const { stdout, stderr } = await runIdalloc(['doctor', '--json'], { ...servers.login(user), ...more });
  expect(stdout, stderr).toMatch(/^\{.*\}\n$/);
  const all = JSON.parse(stdout).checks as readonly CheckLine[];
  const checks = all.filter(({ name }) => !MACHINE.includes(name));
  const named = (name: string) => checks.filter((check) => check.name.startsWith(name));
  return { faults: checks.filter(({ state }) => state === 'fault'), named };
}

describe.skipIf(why !== undefined)(`doctor on servers that deny by default${why ? `: ${why}` : ''}`, () => {
  test('doctor finds no fault for a worker with the documented rights, which it can check', async () => {
    const { faults, named } = await doctor('worker');
    expect(faults).toEqual([]);
    expect(named('rights')).toMatchObject([{ state: 'ok', detail: expect.stringContaining('reply topic') }]);
    const hidden = `not ${servers.realm.env.REPLY_TOPIC_PREFIX}cli`;
    expect(named('permissions')).toMatchObject([{ state: 'ok', detail: expect.stringContaining(hidden) }]);
  });

  test("doctor finds no fault for an operator with the documented rights, and reports what it can't check", async () => {
    const { faults, named } = await doctor('operator');
    expect(faults).toEqual([]);
    expect(named('rights')).toMatchObject([
      { state: 'warn', detail: expect.stringContaining("can't be known"), fix: expect.stringContaining('login') },
    ]);
    expect(named('etcd writes')).toMatchObject([{ state: 'warn', fix: expect.stringContaining('login') }]);
    expect(named('sequences')).toMatchObject([{ state: 'ok' }]);
  });

  test("doctor compares the clock of an etcd behind a private CA and mutual TLS with this machine's", async () => {
    const { named } = await doctor('worker');
    expect(named('clock against https:')).toMatchObject([{ state: 'ok' }]);
  });

  test('doctor warns about each certificate that expires within two weeks, by its variable', async () => {
    const { named } = await doctor('worker');
    const ends = expect.stringMatching(/^expires on .* UTC, in (1 day|less than a day)$/);
    expect(named('certificate ')).toMatchObject(
      ['KAFKA_CA', 'ETCD_CERT', 'ETCD_CA'].map((name) => ({
        name: `certificate ${name}`,
        state: 'warn',
        detail: ends,
      })),
    );
  });

  test('doctor reports a fault with topic and remedy for a worker that may not write replies', async () => {
    const { realm } = servers;
    const forbidden = `${realm.env.REPLY_TOPIC_PREFIX}forbidden`;
    await realm.createTopic(forbidden);
    await deny(realm, 'worker', forbidden, 'WRITE');
    const { faults } = await doctor('worker');
    expect(faults).toMatchObject([
      { name: 'rights', detail: `missing: Write on '${forbidden}'`, fix: expect.stringContaining('topics acls') },
    ]);
  });

  test('an admin with the documented rights creates topics and sequences, and reads the namespace', async () => {
    const env = servers.login('admin');
    const name = `${servers.realm.env.REPLY_TOPIC_PREFIX}made`;
    const init = await runIdalloc(['topics', 'init', '--reply-topic', name, '--json'], env);
    expect({ ...init, stdout: JSON.parse(init.stdout || '{}') }).toMatchObject({
      code: 0,
      stdout: { created: [name] },
    });
    const rebuilt = await runIdalloc(
      ['namespace', 'rebuild', '--yes', '--json', '--now', new Date().toISOString()],
      env,
    );
    expect(rebuilt).toMatchObject({ code: 0, stdout: expect.stringContaining('"floor"') });
    expect(await runIdalloc(['namespace', 'show', '--json'], env)).toMatchObject({ code: 0 });
    expect(await runIdalloc(['sequence', 'create', 'invoices'], env)).toMatchObject({ code: 0 });
    expect(await runIdalloc(['sequence', 'list'], servers.login('operator'))).toMatchObject({ code: 0 });
  });

  test('an operator reads what admins did in the journal, and changes nothing, since it may not write there', async () => {
    const operator = servers.login('operator');
    const { stdout } = await runIdalloc(['journal', '--json'], operator);
    expect(JSON.parse(stdout).entries).toMatchObject([
      { number: 1, command: 'namespace rebuild', outcome: 'done', who: expect.stringMatching(/.@./) },
      { number: 2, command: 'sequence create', outcome: 'done', arguments: { sequence: 'invoices', start: 1 } },
    ]);
    expect(await runIdalloc(['sequence', 'create', 'tickets'], operator)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('the journal of commands could not be written, so nothing was done'),
    });
  });

  test('topics acls --apply grants rights, but only for a user who may grant them', async () => {
    const args = ['topics', 'acls', '--principal', `User:${USERS.operator.name}`, '--role', 'operator', '--apply'];
    expect(await runIdalloc(args, servers.superUser)).toMatchObject({ code: 0, stderr: '' });
    const refused = await runIdalloc(args, servers.login('operator'));
    expect(refused).toMatchObject({ code: 69, stderr: expect.stringMatching(/CLUSTER_AUTHORIZATION_FAILED.*Alter/) });
  });
});

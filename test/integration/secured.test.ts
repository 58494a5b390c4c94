import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IdClient } from '../../src/client/index.ts';
import { countIds } from '../../src/codec/id-batch.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import type { Realm } from '../support/realm.ts';
import { deny, startSecured, USERS } from '../support/secured-servers.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const ERROR_LEVEL = 50;
const FATAL_LEVEL = 60;
const why = whyNoProcesses('kafka', 'etcd', 'openssl');

const stack = new AsyncDisposableStack();
let realm: Realm;
let worker: WorkerProcess;
let replies: Followed;
/** The credentials of a worker. */
let env: Record<string, string>;
let operator: Record<string, string>;

beforeAll(async () => {
  if (why !== undefined) return;
  const servers = await startSecured(stack);
  realm = servers.realm;
  env = servers.login('worker');
  operator = servers.login('operator');
  replies = await realm.follow();
  worker = realm.worker(env);
});

afterAll(() => stack.disposeAsync());

function connect(password: string): Promise<IdClient> {
  const { KAFKA_BROKERS = '', KAFKA_CA_FILE = '' } = env;
  const kafka = {
    brokers: KAFKA_BROKERS.split(','),
    ssl: { ca: [readFileSync(KAFKA_CA_FILE)] },
    sasl: { mechanism: 'plain' as const, username: USERS.client.name, password },
  };
  const { requestTopic, replyTopic } = realm;
  return IdClient.connect({ kafka, requestTopic, replyTopic, prefetch: false });
}

/** Runs a command as a user who may read. */
function command(args: readonly string[], more: Record<string, string> = {}): ReturnType<typeof runIdalloc> {
  return runIdalloc(args, { ...operator, ...more });
}

/** Starts a worker that exits; returns its exit code and its error. */
async function refusal(more: Record<string, string>): Promise<{ code: number | null; said: string }> {
  const refused = realm.worker({ ...env, ...more });
  const { code } = await refused.ended();
  return { code, said: String(refused.lines.find(({ level }) => level === FATAL_LEVEL)?.msg ?? refused.errors) };
}

describe.skipIf(why !== undefined)(`servers with logins, certificates and rights${why ? `: ${why}` : ''}`, () => {
  test('a worker with the documented rights serves, without an error for the operator', async () => {
    await worker.ready();
    await realm.send([{ correlationId: 'let-in', count: 3, partition: 0 }]);
    expect('batch' in (await replies.reply('let-in')).reply).toBe(true);
    await realm.sendRaw([{ key: 'bad', value: Buffer.of(1, 2, 3), partition: 0 }]);
    await (await realm.follow(realm.deadLetterTopic)).until('a dead letter', (seen) => seen.length > 0);
    await expect.poll(async () => [...(await realm.committed()).values()]).toContain(2);
    expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
  });

  test('a reply topic that the worker may not write to fails alone, and is named', async () => {
    const forbidden = `${realm.env.REPLY_TOPIC_PREFIX}forbidden`;
    await realm.createTopic(forbidden);
    await deny(realm, 'worker', forbidden, 'WRITE');
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

  test('a client with the documented rights is answered', async () => {
    await worker.ready();
    await using client = await connect(USERS.client.password);
    const { batch } = await client.request({ count: 3 });
    expect(countIds(batch.ranges)).toBe(3);
  });

  test('commands read topics with the documented rights', async () => {
    await worker.ready();
    await realm.send([{ correlationId: 'to-trace', count: 1, partition: 0 }]);
    const { first } = batchOf(await replies.reply('to-trace')).ranges[0] ?? { first: 0n };
    const audit = await command(['audit', '--json']);
    expect([audit.code, JSON.parse(audit.stdout).findings]).toEqual([0, []]);
    const trace = await command(['trace', String(first), '--json']);
    expect(JSON.parse(trace.stdout)).toMatchObject({ correlation_id: 'to-trace', replies: [{ has_id: true }] });
    expect((await command(['deadletters', 'list', '--json'])).code).toBe(0);
  });

  test('replay shows its plan with the rights of an operator', async () => {
    await worker.ready();
    const { code, stderr } = await command(['replay', '--from', '1h', '--dry-run']);
    expect({ code, stderr }).toMatchObject({ code: 0 });
  });

  test('replay names the right that it lacks on the group', async () => {
    const refused = await command(['replay', '--from', '1h', '--dry-run'], { KAFKA_GROUP_ID: 'of-others' });
    expect(refused).toMatchObject({ code: 69, stderr: expect.stringMatching(/group/i) });
  });

  test('a command with a wrong password exits immediately, and names the variables to check', async () => {
    const { code, stderr } = await command(['audit'], { KAFKA_SASL_PASSWORD: 'wrong' });
    expect({ code, stderr }).toMatchObject({
      code: 78,
      stderr: expect.stringMatching(/'id-operator'.*KAFKA_SASL_PASSWORD/),
    });
  });

  test('a client with a wrong password is refused immediately', async () => {
    await expect(connect('wrong')).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/authentication failed.*check .*ssl and sasl/i),
    });
  });

  test('a worker with a wrong password for Kafka exits at the start, and names the variables to check', async () => {
    const { code, said } = await refusal({ KAFKA_SASL_PASSWORD: 'wrong' });
    expect(said).toMatch(/^CONFIG_INVALID: .*'id-worker'.*KAFKA_SASL_PASSWORD/);
    expect(said).not.toContain('wrong');
    expect(code).toBe(78);
  });

  test('a worker waits for a broker whose certificate is not trusted, and logs the cause and the variable', async () => {
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
  ] as const)('with %s for etcd the worker gets no identity, and its log has the reason', async ([, more, cause]) => {
    const refused = realm.worker({ ...env, ...more });
    await refused.line(({ msg, error }) => /etcd|namespace/.test(String(msg)) && cause.test(String(error)));
    expect(refused.gate()).not.toBe('open');
    expect((await refused.ops('/readyz')).status).toBe(503);
    await refused.stop();
  });
});

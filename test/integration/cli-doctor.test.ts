import { afterAll, beforeAll, expect, test } from 'vitest';
import { LAYOUT, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

interface CheckLine {
  readonly name: string;
  readonly state: 'ok' | 'warn' | 'fault';
  readonly detail: string;
  readonly fix?: string;
}

let realm: Realm;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
});

afterAll(() => realm?.[Symbol.asyncDispose]());

async function doctor(env: Readonly<Record<string, string>> = {}) {
  const { code, stdout, stderr } = await runIdalloc(['doctor', '--json'], { ...realm.env, ...env });
  expect(stdout, stderr).toMatch(/^\{.*\}\n$/);
  const checks = JSON.parse(stdout).checks as readonly CheckLine[];
  return { code, checks, of: (name: string) => checks.filter((check) => check.name.startsWith(name)) };
}

/** Checks of the machine that the tests run on, which may have an undisciplined clock or little disk space. */
const MACHINE = ['NTP', 'limits', 'index directory'];

/** Its state; doctor warns about an etcd that takes a second to respond, as it may on a busy machine. */
function stateUnlessSlow({ state, detail, fix = '' }: CheckLine): string {
  return state === 'warn' && / \d+\.\d s$/.test(detail) && fix.startsWith('check its disk') ? 'ok' : state;
}

test('doctor reports each healthy server as ok', async () => {
  const { checks, of } = await doctor();
  expect(of('Kafka ')).toMatchObject([{ state: 'ok', detail: expect.stringContaining('4.1 or later') }]);
  expect(of('etcd http').map(stateUnlessSlow)).toEqual(['ok', 'ok', 'ok']);
  expect(of('etcd http').filter(({ detail }) => detail.includes('leader'))).toHaveLength(1);
  expect(of('clock against')).toMatchObject([{ state: 'ok' }, { state: 'ok' }, { state: 'ok' }]);
  expect(of('permissions')).toMatchObject([{ state: 'ok' }]);
  expect(of('etcd compaction')).toMatchObject([{ detail: expect.stringContaining('revision') }]);
  expect(of('sequences')).toMatchObject([{ state: 'ok', detail: expect.stringContaining('etcd holds none') }]);
  const servers = checks.filter(({ name }) => !MACHINE.includes(name));
  expect(servers.filter(({ state }) => state === 'fault')).toEqual([]);
});

test('doctor reports what prevents a worker from serving as a fault, with the fix', async () => {
  await realm.setTopicConfig(realm.ledgerTopic, 'retention.ms', '60000');
  const servers = suiteServers();
  const { code, checks, of } = await doctor({
    KAFKA_BROKERS: [...servers.brokers, '127.0.0.1:1'].join(','),
    ETCD_ENDPOINTS: [...servers.etcdEndpoints, 'http://127.0.0.1:1'].join(','),
    INDEX_DIR: '/proc/nowhere',
  });
  expect(code).toBe(1);
  expect(of('Kafka 127.0.0.1:1')).toMatchObject([{ state: 'fault', fix: expect.stringContaining('KAFKA_BROKERS') }]);
  expect(of('etcd http://127.0.0.1:1')).toMatchObject([
    { state: 'fault', fix: expect.stringContaining('ETCD_ENDPOINTS') },
  ]);
  expect(of('topics LEDGER_RETENTION')).toMatchObject([
    { state: 'fault', fix: expect.stringContaining('retention.ms=') },
  ]);
  expect(of('index directory')).toMatchObject([{ state: 'fault' }]);
  for (const { state, fix } of checks) expect(fix === undefined).toBe(state === 'ok');
  await realm.setTopicConfig(realm.ledgerTopic, 'retention.ms', '93600000');
});

test('doctor warns about an API that anybody can use, which stops no worker', async () => {
  const { of } = await doctor({ API_HOST: '0.0.0.0' });
  expect(of('variables')).toMatchObject([{ state: 'warn', detail: expect.stringContaining('API_TOKEN_FILE') }]);
  expect((await doctor()).of('variables')).toEqual([]);
});

test('doctor reports a namespace of another layout before a worker refuses it, and compares sequences', async () => {
  const worker = realm.worker();
  await worker.ready();
  for (const env of [{ LAYOUT_EPOCH_MS: '1' }, { LAYOUT: 'region', LAYOUT_EPOCH_MS: String(LAYOUT.epochMs) }]) {
    const { of } = await doctor(env);
    expect(of('namespace')).toMatchObject([{ state: 'fault', fix: expect.stringContaining('LAYOUT_EPOCH_MS') }]);
  }
  expect(await runIdalloc(['sequence', 'create', 'invoices'], realm.env)).toMatchObject({ code: 0 });
  const { of } = await doctor();
  expect(of('namespace')).toMatchObject([{ state: 'ok', detail: expect.stringContaining('1 of 32') }]);
  expect(of('sequences')).toMatchObject([{ state: 'ok', detail: '1 sequence; the ledger and etcd agree' }]);
});

test('doctor prints a line for each check for people', async () => {
  const { stdout } = await runIdalloc(['doctor'], realm.env);
  expect(stdout).toMatch(/^ok {5}Kafka 127/);
  expect(stdout).not.toContain('\u001b');
});

test('doctor reports every variable of an invalid configuration', async () => {
  const { code, stderr } = await runIdalloc(['doctor'], { KAFKA_BROKERS: 'a:1' });
  expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringContaining('ETCD_ENDPOINTS') });
});

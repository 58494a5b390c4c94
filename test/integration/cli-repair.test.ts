import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import type { Followed } from '../support/followed.ts';
import { LAYOUT, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

interface LetterLine {
  readonly partition: number;
  readonly offset: number;
  readonly original: { readonly partition: number | null; readonly offset: number | null };
  readonly resent: number | null;
  readonly range: { readonly records: number; readonly last: number } | null;
}

interface CheckLine {
  readonly name: string;
  readonly state: 'ok' | 'warn' | 'fault';
  readonly detail: string;
  readonly fix?: string;
}

let realm: Realm;
let letters: Followed;
let lateTopic: string;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  letters = await realm.follow(realm.deadLetterTopic);
  lateTopic = `${realm.replyTopic}.late`;
  await realm.worker().ready();
  const value = encodeIdRequest({ count: 3, correlationId: Buffer.from('late'), replyTopic: lateTopic });
  const headers = { mine: ['1', '2'], other: Buffer.from([0, 255]) };
  await realm.sendRaw([{ key: 'k-late', value, headers, partition: 2 }]);
  await letters.until('a letter', (seen) => seen.length >= 1);
  await realm.sendRaw([{ key: 'k-bad', value: 'no request', partition: 1 }]);
  await letters.until('two letters', (seen) => seen.length >= 2);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

async function list(...more: string[]): Promise<readonly LetterLine[]> {
  return (await realm.command(['deadletters', 'list', ...more])).letters;
}

const resend = (place: string): string[] => ['deadletters', 'resend', place, '--yes'];

async function refusal(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runIdalloc(args, realm.env);
  expect({ code, stdout }, stderr).toEqual({ code: 1, stdout: '' });
  return stderr;
}

async function doctor(env: Readonly<Record<string, string>> = {}, code = 0) {
  const { checks }: { checks: readonly CheckLine[] } = await realm.command(['doctor'], code, env);
  return { checks, of: (name: string) => checks.filter((check) => check.name.startsWith(name)) };
}

test('list shows the newest letter first, with the original place of each record', async () => {
  const original = { topic: realm.requestTopic, partition: 1, offset: 0 };
  expect(await list()).toMatchObject([
    { partition: 0, offset: 1, code: 'MALFORMED_REQUEST', original },
    { partition: 0, offset: 0, code: 'REPLY_UNDELIVERABLE', original: { partition: 2, offset: 0 }, resent: 0 },
  ]);
  expect(await list('--limit', '1')).toHaveLength(1);
  expect(await list('--code', 'REPLY_UNDELIVERABLE')).toMatchObject([{ key: 'k-late' }]);
  const { stdout } = await runIdalloc(['deadletters', 'list'], realm.env);
  expect(stdout).toMatch(/0:0 .*REPLY_UNDELIVERABLE .*\/2 at 0/);
});

test('show decodes the request, and has every header', async () => {
  const { code, stdout } = await runIdalloc(['deadletters', 'show', '0:0'], realm.env);
  expect(code).toBe(0);
  expect(stdout).toContain(`IdRequest: count 3, correlation ID late, reply topic ${lateTopic}`);
  expect(stdout).toMatch(/mine: "1"\n {2}mine: "2"\n {2}other: 0x00ff/);
  const shown = await realm.command(['deadletters', 'show', '0:0']);
  expect(shown).toMatchObject({ headers_base64: { mine: ['MQ==', 'Mg=='], other: ['AP8='] } });
  expect(await refusal('deadletters', 'show', '0:9999')).toMatch(/^NOT_FOUND: /);
  expect((await runIdalloc(['deadletters', 'show', '0'], realm.env)).code).toBe(2);
});

test('a request that is sent again keeps its bytes, headers, age and partition, and is served once its cause is fixed', async () => {
  expect(await refusal('deadletters', 'resend', '0:0')).toMatch(/^NOT_CONFIRMED: /);
  await realm.createTopic(lateTopic);
  const replies = await realm.follow(lateTopic);
  const requests = await realm.follow(realm.requestTopic);
  const resent = [{ letter: '0:0', partition: 2, offset: '1' }];
  expect(await realm.command(resend('0:0'))).toEqual({ resent, unsent: [] });
  await requests.until('three requests', (seen) => seen.length >= 3);
  const [first, again] = requests.seen.filter(({ partition }) => partition === 2).map(({ message }) => message);
  expect(again?.key).toEqual(first?.key);
  expect(again?.value).toEqual(first?.value);
  const own = { 'idalloc-origin': Buffer.from(`2/0/${first?.timestamp}`), 'idalloc-resent': Buffer.from('1') };
  expect({ ...again?.headers }).toEqual({ ...first?.headers, ...own });
  expect(expandIds(await replies.batch('late'))).toHaveLength(3);
});

test('a request that becomes a dead letter each time is sent again three times at most', async () => {
  for (let returned = 0; returned <= 3; returned += 1) {
    const [newest] = await list('--code', 'MALFORMED_REQUEST');
    expect(newest?.resent).toBe(returned);
    const again = resend(`0:${newest?.offset}`);
    if (returned === 3) expect(await refusal(...again)).toMatch(/^RESEND_REFUSED: .*3 times/);
    else await realm.command(again);
    if (returned < 3) await letters.until('the letter again', (seen) => seen.length >= 3 + returned);
  }
});

test.each([
  ['no headers at all', {}],
  ['a topic that is not the request topic', { 'kafka_dlt-original-topic': 'orders' }],
  ['an invalid partition', { 'kafka_dlt-original-partition': 'x' }],
  ['a partition that the topic does not have', { 'kafka_dlt-original-partition': Buffer.from([0, 0, 0, 99]) }],
  ['an offset twice', { 'kafka_dlt-original-offset': [Buffer.alloc(8), Buffer.alloc(8)] }],
  ['an invalid count of resends', { 'idalloc-resent': '-1' }],
  [
    'a record that is left out and gone',
    { 'idalloc-record-left-out': '1', 'kafka_dlt-original-offset': Buffer.from('0000000000ffffff', 'hex') },
  ],
])('a forged letter with %s is listed and shown, but not sent', async (name, odd) => {
  const whole = {
    'kafka_dlt-original-topic': realm.requestTopic,
    'kafka_dlt-original-partition': Buffer.alloc(4),
    'kafka_dlt-original-offset': Buffer.alloc(8),
    'kafka_dlt-exception-message': '\u001b[2Jsteers a terminal',
    __proto__: null,
  };
  const headers = Object.keys(odd).length === 0 ? {} : { ...whole, ...odd };
  const [sent] = await realm.sendRaw([{ key: name, value: 'x', headers }], realm.deadLetterTopic);
  const place = `0:${sent?.baseOffset}`;
  const before = await realm.records(realm.requestTopic);
  const shown = await runIdalloc(['deadletters', 'show', place], realm.env);
  expect(shown.code).toBe(0);
  expect(shown.stdout).not.toContain('\u001b');
  expect(await refusal(...resend(place))).toMatch(/^RESEND_REFUSED: letter/);
  expect(await realm.records(realm.requestTopic)).toBe(before);
});

test('a flood of bad records has ranges that name each once, and they are sent again from the request topic', async () => {
  const FLOOD = 2_500;
  const [sent] = await realm.sendRaw(Array.from({ length: FLOOD }, () => ({ value: 'junk', partition: 0 })));
  const from = Number(sent?.baseOffset);
  await expect.poll(async () => (await realm.committed()).get(0)).toBe(from + FLOOD);
  const flood = (await list('--code', 'MALFORMED_REQUEST', '--limit', '10000')).filter(
    ({ original }) => original.partition === 0 && Number(original.offset) >= from,
  );
  expect(flood.reduce((sum, { range }) => sum + (range?.records ?? 1), 0)).toBe(FLOOD);
  expect(flood.length).toBeLessThan(1_500);
  const ranges = flood.filter(({ range }) => range !== null);
  expect(ranges.length).toBeGreaterThan(0);

  const last = ranges.toSorted((one, other) => Number(one.original.offset) - Number(other.original.offset)).at(-1);
  const again = resend(`${last?.partition}:${last?.offset}`);
  const { resent, unsent } = await realm.command(again);
  expect({ resent: resent.length, unsent }).toEqual({ resent: Number(last?.range?.records), unsent: [] });

  const partitions = [{ partition: 0, offset: String(Number(last?.range?.last) + 1) }];
  await realm.admin.deleteTopicRecords({ topic: realm.requestTopic, partitions });
  expect(await refusal(...again)).toMatch(/no longer has it/);
});

test('topics check prints the commands that fix a difference, and changes nothing', async () => {
  await realm.setTopicConfig(realm.ledgerTopic, 'cleanup.policy', 'compact');
  const { code, stdout } = await runIdalloc(['topics', 'check'], realm.env);
  expect(code).toBe(1);
  expect(stdout).toMatch(/fault LEDGER_WEAK: .*cleanup.policy=delete/);
  expect(stdout).toContain(`kafka-configs --alter --entity-type topics --entity-name ${realm.ledgerTopic}`);
  await realm.setTopicConfig(realm.ledgerTopic, 'cleanup.policy', 'delete');
  expect(await realm.command(['topics', 'check'])).toMatchObject({ faults: [], differences: [], fixes: [] });
});

test('doctor reports what prevents a worker from serving as a fault, with the fix', async () => {
  await realm.setTopicConfig(realm.ledgerTopic, 'retention.ms', '60000');
  const { brokers, etcdEndpoints } = suiteServers();
  const env = {
    KAFKA_BROKERS: [...brokers, '127.0.0.1:1'].join(','),
    ETCD_ENDPOINTS: [...etcdEndpoints, 'http://127.0.0.1:1'].join(','),
    INDEX_DIR: '/proc/nowhere',
  };
  const { checks, of } = await doctor(env, 1);
  for (const [name, fix] of [
    ['Kafka 127.0.0.1:1', 'KAFKA_BROKERS'],
    ['etcd http://127.0.0.1:1', 'ETCD_ENDPOINTS'],
    ['topics LEDGER_RETENTION', 'retention.ms='],
    ['index directory', ''],
  ] as const) {
    expect(of(name)).toMatchObject([{ state: 'fault', fix: expect.stringContaining(fix) }]);
  }
  for (const { state, fix } of checks) expect(fix === undefined).toBe(state === 'ok');
  await realm.setTopicConfig(realm.ledgerTopic, 'retention.ms', '93600000');
});

test('doctor warns about an API that anybody can use, which stops no worker', async () => {
  const { of } = await doctor({ API_HOST: '0.0.0.0' });
  expect(of('variables')).toMatchObject([{ state: 'warn', detail: expect.stringContaining('API_TOKEN_FILE') }]);
});

test('doctor reports each healthy server, and a namespace of another layout before a worker refuses it', async () => {
  for (const env of [{ LAYOUT_EPOCH_MS: '1' }, { LAYOUT: 'region', LAYOUT_EPOCH_MS: String(LAYOUT.epochMs) }]) {
    const { of } = await doctor(env, 1);
    expect(of('namespace')).toMatchObject([{ state: 'fault', fix: expect.stringContaining('LAYOUT_EPOCH_MS') }]);
  }
  await realm.command(['sequence', 'create', 'invoices']);
  const { of } = await doctor();
  // On a busy machine a broker may be slow, which is a warning.
  const state = expect.toBeOneOf(['ok', 'warn']);
  expect(of('Kafka ')).toMatchObject([{ state, detail: expect.stringContaining('4.1 or later') }]);
  expect(of('etcd http').filter(({ detail }) => detail.includes('leader'))).toHaveLength(1);
  expect(of('clock against')).toMatchObject([{ state: 'ok' }, { state: 'ok' }, { state: 'ok' }]);
  expect(of('permissions')).toMatchObject([{ state: 'ok' }]);
  expect(of('etcd compaction')).toMatchObject([{ detail: expect.stringContaining('revision') }]);
  expect(of('variables')).toEqual([]);
  expect(of('namespace')).toMatchObject([{ state: 'ok', detail: expect.stringContaining('1 of 32') }]);
  expect(of('sequences')).toMatchObject([{ state: 'ok', detail: '1 sequence; the ledger and etcd agree' }]);
  const { stdout } = await runIdalloc(['doctor'], realm.env);
  expect(stdout).toMatch(/^(ok {5}|warn {3})Kafka 127/);
  expect(stdout).not.toContain('\u001b');
});

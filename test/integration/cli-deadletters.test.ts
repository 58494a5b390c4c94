import { afterAll, beforeAll, expect, test } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import type { Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

interface LetterLine {
  readonly partition: number;
  readonly offset: number;
  readonly code: string | null;
  readonly original: { readonly partition: number | null; readonly offset: number | null };
  readonly resent: number | null;
  readonly range: { readonly records: number; readonly last: number } | null;
}

let realm: Realm;
let letters: Followed;
let lateTopic: string;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  letters = await realm.follow(realm.deadLetterTopic);
  lateTopic = `${realm.replyTopic}.late`;
  await realm.worker().ready();
  await realm.sendRaw([
    {
      key: 'k-late',
      value: encodeIdRequest({ count: 3, correlationId: Buffer.from('late'), replyTopic: lateTopic }),
      headers: { mine: ['1', '2'], other: Buffer.from([0, 255]) },
      partition: 2,
    },
  ]);
  await letters.until('a letter', (seen) => seen.length >= 1);
  await realm.sendRaw([{ key: 'k-bad', value: 'no request', partition: 1 }]);
  await letters.until('two letters', (seen) => seen.length >= 2);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

async function list(...more: string[]): Promise<readonly LetterLine[]> {
  const { code, stdout, stderr } = await runIdalloc(['deadletters', 'list', '--json', ...more], realm.env);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout).letters;
}

test('list shows the newest first, with the reason and the original place of each record', async () => {
  expect(await list()).toMatchObject([
    {
      partition: 0,
      offset: 1,
      code: 'MALFORMED_REQUEST',
      original: { topic: realm.requestTopic, partition: 1, offset: 0 },
    },
    {
      partition: 0,
      offset: 0,
      code: 'REPLY_UNDELIVERABLE',
      original: { partition: 2, offset: 0 },
      key: 'k-late',
      resent: 0,
    },
  ]);
  expect(await list('--limit', '1')).toHaveLength(1);
  expect(await list('--code', 'REPLY_UNDELIVERABLE')).toHaveLength(1);
  const { stdout } = await runIdalloc(['deadletters', 'list'], realm.env);
  expect(stdout).toMatch(/0:0 .*REPLY_UNDELIVERABLE .*\/2 at 0/);
});

test('show decodes the request, and has every header', async () => {
  const { code, stdout } = await runIdalloc(['deadletters', 'show', '0:0'], realm.env);
  expect(code).toBe(0);
  expect(stdout).toContain(`IdRequest: count 3, correlation ID late, reply topic ${lateTopic}`);
  expect(stdout).toMatch(/mine: "1"\n {2}mine: "2"\n {2}other: 0x00ff/);
  const { stdout: json } = await runIdalloc(['deadletters', 'show', '0:0', '--json'], realm.env);
  expect(JSON.parse(json)).toMatchObject({ headers_base64: { mine: ['MQ==', 'Mg=='], other: ['AP8='] } });
});

test('resend needs --yes without a terminal', async () => {
  const { code, stderr } = await runIdalloc(['deadletters', 'resend', '0:0'], realm.env);
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^NOT_CONFIRMED: /) });
});

test('a request that is sent again keeps its bytes, headers, age and partition, and is served once its cause is fixed', async () => {
  await realm.createTopic(lateTopic);
  const replies = await realm.follow(lateTopic);
  const requests = await realm.follow(realm.requestTopic);
  const { code, stdout } = await runIdalloc(['deadletters', 'resend', '0:0', '--yes', '--json'], realm.env);
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toEqual({ resent: [{ letter: '0:0', partition: 2, offset: '1' }], unsent: [] });
  await requests.until('three requests', (seen) => seen.length >= 3);
  const [first, again] = requests.seen.filter(({ partition }) => partition === 2).map(({ message }) => message);
  expect(again?.key).toEqual(first?.key);
  expect(again?.value).toEqual(first?.value);
  const own = { 'idalloc-origin': Buffer.from(`2/0/${first?.timestamp}`), 'idalloc-resent': Buffer.from('1') };
  expect({ ...again?.headers }).toEqual({ ...first?.headers, ...own });
  const { reply } = await replies.reply('late');
  expect('batch' in reply).toBe(true);
});

test('a request that becomes a dead letter each time is sent again three times at most', async () => {
  for (let returned = 1; returned <= 3; returned += 1) {
    const [newest] = await list('--code', 'MALFORMED_REQUEST');
    expect(newest?.resent).toBe(returned - 1);
    const args = ['deadletters', 'resend', `0:${newest?.offset}`, '--yes'];
    expect((await runIdalloc(args, realm.env)).code).toBe(0);
    await letters.until('the letter again', (seen) => seen.length >= 2 + returned);
  }
  const [last] = await list('--code', 'MALFORMED_REQUEST');
  expect(last?.resent).toBe(3);
  const { code, stderr } = await runIdalloc(['deadletters', 'resend', `0:${last?.offset}`, '--yes'], realm.env);
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^RESEND_REFUSED: .*3 times/) });
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
  const { code, stderr } = await runIdalloc(['deadletters', 'resend', place, '--yes'], realm.env);
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^RESEND_REFUSED: letter/) });
  expect(await realm.records(realm.requestTopic)).toBe(before);
});

test('a letter that does not exist is NOT_FOUND', async () => {
  expect((await runIdalloc(['deadletters', 'show', '0:9999'], realm.env)).stderr).toMatch(/^NOT_FOUND: /);
  expect((await runIdalloc(['deadletters', 'show', '0'], realm.env)).code).toBe(2);
});

test('a flood of bad records has ranges that name each once, and they are sent again from the request topic', async () => {
  const FLOOD = 2_500;
  const [sent] = await realm.sendRaw(Array.from({ length: FLOOD }, () => ({ value: 'junk', partition: 0 })));
  const from = Number(sent?.baseOffset);
  await expect.poll(async () => (await realm.committed()).get(0), { timeout: 60_000 }).toBe(from + FLOOD);
  const flood = (await list('--code', 'MALFORMED_REQUEST', '--limit', '10000')).filter(
    ({ original }) => original.partition === 0 && Number(original.offset) >= from,
  );
  expect(flood.reduce((sum, { range }) => sum + (range?.records ?? 1), 0)).toBe(FLOOD);
  const ranges = flood.filter(({ range }) => range !== null);
  expect(flood.length).toBeLessThan(1_500);
  expect(ranges.length).toBeGreaterThan(0);

  const last = ranges.toSorted((one, other) => Number(one.original.offset) - Number(other.original.offset)).at(-1);
  const resend = ['deadletters', 'resend', `${last?.partition}:${last?.offset}`, '--yes', '--json'];
  const { code, stdout, stderr } = await runIdalloc(resend, realm.env);
  expect(code, stderr).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ unsent: [] });
  expect(JSON.parse(stdout).resent).toHaveLength(Number(last?.range?.records));

  const partitions = [{ partition: 0, offset: String(Number(last?.range?.last) + 1) }];
  await realm.admin.deleteTopicRecords({ topic: realm.requestTopic, partitions });
  const late = await runIdalloc(resend, realm.env);
  expect({ code: late.code, stderr: late.stderr }).toEqual({
    code: 1,
    stderr: expect.stringMatching(/no longer has it/),
  });
});

test('topics check prints the commands that fix a difference, and changes nothing', async () => {
  await realm.setTopicConfig(realm.ledgerTopic, 'cleanup.policy', 'compact');
  const { code, stdout } = await runIdalloc(['topics', 'check'], realm.env);
  expect(code).toBe(1);
  expect(stdout).toMatch(/fault LEDGER_WEAK: .*cleanup.policy=delete/);
  expect(stdout).toContain(`kafka-configs --alter --entity-type topics --entity-name ${realm.ledgerTopic}`);
  await realm.setTopicConfig(realm.ledgerTopic, 'cleanup.policy', 'delete');
  const fixed = await runIdalloc(['topics', 'check', '--json'], realm.env);
  expect(fixed.code).toBe(0);
  expect(JSON.parse(fixed.stdout)).toMatchObject({ faults: [], differences: [], fixes: [] });
});

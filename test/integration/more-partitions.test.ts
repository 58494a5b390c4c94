import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import { type Env, Page } from '../support/page.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const page = new Page('how-to/pair-of-topics.md', here);
const REQUESTS = 300;
const COUNT = 7;
const FATAL_LEVEL = 60;

let realm: Realm;
let replies: Followed;
let first: readonly WorkerProcess[];
/** The variables of the second pair of topics, as the page sets them. */
let second: Env;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  replies = await realm.follow();
  first = [realm.worker(), realm.worker()];
  await Promise.all(first.map((worker) => worker.ready()));
});

afterAll(() => realm?.[Symbol.asyncDispose]());

/** The page's commands with the names of this realm. */
function here(text: string): string {
  return text.replaceAll(/\bid\./g, `${realm.groupId}.`).replaceAll('idalloc.2', `${realm.groupId}.2`);
}

/** Sends requests to one pair of topics, as its callers do. */
async function ask(env: Env, names: readonly string[]): Promise<void> {
  const messages = names.map((name) => {
    const correlationId = Buffer.from(name);
    return { key: name, value: encodeIdRequest({ count: COUNT, correlationId, replyTopic: realm.replyTopic }) };
  });
  await realm.sendRaw(messages, env.REQUEST_TOPIC);
}

const names = (kind: string) => Array.from({ length: REQUESTS }, (_, i) => `${kind}-${i}`);

async function groupOf(env: Env): Promise<string> {
  const { stdout } = await runIdalloc(['doctor', '--json'], env);
  return JSON.parse(stdout).checks.find(({ name }: { name: string }) => name === 'consumer group').detail;
}

/** The number of different batches of each correlation ID, over all replies so far. */
async function batchesOf(asked: readonly string[]): Promise<readonly number[]> {
  const all = await replies.replies(asked.length);
  return asked.map((name) => new Set(all.get(name)?.map((reply) => String(expandIds(batchOf(reply))))).size);
}

test('the page shows exactly these commands, in this order', () => {
  expect(page.commands.filter((command) => !command.startsWith('export '))).toEqual([
    'idalloc leases',
    'idalloc topics init',
    'idalloc topics acls --principal User:acme-worker --role worker',
    'idalloc topics acls --principal User:acme-client --role client --reply-topic acme.replies.orders',
    'idalloc worker',
    'idalloc doctor',
    'idalloc request --count 3 --correlation-id pair-check',
    'idalloc audit --ledger-topic id.ledger',
  ]);
});

test('after steps 1 to 3 a second pair is served while the first one gets requests', async () => {
  await ask(realm.env, names('before'));
  second = { ...realm.env, ...page.exported((command) => command.includes('.2')) };
  expect(await page.run('idalloc leases', second)).toContain('2 of 32 worker IDs');
  expect(await page.run('idalloc topics init', second)).toContain(`created ${second.REQUEST_TOPIC}`);
  const workers = [realm.worker(second), realm.worker(second)];
  await Promise.all(workers.map((worker) => worker.hasPartitions(12)));
  expect(await groupOf(second)).toMatch(/^t[\w-]+\.2: Stable, 2 members, lag 0$/);
  const answer = await page.run('idalloc request --count 3 --correlation-id pair-check', second);
  expect(answer).toContain('3 for correlation ID pair-check');
  expect(first.map((worker) => worker.gate())).toEqual(['open', 'open']);
});

test('a worker of the second pair that uses the group of the first is refused', async () => {
  const mixed = realm.worker({ ...second, KAFKA_GROUP_ID: realm.groupId });
  await mixed.ended();
  const last = mixed.lines.find(({ level }) => level === FATAL_LEVEL);
  expect(last?.msg).toMatch(/^NAMESPACE_MISMATCH: The group .* KAFKA_GROUP_ID/);
});

test('after callers have moved, the first pair is drained and stopped, and no ID is in two batches', async () => {
  await Promise.all([ask(realm.env, names('last')), ask(second, names('moved'))]);
  const asked = ['before', 'last', 'moved'].flatMap(names);
  const all = await replies.replies(asked.length);
  await expect.poll(() => groupOf(realm.env), { timeout: 60_000 }).toMatch(/2 members, lag 0$/);
  await Promise.all(first.map((worker) => worker.stop()));
  await ask(second, names('after'));
  const everything = [...asked, ...names('after')];
  expect(await batchesOf(everything)).toEqual(everything.map(() => 1));
  const ids = [...(await replies.replies(everything.length)).values()].flatMap(([reply]) =>
    reply === undefined ? [] : expandIds(batchOf(reply)),
  );
  expect([all.size, new Set(ids).size]).toEqual([asked.length, everything.length * COUNT]);
  expect(await page.run('idalloc audit --ledger-topic id.ledger', second)).toMatch(/no problems found/);
});

test('an audit that does not read the ledger of the other pair reports the replies of that pair', async () => {
  const { code, stdout } = await runIdalloc(['audit', '--json'], second);
  expect({ code, counts: JSON.parse(stdout).finding_counts }).toEqual({
    code: 1,
    counts: { UNDECIDED: 2 * REQUESTS },
  });
});

test('a request sent to both pairs gets one batch on each, which an audit reports', async () => {
  const back = realm.worker();
  await back.ready();
  await ask(realm.env, ['before-0']);
  expect((await replies.reply('before-0', 1)).replayed).toBe(true);
  await ask(second, ['before-0']);
  expect((await replies.reply('before-0', 2)).replayed).toBe(false);
  expect(await batchesOf(['before-0'])).toEqual([2]);
  const audit = await runIdalloc(['audit', '--ledger-topic', realm.ledgerTopic, '--json'], second);
  expect(JSON.parse(audit.stdout).finding_counts).toEqual({ SPLIT: 1 });
});

test('a rebuild reads the ledgers of both pairs, and skips one that is named as gone', async () => {
  await using own = await Realm.create(suiteServers());
  const worker = own.worker();
  await own.send([{ correlationId: 'w', count: 1 }]);
  await (await own.follow()).replies(1);
  await worker.stop();
  const further = { REQUEST_TOPIC: `${own.requestTopic}.2`, LEDGER_TOPIC: `${own.ledgerTopic}.2` };
  const env = { ...own.env, ...further, KAFKA_GROUP_ID: `${own.groupId}.2`, REQUEST_PARTITIONS: '6' };
  await runIdalloc(['topics', 'init'], env);
  const other = own.worker(env);
  await other.ready();
  await own.sendRaw(
    ['x', 'y'].map((key) => {
      const value = encodeIdRequest({ count: 1, correlationId: Buffer.from(key), replyTopic: own.replyTopic });
      return { key, value };
    }),
    env.REQUEST_TOPIC,
  );
  await (await own.follow()).replies(3);
  await other.stop();
  const rebuild = async (...more: string[]) => {
    const { code, stdout, stderr } = await runIdalloc(['namespace', 'rebuild', '--yes', '--json', ...more], own.env);
    return { code, stderr, entries: code === 0 ? JSON.parse(stdout).found.ledger.entries : undefined };
  };
  expect(await rebuild()).toMatchObject({ code: 0, entries: 3 });
  await own.admin.deleteTopics({ topics: [env.LEDGER_TOPIC] });
  await expect
    .poll(async () => (await rebuild()).stderr, { timeout: 60_000 })
    .toMatch(/TOPIC_INVALID.*ledger\.2.*--without-ledger/);
  expect(await rebuild('--without-ledger', env.LEDGER_TOPIC)).toEqual({
    code: 0,
    stderr: '',
    entries: 1,
  });
});

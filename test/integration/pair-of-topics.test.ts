import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { decode } from '../../src/client/index.ts';
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

/** The page's commands with the names of this realm. */
function here(text: string): string {
  const own = text.replaceAll(/\bid\./g, `${realm.groupId}.`).replaceAll(/\bacme\b/g, `${realm.groupId}-acme`);
  return own.replaceAll(/\bidalloc\.(2|dc1)\b/g, `${realm.groupId}.$1`);
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

/** The first column of the table that `idalloc request` prints. */
function idsIn(printed: string): bigint[] {
  return [...printed.matchAll(/^ *(\d{15,19}) /gm)].map(([, id = '']) => BigInt(id));
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

test('a second datacenter on the same servers is served beside the first, and its IDs differ in the datacenter field', async () => {
  await using own = await Realm.create(suiteServers());
  realm = own;
  await own.worker().ready();
  const there: Env = { ...realm.env, ...page.exported((command) => command.includes('dc1')) };
  expect(there.DATACENTER_ID).toBe('1');
  expect(realm.env.DATACENTER_ID).not.toBe('1');
  expect(await page.run('idalloc topics init', there)).toContain(`created ${there.REQUEST_TOPIC}`);
  await realm.worker(there).ready();
  const first = await runIdalloc(['request', '--count', '3'], realm.env);
  const answer = await page.run('idalloc request --count 3 --correlation-id pair-check', there);
  const [ids, others] = [idsIn(first.stdout), idsIn(answer)];
  expect([ids.length, others.length]).toEqual([3, 3]);
  expect(new Set(others.map((id) => decode(id).datacenterId))).toEqual(new Set([1]));
  expect(ids.filter((id) => others.includes(id))).toEqual([]);
  expect(await page.run('idalloc audit --ledger-topic id.ledger', there)).toContain('no problems found');
});

describe('beside the first pair', () => {
  beforeAll(async () => {
    realm = await Realm.create(suiteServers());
    replies = await realm.follow();
    first = [realm.worker(), realm.worker()];
    await Promise.all(first.map((worker) => worker.ready()));
  });

  afterAll(() => realm?.[Symbol.asyncDispose]());

  test('after steps 1 to 3 a second pair is served while the first one gets requests', async () => {
    await ask(realm.env, names('before'));
    second = { ...realm.env, ...page.exported((command) => command.includes('.2')) };
    expect(await page.run('idalloc leases', second)).toContain('2 of 32 worker IDs');
    expect(await page.run('idalloc topics init', second)).toContain(`created ${second.REQUEST_TOPIC}`);
    const workers = [realm.worker(second), realm.worker(second)];
    await Promise.all(workers.map((worker) => worker.hasPartitions(12)));
    await expect.poll(() => groupOf(second)).toMatch(/^t[\w-]+\.2: Stable, 2 members, lag 0$/);
    const answer = await page.run('idalloc request --count 3 --correlation-id pair-check', second);
    expect(answer).toContain('3 for correlation ID pair-check');
    await expect.poll(() => first.map((worker) => worker.gate())).toEqual(['open', 'open']);
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
    await expect.poll(() => groupOf(realm.env)).toMatch(/2 members, lag 0$/);
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

  test('a tenant with its own topics is served beside the others, and has no right to their topics', async () => {
    const acme: Env = { ...realm.env, ...page.exported((command) => command.includes('acme')) };
    expect(await page.run('idalloc topics init', acme)).toContain(`created ${acme.REQUEST_TOPIC}`);
    const rights = await Promise.all(
      page.commands.filter((command) => command.startsWith('idalloc topics acls')).map((text) => page.run(text, acme)),
    );
    expect(rights).toHaveLength(2);
    expect(rights.join()).toContain(acme.REQUEST_TOPIC);
    expect(rights.join()).not.toMatch(new RegExp(`${realm.groupId}\\.(requests|ledger|replies)`)); // of the others
    await realm.worker(acme).hasPartitions(3);
    await expect.poll(() => groupOf(acme)).toMatch(/-acme: Stable, 1 member, lag 0$/);
    const answer = await page.run('idalloc request --count 3 --correlation-id pair-check', acme);
    expect(answer).toContain('3 for correlation ID pair-check');
    await ask(acme, ['stray']);
    const letters = await realm.follow(acme.DEAD_LETTER_TOPIC);
    await letters.until('the letter', (seen) => seen.length === 1);
    expect(String(letters.seen[0]?.message.headers?.['kafka_dlt-exception-fqcn'])).toContain('INVALID_REPLY_TOPIC');
    await ask(second, ['other-check']);
    await replies.reply('other-check');
    expect(replies.seen.map(({ message }) => String(message.key))).not.toContain('stray');
    expect(await page.run('idalloc audit --ledger-topic id.ledger', acme)).toMatch(/no problems found/);
  });
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
  await expect.poll(async () => (await rebuild()).stderr).toMatch(/TOPIC_INVALID.*ledger\.2.*--without-ledger/);
  expect(await rebuild('--without-ledger', env.LEDGER_TOPIC)).toEqual({
    code: 0,
    stderr: '',
    entries: 1,
  });
});

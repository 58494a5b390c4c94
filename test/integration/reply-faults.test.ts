import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { DEFAULT_HEADER_NAMES } from '../../src/codec/request-headers.ts';
import type { Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 3;
const ERROR_LEVEL = 50;
/** How long a worker uses what it knows of a reply topic. */
const KNOWN_MS = 60_000;
/** Partition 1, as its header has it. */
const REPLY_PARTITION = Buffer.from([0, 0, 0, 1]);

let realm: Realm;
let worker: WorkerProcess;
let replies: Followed;
let letters: Followed;

const topicOf = (name: string) => `${realm.env.REPLY_TOPIC_PREFIX}${name}`;

beforeAll(async () => {
  realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  [replies, letters] = await Promise.all([realm.follow(), realm.follow(realm.deadLetterTopic)]);
  worker = realm.worker();
  await worker.ready();
});

afterAll(() => realm?.[Symbol.asyncDispose]());

/** Requests a reply on the healthy topic, and waits for it. */
async function asksWell(correlationId: string, partition: number): Promise<void> {
  await realm.send([{ correlationId, count: 1, partition }]);
  expect('batch' in (await replies.reply(correlationId)).reply, correlationId).toBe(true);
}

/** The reason why the `nth` reply to a request could not be delivered. */
async function undeliverable(correlationId: string, nth = 0): Promise<string> {
  const found = () => letters.seen.filter(({ message }) => String(message.key) === correlationId)[nth];
  await letters.until(`dead letter ${nth} of ${correlationId}`, () => found() !== undefined);
  const headers = found()?.message.headers ?? {};
  expect(String(headers['kafka_dlt-exception-fqcn'])).toBe('REPLY_UNDELIVERABLE');
  return String(headers['kafka_dlt-exception-message']);
}

test('a reply topic that is deleted while in use affects no other, and works again when it is recreated', async () => {
  const gone = topicOf('gone');
  await realm.createTopic(gone);
  const before = await realm.follow(gone);
  await realm.send([{ correlationId: 'first', count: 3, replyTopic: gone, partition: 0 }]);
  const first = await before.reply('first');
  await before[Symbol.asyncDispose]();
  await asksWell('well-0', 0);

  await realm.admin.deleteTopics({ topics: [gone] });
  await realm.send([{ correlationId: 'late', count: 3, replyTopic: gone, partition: 0 }]);
  expect(await undeliverable('late')).toMatch(/does not exist|UNKNOWN_TOPIC_OR_PARTITION/);
  // A topic that is new to the producer makes it request the metadata of all its topics.
  for (const name of ['new-1', 'new-2']) {
    await realm.createTopic(topicOf(name));
    const follower = await realm.follow(topicOf(name));
    await realm.send([{ correlationId: name, count: 1, replyTopic: topicOf(name), partition: 0 }]);
    await follower.reply(name);
  }
  for (let partition = 0; partition < PARTITIONS; partition += 1) await asksWell(`after-${partition}`, partition);

  await realm.createTopic(gone);
  const after = await realm.follow(gone);
  let asked = 0;
  await expect
    .poll(
      async () => {
        asked += 1;
        await realm.send([{ correlationId: 'first', count: 3, replyTopic: gone, partition: 0 }]);
        await asksWell(`again-${asked}`, 0);
        return after.seen.length;
      },
      { interval: 500, timeout: 60_000 },
    )
    .toBeGreaterThan(0);
  const again = await after.reply('first');
  expect(again.seen.message.value).toEqual(first.seen.message.value);
});

test('a partition that was added to a reply topic gets replies within seconds', async () => {
  const grown = topicOf('grown');
  await realm.createTopic(grown);
  const follower = await realm.follow(grown);
  await realm.send([{ correlationId: 'before', count: 1, replyTopic: grown, partition: 0 }]);
  await follower.reply('before');
  await realm.admin.createPartitions({ topicPartitions: [{ topic: grown, count: 2 }] });
  let asked = 0;
  await expect
    .poll(
      async () => {
        asked += 1;
        const correlationId = Buffer.from(`grown-${asked}`);
        const value = encodeIdRequest({ count: 1, correlationId, replyTopic: grown });
        const headers = { [DEFAULT_HEADER_NAMES.replyPartition]: REPLY_PARTITION };
        await realm.sendRaw([{ key: correlationId, value, headers, partition: 0 }]);
        await asksWell(`beside-grown-${asked}`, 0);
        return realm.records(grown);
      },
      { interval: 250, timeout: KNOWN_MS / 2 },
    )
    .toBeGreaterThan(1);
});

test('a reply that is too large for its topic fails alone', async () => {
  const small = topicOf('small');
  await realm.createTopic(small, { configs: { 'max.message.bytes': '3000' } });
  const follower = await realm.follow(small);
  const asks = Array.from({ length: 60 }, (_, i) => ({
    correlationId: `small-${i}`,
    count: i === 20 || i === 41 ? 1_000 : 1,
    encoding: 'IDS' as const,
    replyTopic: small,
    partition: 1,
  }));
  await realm.send([...asks, { correlationId: 'behind', count: 1, partition: 1 }]);
  await replies.reply('behind');
  const answered = await follower.replies(58);
  expect([answered.has('small-20'), answered.has('small-41')]).toEqual([false, false]);
  expect([...answered.values()].filter((all) => all.length > 1)).toEqual([]);
  for (const id of ['small-20', 'small-41']) expect(await undeliverable(id)).toContain('MESSAGE_TOO_LARGE');
});

test('replies with 100,000 single IDs fit the default limit of a topic, even several to one partition', async () => {
  const ids = ['large-1', 'large-2', 'large-3'];
  const asks = ids.map((correlationId) => ({ correlationId, count: 100_000, encoding: 'IDS' as const, partition: 2 }));
  await realm.send(asks);
  const all = new Set<bigint>();
  for (const id of ids) {
    const { reply } = await replies.reply(id);
    for (const one of 'batch' in reply ? expandIds(reply.batch) : []) all.add(one);
  }
  expect(all.size).toBe(300_000);
});

test('none of these faults was logged as an error for the operator', () => {
  expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
});

import { afterAll, beforeAll, expect, test } from 'vitest';
import type { DecodedReply, Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const DAY_MS = 86_400_000;
/** Long enough for a reply to reach the brokers on a busy machine. */
const OLDEST_MS = 5_000;

let realm: Realm;
let worker: WorkerProcess;
let replies: Followed;
let others: Followed;
let otherTopic: string;
/** The replies on a topic that refuses old records, whose first request is sent before the other tests. */
let present: Followed;
const old = { correlationId: 'old', count: 2, replyTopic: '' };

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  otherTopic = `${realm.replyTopic}.other`;
  await realm.createTopic(otherTopic);
  old.replyTopic = `${realm.replyTopic}.present`;
  await realm.createTopic(old.replyTopic, { configs: { 'message.timestamp.before.max.ms': String(OLDEST_MS) } });
  worker = realm.worker();
  const topics = [realm.replyTopic, otherTopic, old.replyTopic];
  const [followed] = await Promise.all([Promise.all(topics.map((topic) => realm.follow(topic))), worker.ready()]);
  [replies, others, present] = followed as [Followed, Followed, Followed];
  await realm.send([old]);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

function refusal({ reply }: DecodedReply): string {
  return 'error' in reply ? `${reply.error.code}: ${reply.error.message}` : 'a batch';
}

test('another count under a known correlation ID is a CONFLICT that names it; the batch stays as it was', async () => {
  await realm.send([{ correlationId: 'count', count: 3 }]);
  const first = await replies.reply('count');
  expect(refusal(first)).toBe('a batch');

  await realm.send([{ correlationId: 'count', count: 4 }]);
  const second = await replies.reply('count', 1);
  expect(refusal(second)).toMatch(/^CONFLICT: .*differs in count \(here 4\)/);

  await realm.send([{ correlationId: 'count', count: 3, encoding: 'RANGES' }]);
  const third = await replies.reply('count', 2);
  expect(third.seen.message.value).toEqual(first.seen.message.value);
  expect(third.seen.message.timestamp).toBe(first.seen.message.timestamp);
  expect([first.replayed, third.replayed]).toEqual([false, true]);
});

test('another reply topic is a CONFLICT, sent to that topic; if the count differs too, both are named', async () => {
  await realm.send([{ correlationId: 'topic', count: 3 }]);
  expect(refusal(await replies.reply('topic'))).toBe('a batch');

  await realm.send([{ correlationId: 'topic', count: 3, replyTopic: otherTopic }]);
  expect(refusal(await others.reply('topic'))).toMatch(/^CONFLICT: .*differs in reply_topic \(here .*\.other\):/);

  await realm.send([{ correlationId: 'topic', count: 5, replyTopic: otherTopic }]);
  expect(refusal(await others.reply('topic', 1))).toMatch(/differs in count \(here 5\) and reply_topic/);
});

test('of the requests under one correlation ID in one record batch the first decides, and equal ones share its reply', async () => {
  const asks = [7, 8, 7].map((count) => ({ correlationId: 'together', count, partition: 1 }));
  await realm.send(asks);
  await replies.reply('together', 1);
  await realm.send(asks.slice(0, 1));
  await replies.reply('together', 2);
  const seen = await Promise.all([0, 1, 2].map((nth) => replies.reply('together', nth)));
  expect(seen.map(refusal)).toEqual(['a batch', expect.stringMatching(/^CONFLICT: /), 'a batch']);
  expect(seen[2]?.seen.message.value).toEqual(seen[0]?.seen.message.value);
  expect(seen.map(({ replayed }) => replayed)).toEqual([false, false, true]);
});

test('a known request gets its batch even after it expired; an unknown expired request is EXPIRED', async () => {
  const expiresAtMs = Date.now() - 1;
  await realm.send([{ correlationId: 'known', count: 2, expiresAtMs: expiresAtMs + DAY_MS }]);
  const first = await replies.reply('known');
  await realm.send([
    { correlationId: 'known', count: 2, expiresAtMs },
    { correlationId: 'unknown', count: 2, expiresAtMs },
  ]);
  expect((await replies.reply('known', 1)).seen.message.value).toEqual(first.seen.message.value);
  expect(refusal(await replies.reply('unknown'))).toMatch(/^EXPIRED: /);
});

test('a retry gets the same reply on a topic that refuses old records, at the present time', async () => {
  const first = await present.reply(old.correlationId);
  const isOld = () => Date.now() - Number(first.seen.message.timestamp) > OLDEST_MS;
  await expect.poll(isOld, { timeout: 3 * OLDEST_MS }).toBe(true);
  await realm.send([old]);
  const second = await present.reply(old.correlationId, 1);
  expect(second.seen.message.value).toEqual(first.seen.message.value);
  expect(second.seen.message.key).toEqual(first.seen.message.key);
  expect([first.replayed, second.replayed]).toEqual([false, true]);
  expect(Number(second.seen.message.timestamp) - Number(first.seen.message.timestamp)).toBeGreaterThan(OLDEST_MS);
});

test('neither a conflict nor an expiry is a dead letter, and each is counted by its code', async () => {
  expect(await realm.records(realm.deadLetterTopic)).toBe(0);
  expect(await worker.metric('idalloc_errors_total{code="CONFLICT"}')).toBe(4);
  expect(await worker.metric('idalloc_errors_total{code="EXPIRED"}')).toBe(1);
});

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HOPS } from '../../src/codec/request-headers.ts';
import type { Followed } from '../support/followed.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { type Sender, sendersHere } from '../support/senders.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import { startIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const COUNT = 3;
const PATIENCE_MS = 300_000;
/** For a hang only. */
const LIMIT_MS = 1_200_000;
const ids = Array.from({ length: 1_000 }, (_, i) => `order-${i}`);

/** Clients that hash a key by murmur2, as the worker does, so that no request is forwarded. */
const LIKE_JAVA = ['ClientKafka (NestJS)', 'franz-go', 'kafka-clients (Java)'];

/** One client that sends each correlation ID once. Its trace ID identifies its records and the replies to them. */
interface Round {
  readonly name: string;
  readonly sender: Sender;
  readonly withKey: boolean;
  readonly traceparent: string;
}

function roundsOf(senders: readonly Sender[]): Round[] {
  return [true, false].flatMap((withKey, half) =>
    senders.map((sender, i) => {
      const number = String(1 + half * senders.length + i).padStart(16, '0');
      const name = `${sender.name}${withKey ? '' : ', no key'}`;
      return { name, sender, withKey, traceparent: `00-${number}${number}-${number}-01` };
    }),
  );
}

/** By trace ID: the correlation IDs of the records that `counts` selects. */
function byTrace({ seen }: Followed, counts: (headers: object) => boolean = () => true): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const { message } of seen) {
    const { headers = {}, key } = message;
    if (!counts(headers)) continue;
    const trace = String(headers.traceparent);
    found.set(trace, (found.get(trace) ?? new Set()).add(String(key)));
  }
  return found;
}

/** Resolves when every request is answered: by its own reply, or by that to an equal one that was read with it. */
async function answered(): Promise<void> {
  const left = async () => {
    const committed = [...(await realm.committed()).values()].reduce((sum, offset) => sum + offset, 0);
    return (await realm.records(realm.requestTopic)) - committed;
  };
  await expect.poll(left, { timeout: PATIENCE_MS }).toBe(0);
  await realm.readToEnd(replies);
}

/** Expects that all replies to a correlation ID are the same bytes. */
function expectOneBatchEach(replies: Followed): void {
  const byId = Map.groupBy(replies.seen, ({ message }) => String(message.key));
  expect([...byId.keys()].sort()).toEqual(ids.toSorted());
  const several = [...byId].filter(
    ([, all]) => new Set(all.map(({ message }) => message.value?.toString('hex'))).size > 1,
  );
  expect(several.map(([id]) => id)).toEqual([]);
}

const { senders, missing } = await sendersHere();
const rounds = roundsOf(senders);
const replyTopic = (): string => `${realm.requestTopic}.reply`; // the only reply topic that NestJS uses
let realm: Realm;
let replies: Followed;
let requests: Followed;
let killed: WorkerProcess;
let added: WorkerProcess;

function send({ sender, ...round }: Round): Promise<void> {
  const topics = { requestTopic: realm.requestTopic, replyTopic: replyTopic() };
  return sender.send({ ...round, ...topics, brokers: suiteServers().brokers.join(), ids, count: COUNT });
}

describe.skipIf(senders.length === 0)(`the partitioners of clients${missing}`, () => {
  beforeAll(async () => {
    realm = await Realm.create(suiteServers(), { partitions: 6, env: SHORT_SESSION });
    await realm.createTopic(replyTopic(), { partitions: 6 });
    [replies, requests] = await Promise.all([realm.follow(replyTopic()), realm.follow(realm.requestTopic)]);
    killed = realm.worker();
    await killed.ready();
  });
  afterAll(() => realm?.[Symbol.asyncDispose]());

  test(
    'one correlation ID has one batch, whichever client sends it, while a worker is added and another is killed',
    async () => {
      for (const [i, round] of rounds.entries()) {
        const sending = send(round);
        sending.catch(() => undefined); // it is awaited below
        if (i === 1) {
          added = realm.worker();
          await added.ready();
        }
        if (i === senders.length) {
          await replies.until(`a reply to ${round.name}`, () => byTrace(replies).has(round.traceparent));
          killed.kill('SIGKILL');
        }
        await sending;
      }
      await answered();
      expectOneBatchEach(replies);
    },
    LIMIT_MS,
  );

  test('only clients that hash keys as Java does avoid forwarding', async ({ annotate }) => {
    await realm.readToEnd(requests);
    const forwarded = byTrace(requests, (headers) => HOPS in headers);
    const counts = rounds.map(({ name, traceparent }) => `${name}: ${forwarded.get(traceparent)?.size ?? 0}`);
    await report(annotate, `of ${ids.length} requests were forwarded: ${counts.join(', ')}`);
    const saved = rounds.flatMap(({ name, traceparent }) => (forwarded.has(traceparent) ? [] : [name]));
    const expected = rounds.filter(({ sender, withKey }) => withKey && LIKE_JAVA.includes(sender.name));
    expect(saved).toEqual(expected.map(({ name }) => name));
  });

  test('a replay repeats the same batches', async () => {
    await added.stop();
    const [sent, before] = [await realm.records(realm.requestTopic), replies.seen.length];
    const replay = startIdalloc(['replay', '--from', '1d', '--yes', '--json'], realm.env);
    await replay.printed(/restart the workers now/);
    realm.worker();
    const { code, stdout, stderr } = await replay.ended;
    expect(code, stderr).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ read_again: sent, without_first: 0, refused_again: {}, findings: [] });
    await answered();
    expect(replies.seen.length - before).toBeGreaterThanOrEqual(ids.length);
    expectOneBatchEach(replies);
  });

  test('the audit finds nothing wrong', async () => {
    expect(await realm.command(['audit'])).toMatchObject({ decisions: ids.length, errors: {}, findings: [] });
  });
});

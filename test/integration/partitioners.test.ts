import { crc32 } from 'node:zlib';
import { expect, test } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { batchOf, type DecodedReply, type Followed } from '../support/followed.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const PARTITIONS = 6;
const IDS = 200;
const COUNT = 3;

/** The partition and key that each kind of client chooses. */
const CLIENTS: Readonly<Record<string, (id: string, i: number) => { partition?: number; key: string | null }>> = {
  'murmur2 of the correlation ID, as Java does': (id) => ({ key: id }),
  'CRC-32 of the correlation ID, as librdkafka does': (id) => ({ key: id, partition: crc32(id) % PARTITIONS }),
  'no key, in turn': (_, i) => ({ key: null, partition: i % PARTITIONS }),
  'a key of the sender': (_, i) => ({ key: `customer ${i % 7}` }),
};

const ids = Array.from({ length: IDS }, (_, i) => `order-${i}`);

/** Sends a request for each correlation ID, as this kind of client does. */
function askAs(realm: Realm, place: (id: string, i: number) => { partition?: number; key: string | null }) {
  return realm.sendRaw(
    ids.map((id, i) => {
      const value = encodeIdRequest({ count: COUNT, correlationId: Buffer.from(id), replyTopic: realm.replyTopic });
      return { value, ...place(id, i) };
    }),
  );
}

/** Waits until every request is answered, and expects that all replies to a correlation ID have the same batch. */
async function expectOneBatchEach(realm: Realm, replies: Followed): Promise<void> {
  const left = async () => {
    const committed = [...(await realm.committed()).values()].reduce((sum, offset) => sum + offset, 0);
    return (await realm.records(realm.requestTopic)) - committed;
  };
  await expect.poll(left, { timeout: 240_000 }).toBe(0);
  const end = await realm.records(realm.replyTopic);
  await replies.until('all replies', (seen) => seen.length >= end);
  const all = await replies.replies(IDS);
  const several = [...all].filter(([, own]) => new Set(own.map(firstId)).size > 1);
  expect(several.map(([id]) => id)).toEqual([]);
}

const firstId = (reply: DecodedReply) => batchOf(reply).ranges[0]?.first;

test('one correlation ID has one batch, whichever partitioner its records used, across a replay, a kill and a new worker', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS, env: SHORT_SESSION });
  const [replies, ledger] = [await realm.follow(), await realm.follow(realm.ledgerTopic)];
  const first = realm.worker();
  await first.ready();
  const places = Object.values(CLIENTS);
  await askAs(realm, places[0] as (typeof places)[number]);
  await askAs(realm, places[1] as (typeof places)[number]);
  await expectOneBatchEach(realm, replies);
  const second = realm.worker();
  await askAs(realm, places[2] as (typeof places)[number]);
  await second.ready();
  first.kill('SIGKILL');
  await askAs(realm, places[3] as (typeof places)[number]);
  await expectOneBatchEach(realm, replies);
  expect(await realm.decisions(ledger)).toBe(IDS);

  await second.stop();
  const before = replies.seen.length;
  await realm.rewind();
  await realm.worker().ready();
  await replies.until('a reply to each again', (seen) => seen.length >= before + IDS);
  await expectOneBatchEach(realm, replies);
  expect(await realm.decisions(ledger)).toBe(IDS);
});

import { afterAll, beforeAll, expect, test } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { testKafka } from '../support/test-kafka.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const LAG = 'idalloc_consumer_lag_records{partition="0"}';
const AGE = 'idalloc_request_oldest_unread_seconds{partition="0"}';

let realm: Realm;
let worker: WorkerProcess;
let replies: Followed;

beforeAll(async () => {
  realm = await Realm.create(suiteServers(), { partitions: 1 });
  worker = realm.worker();
  [replies] = await Promise.all([realm.follow(), worker.ready()]);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

const metrics = async (...names: string[]) => await Promise.all(names.map((name) => worker.metric(name)));

test('an open transaction shows as lag and as age of the oldest request, until it ends', async () => {
  await realm.send([{ correlationId: 'before', count: 1 }]);
  batchOf(await replies.reply('before'));
  await expect.poll(() => metrics(LAG, AGE)).toEqual([0, 0]);
  const producer = testKafka(suiteServers().brokers).producer({
    transactionalId: realm.groupId,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  const transaction = await producer.transaction();
  try {
    const request = { count: 1, correlationId: Buffer.from('open'), replyTopic: realm.replyTopic };
    const messages = [{ value: encodeIdRequest(request), partition: 0 }];
    await transaction.send({ topic: realm.requestTopic, messages });
    await realm.send([{ correlationId: 'behind', count: 1 }]);
    await expect.poll(() => metrics(LAG), { timeout: 60_000 }).toEqual([2]);
    const [first = 0] = await metrics(AGE);
    await expect.poll(async () => (await metrics(AGE))[0], { timeout: 60_000 }).toBeGreaterThan(first + 1);
    expect(replies.seen.map(({ message }) => message.key?.toString())).toEqual(['before']);
  } finally {
    await transaction.abort();
    await producer.disconnect();
  }
  batchOf(await replies.reply('behind'));
  await expect.poll(() => metrics(LAG, AGE), { timeout: 60_000 }).toEqual([0, 0]);
});

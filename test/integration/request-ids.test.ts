import { afterAll, beforeAll, expect, test } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

const PARTITIONS = 3;
const HEADER = 'idalloc-request-id';

let realm: Realm;
let replies: Followed;
let ledger: Followed;

beforeAll(async () => {
  realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  await realm.worker().ready();
});

afterAll(() => realm?.[Symbol.asyncDispose]());

/** One try, under a correlation ID of its own, as a framework sends it that invents one. */
function attempt(requestId: string, correlationId: string, partition: number, count = 3) {
  const value = encodeIdRequest({ count, replyTopic: realm.replyTopic });
  return { key: correlationId, value, partition, headers: { [HEADER]: requestId, kafka_correlationId: correlationId } };
}

test('all tries of a request ID get one batch, whatever partition and correlation ID each has', async () => {
  const tries = Array.from({ length: PARTITIONS }, (_, i) => attempt('order-42', `try-${i}`, i));
  await realm.sendRaw(tries);
  const inBody = { count: 3, replyTopic: realm.replyTopic, requestId: Buffer.from('order-42') };
  const body = encodeIdRequest({ ...inBody, correlationId: Buffer.from('in-body') });
  await realm.sendRaw([{ key: 'in-body', value: body, partition: 1 }]);
  const ids = ['try-0', 'try-1', 'try-2', 'in-body'];
  const all = await Promise.all(ids.map((id) => replies.reply(id)));
  expect(all.map(({ reply }) => reply.correlationId.toString())).toEqual(ids);
  expect(all.map(({ seen }) => String(seen.message.headers?.[HEADER]))).toEqual(Array(4).fill('order-42'));
  const batches = all.map((one) => batchOf(one));
  for (const batch of batches) expect(batch).toEqual(batches[0]);
  expect(await realm.decisions(ledger)).toBe(1);
});

test('another count under the request ID is a CONFLICT', async () => {
  await realm.sendRaw([attempt('order-42', 'try-9', 0, 4)]);
  const { reply } = await replies.reply('try-9');
  expect(reply).toMatchObject({ error: { code: 'CONFLICT', message: expect.stringContaining('this request ID') } });
});

test('`trace` finds the replies of all tries, and `audit` finds nothing wrong', async () => {
  const id = String(batchOf(await replies.reply('try-0')).ranges[0]?.first);
  const { stdout } = await runIdalloc(['trace', id, '--json'], realm.env);
  const { correlation_id, replies: found } = JSON.parse(stdout);
  expect(correlation_id).toBe('order-42');
  const tries = found.map((one: { correlation_id: string }) => one.correlation_id).toSorted();
  expect(tries).toEqual(['in-body', 'try-0', 'try-1', 'try-2', 'try-9']);
  const text = (await runIdalloc(['trace', id], realm.env)).stdout;
  expect(text).toMatch(/^request ID {6}order-42$/m);
  expect(text).toContain('with the ID, correlation ID try-1');
  const audit = await runIdalloc(['audit', '--json'], realm.env);
  expect(JSON.parse(audit.stdout)).toMatchObject({ decisions: 1, replies_as_decided: 4, findings: [] });
  expect(audit.code).toBe(0);
});

import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandIds, type IdBatch } from '../../src/codec/id-batch.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { decodeLedgerKey } from '../../src/codec/ledger-key.ts';
import { BACKFILL_MS } from '../../src/core/generator.ts';
import { decompose, tickStartMs } from '../../src/core/layout.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import { DATACENTER_ID, LAYOUT, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { testKafka } from '../support/test-kafka.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const startedMs = Date.now();
let realm: Realm;
let worker: WorkerProcess;
let replies: Followed;
let ledger: Followed;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  worker = realm.worker();
  [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic), worker.ready()]);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

/** Expects that the IDs rise, have the identity that the batch names, and lie between the two times. */
function checkIds(batch: IdBatch, fromMs: number, untilMs: number): void {
  const ids = expandIds(batch);
  expect(ids.every((id, i) => i === 0 || id > (ids[i - 1] ?? id))).toBe(true);
  const parts = ids.map((id) => decompose(LAYOUT, id));
  expect(new Set(parts.map(({ datacenter, worker: workerId }) => `${datacenter}/${workerId}`))).toEqual(
    new Set([`${DATACENTER_ID}/${batch.workerId}`]),
  );
  const times = parts.map(({ ticks }) => tickStartMs(LAYOUT, ticks));
  expect(times[0]).toBeGreaterThanOrEqual(fromMs);
  expect(times.at(-1)).toBeLessThanOrEqual(untilMs);
}

test.for(['RANGES', 'IDS'] as const)('one request is answered with its batch, as %s', async (encoding) => {
  const correlationId = `one-${encoding}`;
  const sentMs = Date.now();
  await realm.send([{ correlationId, count: 5_000, encoding }]);
  const decoded = await replies.reply(correlationId);
  const batch = batchOf(decoded);
  const { message } = decoded.seen;

  expect(decoded.reply.encoding).toBe(encoding);
  expect(decoded.replayed).toBe(false);
  expect(message.key).toEqual(Buffer.from(correlationId));
  expect(message.headers).toEqual({ kafka_correlationId: Buffer.from(correlationId) });

  expect(new Set(expandIds(batch)).size).toBe(5_000);
  checkIds(batch, sentMs - BACKFILL_MS, Date.now());
  expect(batch).toMatchObject({ datacenterId: DATACENTER_ID, epochMs: LAYOUT.epochMs, step: 1n });
  expect(batch.layoutFingerprint).toBe(LAYOUT.fingerprint);
  expect(batch.generatedAtMs).toBeGreaterThanOrEqual(sentMs);
  expect(batch.fence).toBe((await realm.owner(batch.workerId))?.createRevision);

  const isEntry = (key: Buffer | null) => key !== null && decodeLedgerKey(key).equals(Buffer.from(correlationId));
  const entry = () => ledger.seen.find((seen) => isEntry(seen.message.key));
  await ledger.until('the entry', () => entry() !== undefined);
  expect(message.timestamp).toBe(entry()?.message.timestamp);
});

test('100,000 IDs come in one batch, all different, with at most a full millisecond in each range', async () => {
  const correlationId = 'many';
  await realm.send([{ correlationId, count: 100_000 }]);
  const batch = batchOf(await replies.reply(correlationId));
  expect(new Set(expandIds(batch)).size).toBe(100_000);
  expect(batch.ranges.length).toBeGreaterThanOrEqual(Math.ceil(100_000 / LAYOUT.sequencesPerTick));
  expect(batch.ranges.every(({ count }) => count <= LAYOUT.sequencesPerTick)).toBe(true);
  checkIds(batch, startedMs, Date.now());
});

test('headers alone are a request; its correlation ID may be any bytes, and its trace headers are copied', async () => {
  const correlationId = Buffer.from([0, 0xff, 0xfe, 0x80, 1]);
  await realm.sendRaw([
    {
      key: correlationId,
      value: Buffer.alloc(0),
      headers: {
        kafka_correlationId: correlationId,
        kafka_replyTopic: realm.replyTopic,
        kafka_replyPartition: Buffer.from([0, 0, 0, 2]),
        'idalloc-count': '3',
        traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      },
    },
  ]);
  const decoded = await replies.reply(correlationId);
  expect(expandIds(batchOf(decoded))).toHaveLength(3);
  expect(decoded.seen.partition).toBe(2);
  expect(decoded.seen.message.headers).toEqual({
    kafka_correlationId: correlationId,
    traceparent: Buffer.from('00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'),
  });
});

test('a request in a transaction is answered once that commits, and never if it aborts; its marker is not counted as lag', async () => {
  const kafka = testKafka(suiteServers().brokers);
  const producer = kafka.producer({ transactionalId: realm.groupId, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  try {
    for (const end of ['commit', 'abort'] as const) {
      const transaction = await producer.transaction();
      const request = { count: 1, correlationId: Buffer.from(end), replyTopic: realm.replyTopic };
      const messages = [{ value: encodeIdRequest(request), partition: 0 }];
      await transaction.send({ topic: realm.requestTopic, messages });
      await transaction[end]();
    }
  } finally {
    await producer.disconnect();
  }
  batchOf(await replies.reply('commit'));
  const open = async () => {
    const ends = await realm.admin.fetchTopicOffsets(realm.requestTopic);
    const committed = await realm.committed();
    const behind = ends.filter(({ partition, high }) => Number(high) > (committed.get(partition) ?? 0));
    return [behind.length, await worker.metric('idalloc_consumer_lag_records{partition="0"}')];
  };
  await expect.poll(open).toEqual([0, 0]);
  expect(replies.seen.some(({ message }) => message.key?.toString() === 'abort')).toBe(false);
});

test('the lease record has exactly its four fields, under a lease', async () => {
  const { workerId } = await worker.ready();
  const owner = await realm.owner(Number(workerId));
  const record = JSON.parse(String(owner?.value));
  expect(record).toEqual({
    assigned_worker_ip: expect.stringMatching(/^[0-9a-f.:]+$/),
    lease_ttl_seconds: 30,
    heartbeat_token: expect.stringMatching(/./),
    granted_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
  });
  expect(Date.parse(record.granted_at)).toBeGreaterThanOrEqual(startedMs);
  expect(owner?.leaseId).not.toBe(0n);
});

import { expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { BACKFILL_MS } from '../../src/core/generator.ts';
import { decompose, tickStartMs } from '../../src/core/layout.ts';
import { batchOf, type DecodedReply, decodeReply, type Followed } from '../support/followed.ts';
import { LAYOUT, Realm, type TestRequest } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const REQUESTS = 10_000;
const PARTITIONS = 12;
const ISSUED = 'idalloc_ids_total';
const REPLAYED = 'idalloc_replays_total';
/** How long a worker retries to send a reply: no reply is appended later after its allocation. */
const LONGEST_SEND_MS = 10_000;

/** IDs of a reply, and the append time of its record by the broker's clock, which the workers share here. */
interface Visible {
  readonly ids: readonly bigint[];
  readonly generatedAtMs: number;
  readonly publishedAtMs: number;
}

function visible(decoded: DecodedReply): Visible {
  const batch = batchOf(decoded);
  const publishedAtMs = Number(decoded.seen.message.timestamp);
  return { ids: expandIds(batch), generatedAtMs: batch.generatedAtMs, publishedAtMs };
}

function timeOf(id: bigint | undefined): number {
  return tickStartMs(LAYOUT, decompose(LAYOUT, id ?? 0n).ticks);
}

/** The most by which the time of an ID lies below the time of an ID that was visible earlier. */
function disorderMs(replies: readonly Visible[]): number {
  let highestMs = 0;
  let disorder = 0;
  for (const { ids } of replies) {
    disorder = Math.max(disorder, highestMs - timeOf(ids[0]));
    highestMs = Math.max(highestMs, timeOf(ids.at(-1)));
  }
  return disorder;
}

async function startTwo(realm: Realm): Promise<readonly WorkerProcess[]> {
  const workers = [realm.worker(), realm.worker()];
  await Promise.all(workers.map((worker) => worker.hasPartitions(PARTITIONS / 2)));
  return workers;
}

async function sumOf(workers: readonly WorkerProcess[], metric: string): Promise<number> {
  const values = await Promise.all(workers.map((worker) => worker.metric(metric)));
  return values.reduce((sum, value) => sum + value, 0);
}

/**
 * Sends all requests. Their replies go to one partition, with the broker's time: its order is the order of visibility.
 */
async function sendAll(realm: Realm, replyTopic: string): Promise<readonly TestRequest[]> {
  await realm.createTopic(replyTopic, { configs: { 'message.timestamp.type': 'LogAppendTime' } });
  const asks = Array.from({ length: REQUESTS }, (_, i) => ({
    correlationId: `request-${i}`,
    count: 1 + (i % 9),
    encoding: i % 2 === 0 ? ('RANGES' as const) : ('IDS' as const),
    replyTopic,
  }));
  await realm.send(asks);
  return asks;
}

function checkUnique(asks: readonly TestRequest[], answered: ReadonlyMap<string, readonly DecodedReply[]>): number {
  const all = asks.flatMap(({ correlationId, count }) => {
    const [first] = answered.get(correlationId) ?? [];
    if (first === undefined) throw new Error(`no reply to ${correlationId}`);
    const { ids } = visible(first);
    expect(ids).toHaveLength(count);
    return ids;
  });
  expect(new Set(all).size).toBe(all.length);
  return all.length;
}

/**
 * An ID becomes visible after its time: by at most the back-fill window plus the time from its allocation to the append
 * of the reply. The workers share one clock and use no future ticks, so no earlier visible ID has a time after that
 * append. So the disorder is at most the age of the oldest IDs when their reply was appended.
 */
function checkOrder(replies: readonly Visible[]): number {
  for (const { ids, generatedAtMs } of replies) expect(timeOf(ids.at(-1))).toBeLessThanOrEqual(generatedAtMs);
  const oldestMs = Math.max(...replies.map(({ ids, publishedAtMs }) => publishedAtMs - timeOf(ids[0])));
  expect(oldestMs).toBeLessThanOrEqual(LONGEST_SEND_MS + BACKFILL_MS);
  const disorder = disorderMs(replies);
  expect(disorder).toBeLessThanOrEqual(oldestMs);
  return disorder;
}

/** Expects that new processes answer each request again, with the same bytes, marked as a replay. */
async function checkReplay(replies: Followed, before: number): Promise<void> {
  const answeredAgain = new Set<string>();
  let counted = before;
  await replies.until(`replays of ${REQUESTS} requests`, (seen) => {
    for (; counted < seen.length; counted += 1) answeredAgain.add(String(seen[counted]?.message.key));
    return answeredAgain.size === REQUESTS;
  });
  const first = new Map(replies.seen.slice(0, before).map(({ message }) => [String(message.key), message]));
  for (const again of replies.seen.slice(before)) {
    const original = first.get(String(again.message.key));
    expect(again.message.value?.equals(original?.value ?? Buffer.alloc(0))).toBe(true);
    expect(again.message.key?.equals(original?.key ?? Buffer.alloc(0))).toBe(true);
    expect(decodeReply(again).replayed).toBe(true);
  }
}

test('10,000 requests over 12 partitions and two workers get one batch each, and the same bytes when they are read again', async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const replyTopic = `${realm.replyTopic}.visible`;
  const workers = await startTwo(realm);
  const askedMs = performance.now();
  const asks = await sendAll(realm, replyTopic);
  const replies = await realm.follow(replyTopic);
  const answered = await replies.replies(REQUESTS);
  await annotate(`all answered after ${Math.round(performance.now() - askedMs)} ms`);

  const ids = checkUnique(asks, answered);
  const disorder = checkOrder(replies.seen.map(decodeReply).map(visible));
  await annotate(`IDs were visible out of order by at most ${disorder} ms`);
  expect(await sumOf(workers, ISSUED)).toBe(ids);
  for (const worker of workers) expect(await worker.metric(ISSUED)).toBeGreaterThan(0);

  await Promise.all(workers.map((worker) => worker.stop()));
  const ledger = await realm.follow(realm.ledgerTopic);
  const decisions = await realm.decisions(ledger);
  expect(decisions).toBeGreaterThanOrEqual(REQUESTS);
  const before = replies.seen.length;
  await realm.admin.resetOffsets({ groupId: realm.groupId, topic: realm.requestTopic, earliest: true });

  const successors = await startTwo(realm);
  await checkReplay(replies, before);
  expect(await sumOf(successors, ISSUED)).toBe(0);
  expect(await sumOf(successors, REPLAYED)).toBeGreaterThanOrEqual(REQUESTS);
  expect(await realm.decisions(ledger)).toBe(decisions);
});

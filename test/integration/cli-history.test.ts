import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandIds, type IdBatch } from '../../src/codec/id-batch.ts';
import { encodeIdReply } from '../../src/codec/id-reply.ts';
import { decodeLedgerEntry, encodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import type { Followed } from '../support/followed.ts';
import { DATACENTER_ID, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { testKafka } from '../support/test-kafka.ts';
import { type LogLine, runIdalloc, startIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const REQUESTS = 300;
const COUNT = 9;
const MISPLACED = 20;
/** The broker would abort the transaction before a worker has started on a busy machine. */
const TRANSACTION_MS = 600_000;

let realm: Realm;
let replies: Followed;
let ready: LogLine;
let worker: WorkerProcess;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  replies = await realm.follow();
  worker = realm.worker();
  ready = await worker.ready();
  await realm.send(Array.from({ length: REQUESTS }, (_, i) => ({ correlationId: `c${i}`, count: COUNT })));
  await replies.replies(REQUESTS);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

/** The batch of a request, with a first range that lies `ms` before its own. */
async function earlier(correlationId: string, ms: bigint): Promise<IdBatch> {
  const batch = await replies.batch(correlationId);
  return { ...batch, ranges: batch.ranges.map(({ first, count }) => ({ first: first - (ms << 22n), count })) };
}

/** Appends a reply that no worker sent. */
async function forge(correlationId: string, batch: IdBatch): Promise<void> {
  const value = encodeIdReply({ correlationId: Buffer.from(correlationId), batch }, 'RANGES');
  await realm.sendRaw([{ key: correlationId, value, partition: 0 }], realm.replyTopic);
}

async function refusal(args: readonly string[], env: Readonly<Record<string, string>> = realm.env): Promise<string> {
  const { code, stdout, stderr } = await runIdalloc(args, env);
  expect({ code, stdout }, stderr).toEqual({ code: 1, stdout: '' });
  return stderr;
}

async function committedSum(): Promise<number> {
  return [...(await realm.committed()).values()].reduce((sum, offset) => sum + offset, 0);
}

test('an ID leads to its request, its ledger entry, its worker and all its replies', async () => {
  await realm.send([{ correlationId: 'c17', count: COUNT }]);
  const { seen } = await replies.reply('c17');
  const again = (await replies.reply('c17', 1)).seen;
  const id = expandIds(await replies.batch('c17'))[4];
  const found = await realm.command(['trace', String(id), '--all-replies']);
  expect(found).toMatchObject({
    id: String(id),
    correlation_id: 'c17',
    count: COUNT,
    index: 4,
    datacenter_id: DATACENTER_ID,
    worker_id: ready.workerId,
    fence: ready.fence,
    ledger: { topic: realm.ledgerTopic, decides: true },
    reply_topic: realm.replyTopic,
    replies: [seen, again].map(({ partition, offset }) => ({ partition, offset, has_id: true })),
  });
  const requests = await realm.follow(realm.requestTopic);
  await realm.readToEnd(requests);
  const { partition, offset } = found.request;
  const asked = requests.seen.find((one) => one.partition === partition && one.offset === offset);
  expect(String(asked?.message.key)).toBe('c17');
  const { stdout } = await runIdalloc(['trace', String(id)], realm.env);
  expect(stdout).toMatch(
    /number 5 of 9\ncorrelation ID {2}c17\nrequest .*\nallocated .*\nledger .* decides\n(reply .*with the ID\n)+$/,
  );
  expect(await refusal(['trace', '55325805773398016'])).toMatch(/^NOT_FOUND: .*a gap/);
});

test('leases shows the holder, its fence and a ceiling ahead of the clock', async () => {
  const view = await realm.command(['leases']);
  expect(view).toMatchObject({ layout: 'default', datacenter_id: DATACENTER_ID, pool: { first: 0, last: 31 } });
  expect(view.leases).toMatchObject([
    { worker_id: ready.workerId, holder: { fence: ready.fence, lease_ttl_seconds: 30 }, ceiling: expect.any(String) },
  ]);
  expect(view.leases[0].ceiling_ahead_ms).toBeGreaterThan(0);
  expect(view.leases[0].ceiling_ahead_ms).toBeLessThanOrEqual(25_000);
  const { stdout: text } = await runIdalloc(['leases', '--all'], realm.env);
  expect(text).toContain('1 of 32 worker IDs (0..31) are held');
  expect(text.trim().split('\n')).toHaveLength(35);
});

test('evict refuses without --yes and a terminal; with --yes it takes the worker ID away and leaves the ceiling', async () => {
  const workerId = Number(ready.workerId);
  const evict = ['leases', 'evict', String(workerId)];
  expect(await refusal(evict)).toMatch(/^NOT_CONFIRMED: .*--yes/);
  expect(await realm.owner(workerId)).toBeDefined();
  const ceiling = await realm.ceiling(workerId);

  const logged = worker.lines.length;
  const evicted = { worker_id: workerId, fence: ready.fence, evicted: true };
  expect(await realm.command([...evict, '--yes'])).toEqual(evicted);
  expect((await realm.ceiling(workerId)).ticks).toBeGreaterThanOrEqual(ceiling.ticks);

  // The worker notices, acquires an identity again and continues to serve.
  await worker.line(({ msg }) => msg === 'worker ID acquired', logged);
  await realm.send([{ correlationId: 'after', count: 1 }]);
  expect(String((await replies.batch('after')).fence)).not.toBe(ready.fence);
  // The worker has one of them at random.
  const free = (await realm.owner(31)) === undefined ? '31' : '30';
  expect(await refusal(['leases', 'evict', free, '--yes'])).toMatch(/^NOT_FOUND: /);
});

test('replay refuses while a worker is a member of the group; it changes nothing unless it is told to, and skips nothing', async () => {
  expect(await refusal(['replay', '--from', '1d', '--yes'])).toMatch(/^GROUP_ACTIVE: .*1 member \([\d.]+\)/);
  await worker.stop();
  const before = await committedSum();
  expect(before).toBe(REQUESTS + 2);
  const dry = await runIdalloc(['replay', '--from', '1d', '--dry-run'], realm.env);
  expect(dry).toMatchObject({ code: 0, stdout: expect.stringContaining(`${before} requests would be read again`) });
  const { stderr } = await runIdalloc(['replay', '--from', '1d'], realm.env);
  expect(stderr).toMatch(/^NOT_CONFIRMED: .*--yes/);
  expect(await realm.command(['replay', '--partition', '0', '--offset', '9999', '--yes'])).toEqual({ plan: [] });
  expect(await committedSum()).toBe(before);
});

test('replay reads one partition again from an offset, and reports a reply that is not the first batch', async () => {
  const last = Number((await realm.committed()).get(1));
  const args = ['replay', '--partition', '1', '--offset', String(last - 10), '--yes', '--json'];
  const replay = startIdalloc(args, realm.env);
  await replay.printed(/restart the workers now/);
  // A foreign process answers one of the requests while it is read again.
  await forge('c1', await earlier('c1', 5_000n));
  worker = realm.worker();
  const { code, stdout } = await replay.ended;
  expect(code).toBe(1);
  expect(JSON.parse(stdout)).toMatchObject({ read_again: 10, repeated: 10, finding_counts: { DIVERGENT: 1 } });
  await worker.stop();
});

test('replay waits for requests that were forwarded to other partitions, even behind an open transaction', async () => {
  await using own = await Realm.create(suiteServers());
  const answers = await own.follow();
  const [from, home] = [0, 1];
  const homed = Array.from({ length: 1_000 }, (_, i) => `f${i}`).filter(
    (name) => partitionFor(Buffer.from(name), 3, () => 0) === home,
  );
  const before = own.worker();
  await own.send(homed.slice(0, MISPLACED).map((correlationId) => ({ correlationId, count: 2, partition: from })));
  await answers.replies(MISPLACED);
  await before.stop();

  // Readers of committed records stop at an open transaction, and forwarded requests are appended after it.
  const producer = testKafka(suiteServers().brokers).producer({
    transactionalId: own.groupId,
    idempotent: true,
    maxInFlightRequests: 1,
    transactionTimeout: TRANSACTION_MS,
  });
  await producer.connect();
  const transaction = await producer.transaction();
  try {
    const replay = startIdalloc(['replay', '--partition', `${from}`, '--offset', '0', '--yes', '--json'], own.env);
    await replay.printed(/restart the workers now/);
    await transaction.send({ topic: own.requestTopic, messages: [{ value: 'x', partition: home }] });
    const after = own.worker();
    await replay.printed(new RegExp(`waiting for ${MISPLACED} forwarded requests`));
    expect(answers.seen).toHaveLength(MISPLACED);
    await transaction.abort();
    const { code, stdout, stderr } = await replay.ended;
    expect(code, stderr).toBe(0);
    const seen = { read_again: MISPLACED, forwarded: MISPLACED, repeated: MISPLACED, findings: [] };
    expect(JSON.parse(stdout)).toMatchObject(seen);
    await after.stop();
  } finally {
    if (transaction.isActive()) await transaction.abort();
    await producer.disconnect();
  }
});

test('replay gives up when no worker reads the requests, and prints how many are left', async () => {
  const { code, stderr } = await runIdalloc(['replay', '--from', '1d', '--yes', '--stall-ms', '1000'], realm.env);
  const left = `; ${REQUESTS + 2} requests`;
  expect({ code, stderr }).toEqual({
    code: 69,
    stderr: expect.stringMatching(new RegExp(`NO_REPLY: workers made no progress for 1000 ms .*${left}`)),
  });
  // The offsets stay reset, so the next worker reads the requests.
  expect(await committedSum()).toBe(0);
});

test('trace shows that a losing entry does not decide', async () => {
  const ledger = await realm.follow(realm.ledgerTopic);
  await realm.readToEnd(ledger);
  const winner = ledger.seen.find(({ message }) => String(message.key?.subarray(1)) === 'c9');
  const entry = decodeLedgerEntry(winner?.message.value as Buffer);
  if (winner === undefined || entry.kind !== 'batch') throw new Error('no entry');
  const batch = await earlier('c9', 2_000n);
  const value = encodeLedgerEntry({ ...entry, batch });
  await realm.sendRaw([{ key: winner.message.key, value, partition: winner.partition }], realm.ledgerTopic);
  const found = await realm.command(['trace', String(batch.ranges[0]?.first)]);
  expect(found).toMatchObject({ correlation_id: 'c9', ledger: { decides: false } });
});

test('audit names both batches of a forged reply with IDs of another batch, and leaves no files behind', async () => {
  const batch = await replies.batch('c7');
  await forge('forged', { ...batch, ranges: [{ first: (batch.ranges[0]?.first ?? 0n) + 1n, count: 2 }] });
  const place = mkdtempSync(join(tmpdir(), 'idalloc-test-'));
  const found = await realm.command(['audit', '--temp-dir', place], 1);
  rmdirSync(place); // fails unless the directory is empty
  expect(found).toMatchObject({ losers: 1, finding_counts: { OVERLAP: 1, UNDECIDED: 1, DIVERGENT: 1 } });
  const overlap = found.findings.find(({ code }: { code: string }) => code === 'OVERLAP');
  const named = overlap.batches.map((found: Record<string, unknown>) => [found.source, found.correlation_id]);
  expect(new Set(named.map(String))).toEqual(new Set(['ledger,c7', 'reply,forged']));
  const limited = await runIdalloc(['audit', '--max-findings', '1'], realm.env);
  expect(limited.stdout).toMatch(/and \d+ more/);
  const { code, stderr } = await runIdalloc(['audit', '--temp-dir', '/nowhere'], realm.env);
  expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringContaining('--temp-dir') });
});

test('a command exits with 69 when no broker answers', async () => {
  const { code, stdout } = await runIdalloc(['audit', '--json'], { KAFKA_BROKERS: '127.0.0.1:1' });
  expect({ code, view: JSON.parse(stdout) }).toMatchObject({
    code: 69,
    view: { error: { code: 'KAFKA_UNAVAILABLE' } },
  });
});

test.each([
  [['audit'], 'LEDGER_TOPIC'],
  [['audit', '--reply-topic', 'nowhere'], 'NONE'],
  [['trace', '1'], 'LEDGER_TOPIC'],
  [['replay', '--from', '1h', '--dry-run'], 'LEDGER_TOPIC'],
  [['replay', '--from', '1h', '--dry-run'], 'REQUEST_TOPIC'],
  [['deadletters', 'list'], 'DEAD_LETTER_TOPIC'],
])('%s exits with 1 and names a topic that does not exist (%s)', async (args, variable) => {
  const stderr = await refusal(args, { ...realm.env, [variable]: 'nowhere' });
  expect(stderr).toMatch(/^TOPIC_INVALID: topic 'nowhere' does not exist[^\n]*\n$/);
});

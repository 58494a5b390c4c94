import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { decodeLedgerEntry, encodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import type { Followed } from '../support/followed.ts';
import { DATACENTER_ID, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { LogLine, WorkerProcess } from '../support/worker-process.ts';
import { runIdalloc } from '../support/worker-process.ts';

let realm: Realm;
let replies: Followed;
let ready: LogLine;
let worker: WorkerProcess;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  replies = await realm.follow();
  worker = realm.worker();
  ready = await worker.ready();
  await realm.send(Array.from({ length: 50 }, (_, i) => ({ correlationId: `c${i}`, count: 9 })));
  await replies.replies(50);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

async function idsOf(correlationId: string): Promise<readonly bigint[]> {
  return expandIds(await replies.batch(correlationId));
}

async function trace(id: bigint, ...more: string[]) {
  const { code, stdout, stderr } = await runIdalloc(['trace', String(id), '--json', ...more], realm.env);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout);
}

test('an ID leads to its request, its ledger entry, its worker and its reply', async () => {
  const id = (await idsOf('c17'))[4] as bigint;
  const { seen } = await replies.reply('c17');
  const found = await trace(id);
  expect(found).toMatchObject({
    id: String(id),
    correlation_id: 'c17',
    count: 9,
    index: 4,
    datacenter_id: DATACENTER_ID,
    worker_id: ready.workerId,
    fence: ready.fence,
    ledger: { topic: realm.ledgerTopic, decides: true },
    reply_topic: realm.replyTopic,
    replies: [{ partition: seen.partition, offset: seen.offset, has_id: true }],
  });
  const requests = await realm.follow(realm.requestTopic);
  const { partition, offset } = found.request;
  await requests.until('the request', (all) => all.some((one) => one.partition === partition && one.offset === offset));
  const asked = requests.seen.find((one) => one.partition === partition && one.offset === offset);
  expect(String(asked?.message.key)).toBe('c17');
});

test('trace prints the same for people', async () => {
  const [id] = await idsOf('c3');
  const { code, stdout } = await runIdalloc(['trace', String(id)], realm.env);
  expect(code).toBe(0);
  expect(stdout).toMatch(
    /number 1 of 9\ncorrelation ID {2}c3\nrequest .*\nallocated .*\nledger .* decides\nreply .*with the ID\n$/,
  );
});

test('trace finds a second reply with --all-replies', async () => {
  await realm.send([{ correlationId: 'c5', count: 9 }]);
  await replies.reply('c5', 1);
  const [id] = await idsOf('c5');
  expect((await trace(id as bigint, '--all-replies')).replies).toHaveLength(2);
});

test('trace shows that a losing entry does not decide', async () => {
  const ledger = await realm.follow(realm.ledgerTopic);
  await ledger.until('the entry', (all) => all.some(({ message }) => String(message.key?.subarray(1)) === 'c9'));
  const winner = ledger.seen.find(({ message }) => String(message.key?.subarray(1)) === 'c9');
  const entry = decodeLedgerEntry(winner?.message.value as Buffer);
  if (winner === undefined || entry.kind !== 'batch') throw new Error('no entry');
  const ranges = entry.batch.ranges.map(({ first, count }) => ({ first: first - (2_000n << 22n), count }));
  const value = encodeLedgerEntry({ ...entry, batch: { ...entry.batch, ranges } });
  const { partition } = winner;
  await realm.sendRaw([{ key: winner.message.key, value, partition }], realm.ledgerTopic);
  const found = await trace(ranges[0]?.first as bigint);
  expect(found).toMatchObject({ correlation_id: 'c9', ledger: { decides: false } });
});

test('an ID that was never delivered is NOT_FOUND, with the possible reasons', async () => {
  const { code, stdout, stderr } = await runIdalloc(['trace', '55325805773398016'], realm.env);
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr).toMatch(/^NOT_FOUND: .*a gap/);
});

test('leases shows the holder, its fence and a ceiling ahead of the clock', async () => {
  const { code, stdout } = await runIdalloc(['leases', '--json'], realm.env);
  expect(code).toBe(0);
  const view = JSON.parse(stdout);
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
  const args = ['leases', 'evict', String(workerId)];
  expect(await runIdalloc(args, realm.env)).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^NOT_CONFIRMED: .*--yes/),
  });
  expect(await realm.owner(workerId)).toBeDefined();
  const ceiling = await realm.ceiling(workerId);

  const logged = worker.lines.length;
  const { code, stdout } = await runIdalloc([...args, '--yes', '--json'], realm.env);
  expect({ code, output: JSON.parse(stdout) }).toEqual({
    code: 0,
    output: { worker_id: workerId, fence: ready.fence, evicted: true },
  });
  expect((await realm.ceiling(workerId)).ticks).toBeGreaterThanOrEqual(ceiling.ticks);

  // The worker notices, acquires an identity again and continues to serve.
  await worker.line(({ msg }) => msg === 'gate open', logged);
  await realm.send([{ correlationId: 'after', count: 1 }]);
  const { reply } = await replies.reply('after');
  expect('batch' in reply && String(reply.batch.fence) !== ready.fence).toBe(true);
});

test('evict of a worker ID that is not held is NOT_FOUND', async () => {
  // The worker has one of them at random.
  const free = (await realm.owner(31)) === undefined ? '31' : '30';
  const { code, stderr } = await runIdalloc(['leases', 'evict', free, '--yes'], realm.env);
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^NOT_FOUND: /) });
});

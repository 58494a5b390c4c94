import { afterAll, beforeAll, expect, test } from 'vitest';
import { decodeIdReply, encodeIdReply } from '../../src/codec/id-reply.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import type { Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { testKafka } from '../support/test-kafka.ts';
import { report } from '../support/whole-history.ts';
import { runIdalloc, startIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const REQUESTS = 300;
const MISPLACED = 20;

let realm: Realm;
let replies: Followed;
let worker: WorkerProcess;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  replies = await realm.follow();
  worker = realm.worker();
  await worker.ready();
  await realm.send(Array.from({ length: REQUESTS }, (_, i) => ({ correlationId: `c${i}`, count: 5 })));
  await replies.replies(REQUESTS);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

async function committedSum(): Promise<number> {
  return [...(await realm.committed()).values()].reduce((sum, offset) => sum + offset, 0);
}

test('replay refuses while a worker is a member of the group, and names it', async () => {
  const { code, stderr } = await runIdalloc(['replay', '--from', '1d', '--yes'], realm.env);
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr: expect.stringMatching(/^GROUP_ACTIVE: .*1 member \([\d.]+\)/),
  });
  await worker.stop();
});

test('replay prints how much would be read again, and changes nothing, with --dry-run and without --yes', async () => {
  const before = await committedSum();
  expect(before).toBe(REQUESTS);
  const dry = await runIdalloc(['replay', '--from', '1d', '--dry-run'], realm.env);
  expect(dry).toMatchObject({ code: 0, stdout: expect.stringContaining(`${REQUESTS} requests would be read again`) });
  const asked = await runIdalloc(['replay', '--from', '1d'], realm.env);
  expect(asked).toMatchObject({ code: 1, stderr: expect.stringMatching(/^NOT_CONFIRMED: .*--yes/) });
  expect(await committedSum()).toBe(before);
});

test.each([
  ['neither time nor offset', []],
  ['both', ['--from', '1d', '--offset', '1', '--partition', '0']],
  ['an offset without a partition', ['--offset', '1']],
])('refuses %s', async (_, args) => {
  expect((await runIdalloc(['replay', ...args], realm.env)).code).toBe(2);
});

test('replay never moves an offset forward, so nothing is skipped', async () => {
  const { code, stdout } = await runIdalloc(
    ['replay', '--partition', '0', '--offset', '9999', '--yes', '--json'],
    realm.env,
  );
  expect({ code, output: JSON.parse(stdout) }).toEqual({ code: 0, output: { plan: [] } });
});

test('replay reads all requests again, and each reply repeats the first batch', async ({ annotate }) => {
  const begun = performance.now();
  const replay = startIdalloc(['replay', '--from', '1d', '--yes', '--json'], realm.env);
  await replay.printed(/restart the workers now/);
  worker = realm.worker();
  const { code, stdout, stderr } = await replay.ended;
  await report(annotate, `replay of ${REQUESTS} requests, verified: ${Math.round(performance.now() - begun)} ms`);
  expect(code, stderr).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({
    read_again: REQUESTS,
    forwarded: 0,
    repeated: REQUESTS,
    without_first: 0,
    dead_letters: 0,
    refused_again: {},
    newly_given: { requests: 0, ids: 0, numbers: 0, listed: [] },
    findings: [],
  });
  await realm.readToEnd(replies);
  expect(replies.seen.length).toBeGreaterThanOrEqual(2 * REQUESTS);
  await worker.stop();
});

test('replay reads one partition again from an offset, and reports a reply that is not the first batch', async () => {
  const last = Number((await realm.committed()).get(1));
  // A foreign process answers one of the requests while it is read again.
  const batch = await replies.batch('c1');
  const ranges = batch.ranges.map(({ first, count }) => ({ first: first - (5_000n << 22n), count }));
  const forged = encodeIdReply({ correlationId: Buffer.from('c1'), batch: { ...batch, ranges } }, 'RANGES');
  expect('batch' in decodeIdReply(forged)).toBe(true);
  const args = ['replay', '--partition', '1', '--offset', String(last - 10), '--yes', '--json'];
  const replay = startIdalloc(args, realm.env);
  await replay.printed(/restart the workers now/);
  await realm.sendRaw([{ key: 'c1', value: forged, partition: 0 }], realm.replyTopic);
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
  const asks = homed.slice(0, MISPLACED).map((correlationId) => ({ correlationId, count: 2, partition: from }));
  const before = own.worker();
  await own.send(asks);
  await answers.replies(MISPLACED);
  await before.stop();

  // Readers of committed records stop at an open transaction, and forwarded requests are appended after it.
  const producer = testKafka(suiteServers().brokers).producer({
    transactionalId: own.groupId,
    idempotent: true,
    maxInFlightRequests: 1,
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
    expect(JSON.parse(stdout)).toMatchObject({
      read_again: MISPLACED,
      forwarded: MISPLACED,
      repeated: MISPLACED,
      findings: [],
    });
    await after.stop();
  } finally {
    if (transaction.isActive()) await transaction.abort();
    await producer.disconnect();
  }
});

test('replay gives up when no worker reads the requests, and prints how many are left', async () => {
  const { code, stderr } = await runIdalloc(['replay', '--from', '1d', '--yes', '--stall-ms', '1000'], realm.env);
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr: expect.stringMatching(/NO_REPLY: workers made no progress for 1000 ms .*; 300 requests/),
  });
  // The offsets stay reset, so the next worker reads the requests.
  expect(await committedSum()).toBe(0);
});

import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { decodeIdReply, encodeIdReply } from '../../src/codec/id-reply.ts';
import type { Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import { runIdalloc } from '../support/worker-process.ts';

const REQUESTS = 500;

let realm: Realm;
let replies: Followed;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  replies = await realm.follow();
  const worker = realm.worker();
  await worker.ready();
  const asks = Array.from({ length: REQUESTS }, (_, i) => ({
    correlationId: `c${i}`,
    count: 1 + (i % 50),
    encoding: i % 3 === 0 ? ('IDS' as const) : ('RANGES' as const),
  }));
  // Two in a hundred are repeated, and one correlation ID is sent again with another count.
  await realm.send(asks);
  await replies.replies(REQUESTS);
  // These are sent later: read together, equal ones share a reply.
  await realm.send([...asks.slice(0, 10), { correlationId: 'c3', count: 49 }]);
  await replies.until('all replies', (seen) => seen.length >= REQUESTS + 11);
  await worker.stop();
});

afterAll(() => realm?.[Symbol.asyncDispose]());

async function audit() {
  const { code, stdout, stderr } = await runIdalloc(['audit', '--json'], realm.env);
  expect(stdout, stderr).toMatch(/^\{.*\}\n$/);
  return { code, found: JSON.parse(stdout) };
}

/** Sends a forged reply to the reply topic. */
function forge(key: string, value: Buffer): Promise<unknown> {
  return realm.sendRaw([{ key, value, partition: 0 }], realm.replyTopic);
}

async function batchOf(correlationId: string) {
  const { value } = (await replies.reply(correlationId)).seen.message;
  const reply = decodeIdReply(value as Buffer);
  if (!('batch' in reply)) throw new Error(`${correlationId} has no batch`);
  return reply.batch;
}

test('audit finds nothing wrong with batches of workers', async ({ annotate }) => {
  const begun = performance.now();
  const { code, found } = await audit();
  await report(
    annotate,
    `audit of ${REQUESTS} batches over Kafka, with its start: ${Math.round(performance.now() - begun)} ms`,
  );
  expect({ code, findings: found.findings }).toEqual({ code: 0, findings: [] });
  expect(found).toMatchObject({
    decisions: REQUESTS,
    losers: 0,
    replies: REQUESTS + 11,
    replies_as_decided: REQUESTS + 10,
    errors: { CONFLICT: 1 },
    unknown_layouts: 0,
  });
});

test('audit prints for people that it found nothing wrong', async () => {
  const { code, stdout } = await runIdalloc(['audit'], realm.env);
  expect(code).toBe(0);
  expect(stdout).toContain(`${REQUESTS} decisions, 0 losers`);
  expect(stdout).toContain('no problems found');
});

test('audit names both batches if a forged reply has IDs of another batch, and names a reply without a decision', async () => {
  const batch = await batchOf('c7');
  const [range] = batch.ranges;
  if (range === undefined) throw new Error('a batch without IDs');
  const ranges = [{ first: range.first + 1n, count: 2 }];
  const value = encodeIdReply({ correlationId: Buffer.from('forged'), batch: { ...batch, ranges } }, 'RANGES');
  await forge('forged', value);
  const { code, found } = await audit();
  expect(code).toBe(1);
  expect(found.finding_counts).toEqual({ OVERLAP: 1, UNDECIDED: 1 });
  const overlap = found.findings.find((finding: { code: string }) => finding.code === 'OVERLAP');
  const named = overlap.batches.map((place: Record<string, unknown>) => [place.source, place.correlation_id]);
  expect(new Set(named.map(String))).toEqual(new Set(['ledger,c7', 'reply,forged']));
});

test('audit reports a reply that diverges, IDs that are not of their worker, and a reply that is cut off', async () => {
  const batch = await batchOf('c8');
  const later = {
    ...batch,
    ranges: batch.ranges.map(({ first, count }) => ({ first: first - 4_096n * 1_000n, count })),
  };
  await forge('c8', encodeIdReply({ correlationId: Buffer.from('c8'), batch: later }, 'RANGES'));
  const whole = encodeIdReply({ correlationId: Buffer.from('c9'), batch: await batchOf('c9') }, 'RANGES');
  await forge('c9', whole.subarray(0, -3));
  await forge('c10', whole);
  const { code, found } = await audit();
  expect(code).toBe(1);
  expect(found.finding_counts).toMatchObject({ DIVERGENT: 1, UNREADABLE: 2 });
  expect(found.finding_counts.OUTSIDE_EVIDENCE).toBeGreaterThan(0);
  const limited = await runIdalloc(['audit', '--max-findings', '1'], realm.env);
  expect(limited.code).toBe(1);
  expect(limited.stdout).toMatch(/and \d+ more/);
});

test('audit leaves nothing behind in its temporary directory, and refuses a path that is not a directory', async () => {
  const place = mkdtempSync(join(tmpdir(), 'idalloc-test-'));
  await runIdalloc(['audit', '--temp-dir', place], realm.env);
  rmdirSync(place); // fails unless the directory is empty
  const { code, stderr } = await runIdalloc(['audit', '--temp-dir', '/nowhere'], realm.env);
  expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringContaining('--temp-dir') });
});

test('audit exits with 69 when no broker answers', async () => {
  const { code, stdout } = await runIdalloc(['audit', '--json'], { KAFKA_BROKERS: '127.0.0.1:1' });
  expect({ code, stdout }).toEqual({ code: 69, stdout: '' });
});

test.each([
  ['audit', ['audit'], 'LEDGER_TOPIC'],
  ['audit', ['audit', '--reply-topic', 'id.replies.nowhere'], undefined],
  ['trace', ['trace', '1'], 'LEDGER_TOPIC'],
  ['replay', ['replay', '--from', '1h', '--dry-run'], 'LEDGER_TOPIC'],
  ['replay', ['replay', '--from', '1h', '--dry-run'], 'REQUEST_TOPIC'],
  ['deadletters', ['deadletters', 'list'], 'DEAD_LETTER_TOPIC'],
] as const)('%s exits with 1 and names a topic that does not exist (%s, %s)', async (_name, args, variable) => {
  const topic = variable === undefined ? 'id.replies.nowhere' : 'nowhere';
  const env = variable === undefined ? realm.env : { ...realm.env, [variable]: topic };
  const { code, stdout, stderr } = await runIdalloc([...args], env);
  expect({ code, stdout }, stderr).toEqual({ code: 1, stdout: '' });
  expect(stderr).toMatch(new RegExp(`^TOPIC_INVALID: topic '${topic}' does not exist[^\\n]*\\n$`));
});

import { mkdtempDisposableSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Followed } from '../support/followed.ts';
import { DATACENTER_ID, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { type LogLine, runIdalloc, startIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const REQUESTS = 30;
const COUNT = 5;

let realm: Realm;
let replies: Followed;
let worker: WorkerProcess;
let ready: LogLine;
/** The commands that were run, by their first word. */
const tried = new Set(['worker']);

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  replies = await realm.follow();
  const letters = await realm.follow(realm.deadLetterTopic);
  worker = realm.worker();
  ready = await worker.ready();
  await realm.send(Array.from({ length: REQUESTS }, (_, i) => ({ correlationId: `c${i}`, count: COUNT })));
  await realm.sendRaw([{ key: 'bad', value: 'no request' }]);
  await Promise.all([replies.replies(REQUESTS), letters.until('a dead letter', (seen) => seen.length > 0)]);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

/** Runs a command with --json, and returns what it printed. */
async function run(...args: readonly string[]) {
  tried.add(args[0] ?? '');
  return await realm.command(args);
}

test('an ID that was requested is decoded, lies in the range of its time, and leads back to its request', async () => {
  const request = await run('request', '--reply-topic', realm.replyTopic, '--correlation-id', 'mine', '--count', '2');
  expect(request).toMatchObject({ correlation_id: 'mine', count: 2, worker_id: ready.workerId, replayed: false });
  const [{ value_string: id, breakdown }] = request.ids;
  const [decoded] = (await run('decode', id)).ids ?? [];
  expect(decoded).toMatchObject({ breakdown });
  const { timestamp_ms: ms } = breakdown;
  const { first, last } = await run('range', '--from', String(ms), '--to', String(ms + 1));
  expect(BigInt(id) >= BigInt(first) && BigInt(id) <= BigInt(last)).toBe(true);
  expect(await run('trace', id)).toMatchObject({ correlation_id: 'mine', datacenter_id: DATACENTER_ID, index: 0 });
  const again = ['--correlation-id', 'mine', '--count', '2'];
  expect(await run('request', '--reply-topic', realm.replyTopic, ...again)).toEqual({ ...request, replayed: true });
});

test.each([
  ['INVALID_COUNT', ['--count', '100001']],
  ['EXPIRED', ['--expires-at', '2026-01-01']],
])('a request that is refused prints %s', async (code, args) => {
  const refused = await runIdalloc(['request', ...args], realm.env);
  expect(refused).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(new RegExp(`^${code}: `)) });
});

test('a sequence that is created gives out its numbers, and the journal has who created it', async () => {
  expect(await run('sequence', 'create', 'invoices')).toMatchObject({ sequence: 'invoices', next: 1 });
  const asked = ['--sequence', 'invoices', '--count', '2', '--correlation-id', 'order-1'];
  const { numbers } = await run('request', '--reply-topic', realm.replyTopic, ...asked);
  expect(numbers).toEqual([
    { value: 1, text: '1' },
    { value: 2, text: '2' },
  ]);
  expect(await run('sequence', 'show', 'invoices')).toMatchObject({ next: 3 });
  const look = ['--sequence', 'invoices', '--correlation-id', 'order-1'];
  expect(await run('trace', ...look)).toMatchObject({ numbers });
  const { entries } = await run('journal');
  const created = { command: 'sequence create', outcome: 'done', who: expect.stringContaining('@') };
  expect(entries).toMatchObject([{ ...created, arguments: { sequence: 'invoices' } }]);
});

test('the commands that look at servers, topics and leases find what is there', async () => {
  const { checks } = await run('doctor');
  expect(checks.filter(({ state }: { state: string }) => state === 'fault')).toEqual([]);
  expect(await run('topics', 'check')).toMatchObject({ faults: [] });
  expect(await run('namespace', 'show')).toMatchObject({ fault: null });
  const { leases } = await run('leases');
  expect(leases).toMatchObject([{ worker_id: ready.workerId }]);
  const letters = [{ code: 'MALFORMED_REQUEST' }];
  expect(await run('deadletters', 'list', '--code', 'MALFORMED_REQUEST')).toMatchObject({ letters });
  expect((await run('layout')).layouts.length).toBeGreaterThan(5);
});

test('a worker shows its status, and a bundle holds that and what the commands print', async () => {
  const { host, port } = new URL(await worker.opsUrl());
  const row = { address: host, ready: true, worker_id: ready.workerId };
  expect(await run('status', host)).toMatchObject({ workers: [row], ready: 1, unreachable: 0 });
  // Its lease has the address of the machine, where it does not listen.
  const all = await run('status', '--all', '--port', port);
  expect(all).toMatchObject({ workers: [{ ready: true, worker_id: ready.workerId }], unreachable: 0 });
  using place = mkdtempDisposableSync(join(tmpdir(), 'idalloc-bundle-'));
  const bundle = await run('bundle', host, '--output', join(place.path, 'bundle.tar.gz'));
  expect(bundle).toMatchObject({ failed: [], parts: expect.arrayContaining(['workers.json', 'doctor.json']) });
});

test('a whole topic that is replayed yields the same batches, and the audit finds nothing wrong', async () => {
  await replies.replies(REQUESTS + 1);
  const before = replies.seen.length;
  await worker.stop();
  tried.add('replay');
  const replay = startIdalloc(['replay', '--from', '1d', '--yes', '--json'], realm.env);
  await replay.printed(/restart the workers now/);
  const again = realm.worker();
  const { code, stdout, stderr } = await replay.ended;
  expect(code, stderr).toBe(0);
  const { repeated, findings } = JSON.parse(stdout);
  expect(findings).toEqual([]);
  // Equal requests that are read together share a reply.
  expect(repeated).toBeGreaterThanOrEqual(REQUESTS + 1);
  await realm.readToEnd(replies);
  expect(replies.seen.length).toBeGreaterThanOrEqual(before + REQUESTS + 2);
  expect(await run('audit')).toMatchObject({ findings: [] });
  await again.stop();
});

/** The commands that the help lists. */
async function listed(): Promise<string[]> {
  const { stdout } = await runIdalloc(['--help'], {});
  const [, list = ''] = /\nCommands:\n((?: {2}.*\n)+)/.exec(stdout) ?? [];
  return [...list.matchAll(/^ {2}([\w-]+)/gm)].map(([, name = '']) => name).filter((name) => name !== 'help');
}

test('the script for a shell has every command of the help', async () => {
  tried.add('completion');
  const { code, stdout } = await runIdalloc(['completion', 'bash'], {});
  expect(code).toBe(0);
  expect((await listed()).filter((name) => !stdout.includes(name))).toEqual([]);
});

test('every command of the help was run', async () => {
  const names = await listed();
  expect(names.length).toBeGreaterThan(10);
  expect([...tried].toSorted()).toEqual(names.toSorted());
});

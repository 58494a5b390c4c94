import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { wholeTopic } from '../../src/adapters/kafka/topics/spans.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import type { Followed } from '../support/followed.ts';
import { ownServers } from '../support/own-servers.ts';
import { Realm, SHORT_SESSION, type TestRequest } from '../support/realm.ts';
import { report } from '../support/whole-history.ts';
import { runIdalloc, startIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const REQUESTS = 100_000;
const PARTITIONS = 6;
const WORKERS = 3;
const SEQUENCES = ['invoices', 'orders', 'tickets'] as const;
const BURST = 1_000;
/** Requests on the way at most: a load that no worker has to catch up with after a fault. */
const IN_FLIGHT = 5_000;
const RESEND_MS = 100;
const LONG_AGO_MS = 1_767_225_600_000;
const LARGE = 20_000;
const TOO_MANY = 100_001;
/** For a hang only. */
const LIMIT_MS = 1_200_000;

const servers = await ownServers({ kafka: true });

let realm: Realm;
/** The reply topic of one request in ten. */
let second: string;
let followed: readonly Followed[];
const directories = Array.from({ length: WORKERS }, () => mkdtempSync(join(tmpdir(), 'idalloc-audited-')));
const workers: WorkerProcess[] = [];
/** All correlation IDs that were sent, and those whose replies go to the second topic. */
const asked = new Set<string>();
const onSecond = new Set<string>();
let sent = 0;
let junk = 0;

beforeAll(async () => {
  realm = await Realm.create(servers, { partitions: PARTITIONS, env: SHORT_SESSION });
  second = `${realm.env.REPLY_TOPIC_PREFIX}second`;
  await realm.createTopic(second, { partitions: 2 });
  followed = await Promise.all([realm.follow(), realm.follow(second)]);
  for (const name of SEQUENCES) await command('sequence', 'create', name, '--format', 'N-{number:7}');
  for (let nth = 0; nth < WORKERS; nth += 1) start(nth);
  await Promise.all(workers.map((worker) => worker.hasPartitions(PARTITIONS / WORKERS)));
});

afterAll(async () => {
  await realm?.[Symbol.asyncDispose]();
  for (const directory of directories) rmSync(directory, { recursive: true, force: true });
});

function start(nth: number): void {
  workers[nth] = realm.worker({ INDEX_DIR: directories[nth] ?? '' });
}

async function command(...args: readonly string[]) {
  const { code, stdout, stderr } = await runIdalloc([...args, '--json'], realm.env);
  expect(stdout, stderr).toMatch(/^\{.*\}\n$/);
  return { code, found: JSON.parse(stdout) };
}

/**
 * The n-th request: mostly for a few IDs; now and then for numbers, for very many IDs, or one that is refused, repeated
 * or a conflict.
 */
function request(nth: number): TestRequest {
  const replyTopic = nth % 10 === 9 ? second : realm.replyTopic;
  const plain = { correlationId: `request-${nth}`, count: 1 + (nth % 7), replyTopic };
  switch (nth % 500) {
    case 1:
      return { ...plain, sequence: 'nowhere' };
    case 2:
      return { ...plain, expiresAtMs: LONG_AGO_MS };
    case 3:
      return { ...request(Math.max(0, nth - 193)), count: 9 }; // an ordinary one, with another count
    case 4:
      return { ...plain, count: TOO_MANY };
    case 5:
      return request(Math.max(0, nth - 191));
    case 6:
      return { ...plain, count: LARGE };
    default:
      return nth % 20 === 0 ? { ...plain, sequence: SEQUENCES[(nth / 20) % SEQUENCES.length] as string } : plain;
  }
}

/** One request in ten lies in another partition than its home. */
function placed(one: TestRequest, nth: number): TestRequest {
  const home = partitionFor(Buffer.from(one.sequence ?? one.correlationId), PARTITIONS, () => 0);
  return { ...one, partition: nth % 10 === 8 ? (home + 1) % PARTITIONS : home };
}

/**
 * Sends the next requests, a burst at a time; a burst that the broker refused is sent again, so that some requests are
 * in the topic twice.
 */
async function load(until: number): Promise<void> {
  while (sent < until) {
    const burst = Array.from({ length: BURST }, (_, i) => placed(request(sent + i), sent + i));
    for (const { correlationId, replyTopic } of burst) {
      asked.add(correlationId);
      if (replyTopic === second) onSecond.add(correlationId);
    }
    await persistently(() => realm.send(burst));
    await persistently(() => realm.sendRaw([{ key: 'junk', value: `junk ${sent}` }]));
    junk += 1;
    sent += BURST;
    await answers(asked.size - IN_FLIGHT);
  }
}

async function persistently(send: () => Promise<unknown>): Promise<void> {
  for (;;) {
    try {
      await send();
      return;
    } catch {
      await pause(RESEND_MS); // the broker is away
    }
  }
}

const heard = new Set<string>();
const read = [0, 0];
function hear(): number {
  for (const [i, { seen }] of followed.entries()) {
    for (; (read[i] ?? 0) < seen.length; read[i] = (read[i] ?? 0) + 1) {
      heard.add(String(seen[read[i] ?? 0]?.message.key));
    }
  }
  return heard.size;
}

/** Resolves when so many correlation IDs have a reply. */
async function answers(least: number): Promise<void> {
  await expect.poll(hear, { timeout: LIMIT_MS / 2, interval: 50 }).toBeGreaterThanOrEqual(least);
}

/** Resolves when nothing waits in the request topic. */
async function quiet(): Promise<void> {
  const left = async () => {
    const [ends, committed] = await Promise.all([wholeTopic(realm.source, realm.requestTopic), realm.committed()]);
    return ends.reduce((sum, { partition, to }) => sum + to - (committed.get(partition) ?? 0), 0);
  };
  await expect.poll(left, { timeout: LIMIT_MS / 2 }).toBe(0);
}

/** The number of the worker that has the partition; while a group rebalances nobody may have it. */
async function ownerOf(partition: number): Promise<number> {
  const find = () => workers.findIndex((worker) => worker.partitions().includes(partition));
  await expect.poll(find).toBeGreaterThanOrEqual(0);
  return find();
}

async function kill(nth: number): Promise<void> {
  workers[nth]?.kill('SIGKILL');
  await workers[nth]?.exit;
}

test(
  `an audit of ${REQUESTS} requests finds nothing, though workers were killed and frozen, the broker was killed, and a partition was replayed`,
  async ({ annotate }) => {
    const begunMs = performance.now();
    const done = load(0.75 * REQUESTS);
    await answers(0.1 * REQUESTS);
    const killed = await ownerOf(0);
    await kill(killed);
    start(killed);

    await answers(0.25 * REQUESTS);
    const frozen = workers[await ownerOf(1)] as WorkerProcess;
    frozen.kill('SIGSTOP');
    await answers(0.35 * REQUESTS);
    frozen.kill('SIGCONT');

    await answers(0.45 * REQUESTS);
    await servers.killKafka();
    await servers.restartKafka();

    await answers(0.6 * REQUESTS);
    const emptied = await ownerOf(2);
    await kill(emptied);
    rmSync(directories[emptied] ?? '', { recursive: true });
    start(emptied);

    await done;
    await quiet();
    for (let nth = 0; nth < WORKERS; nth += 1) await workers[nth]?.stop();
    const args = ['replay', '--partition', '2', '--offset', '0', '--yes', '--no-wait', '--json'];
    const { code, stderr } = await startIdalloc(args, realm.env).ended;
    expect(code, stderr).toBe(0);
    for (let nth = 0; nth < WORKERS; nth += 1) start(nth);

    await load(REQUESTS);
    await answers(asked.size);
    await quiet();
    await Promise.all(workers.map((worker) => worker.stop()));
    const servedMs = performance.now() - begunMs;

    const auditedMs = performance.now();
    const { code: audited, found } = await command('audit');
    await report(
      annotate,
      `${REQUESTS} requests in ${Math.round(servedMs / 1_000)} s, audited in ${Math.round(performance.now() - auditedMs)} ms: ${JSON.stringify({ ...found, findings: undefined, sequences: undefined })}`,
    );
    expect(found.findings).toEqual([]);
    expect(audited).toBe(0);
    // What the broker refused was sent again, and may be in the topic twice.
    expect(found.requests).toBeGreaterThanOrEqual(REQUESTS + junk);
    expect(found).toMatchObject({ answered: found.requests, waiting: 0, unjudged: {} });
    expect(found.dead_letters).toBeGreaterThanOrEqual(junk);
  },
  LIMIT_MS,
);

test('an audit names every request whose reply is gone', async () => {
  await realm.recreate(second);
  const { code, found } = await command('audit');
  expect(code).toBe(1);
  expect(Object.keys(found.finding_counts)).toEqual(['MISSING_REPLY']);
  expect(found.finding_counts.MISSING_REPLY).toBeGreaterThanOrEqual(onSecond.size);
});

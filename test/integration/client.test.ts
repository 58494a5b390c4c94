import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandIds, IdClient, type IdClientOptions } from '../../src/client/index.ts';
import { ownServers } from '../support/own-servers.ts';
import { Realm } from '../support/realm.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { Watchers } from '../support/watchers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

/** Longer than the recovery from a restart of the broker, and than a take-over from a killed worker. */
const PATIENCE_MS = 90_000;
/** The buffer covers this time; at 1,000 IDs a second it has as many IDs. */
const COVERED_MS = 10_000;
/** One test restarts the broker. */
const servers = await ownServers({ kafka: true });
/** A program that sends one request, and closes its client on a signal from the test. */
const CLOSING = join(import.meta.dirname, '../support/closing-client.ts');

let realm: Realm;
let worker: WorkerProcess;

beforeAll(async () => {
  realm = await Realm.create(servers);
  worker = realm.worker();
  await worker.ready();
});

afterAll(() => realm[Symbol.asyncDispose]());

function connect(options: Partial<IdClientOptions> = {}): Promise<IdClient> {
  const { brokers } = servers;
  const { requestTopic, replyTopic } = realm;
  return IdClient.connect({ brokers, requestTopic, replyTopic, ...options } as IdClientOptions);
}

test('a filled buffer returns IDs immediately, each only once and in rising order', async ({ annotate }) => {
  const begunMs = performance.now();
  await using client = await connect();
  const connectedMs = performance.now();
  await client.ready();
  const readyMs = performance.now();
  annotate(`measured: connected in ${connectedMs - begunMs} ms, filled after ${readyMs - connectedMs} ms more`);
  const ids = [client.next(), ...client.take(500), client.next(), ...(await client.takeAsync(3_000))];
  expect(new Set(ids).size).toBe(3_502);
  expect(ids.toSorted((a, b) => (a < b ? -1 : 1))).toEqual(ids);
});

test('the same correlation ID gets the same batch; a refusal has the code of the workers', async () => {
  await using client = await connect({ prefetch: false });
  const correlationId = 'asked twice';
  const first = await client.request({ count: 5, correlationId });
  const again = await client.request({ count: 5, correlationId, encoding: 'IDS' });
  expect(expandIds(first.batch)).toHaveLength(5);
  expect([first.replayed, again.replayed]).toEqual([false, true]);
  expect(again.batch).toEqual(first.batch);
  const refused = { name: 'RequestRefused', code: 'CONFLICT', serverCode: 'CONFLICT' };
  await expect(client.request({ count: 6, correlationId })).rejects.toMatchObject(refused);
  await expect(client.request({ count: 100_001 })).rejects.toMatchObject({ serverCode: 'INVALID_COUNT' });
});

test('each client reads replies on its own partition, from the end of the partition at its start', async () => {
  const replies = await realm.follow();
  const old = await realm.records(realm.replyTopic);
  await replies.until('all earlier replies', (seen) => seen.length >= old);
  const seen: string[] = [];
  const clients = await Promise.all([0, 1, 2].map((partition) => connect({ partition, prefetch: false })));
  for (const [partition, client] of clients.entries()) {
    const correlationId = `at-${partition}`;
    await client.request({ count: 1, correlationId });
    const { seen: reply } = await replies.reply(correlationId);
    seen.push(`${correlationId} ${reply.partition}`);
  }
  expect(seen).toEqual(['at-0 0', 'at-1 1', 'at-2 2']);
  await Promise.all(clients.map((client) => client.close()));
});

test('a request can name another reply topic', async () => {
  const other = `${realm.replyTopic}.other`;
  await realm.createTopic(other);
  await using client = await connect({ prefetch: false });
  const { batch } = await client.request({ count: 2, replyTopic: other });
  expect(expandIds(batch)).toHaveLength(2);
  expect(await realm.records(other)).toBe(1);
  await expect(client.request({ count: 2, replyTopic: `${other}.none`, timeoutMs: 3_000 })).rejects.toMatchObject({
    code: 'TOPIC_INVALID',
  });
});

test.each([[{ replyTopic: 'id.replies.none' }], [{ requestTopic: 'none' }], [{ partition: 99 }]])(
  'connecting with %o fails with TOPIC_INVALID',
  async (options) => {
    await expect(connect(options)).rejects.toMatchObject({ code: 'TOPIC_INVALID' });
  },
);

test('the buffer covers a stop of all workers; requests sent meanwhile are decided once', async ({ annotate }) => {
  const batches: number[] = [];
  const sent: string[] = [];
  const filled = new Watchers();
  await using client = await connect({
    coverSeconds: COVERED_MS / 1_000,
    idsPerSecond: 1_000,
    maxBuffered: 20_000,
    hooks: {
      onBatch: () => {
        batches.push(performance.now());
        filled.changed();
      },
      onRequest: (event) => sent.push(event.correlationId),
    },
  });
  await client.ready();
  // The worst moment for it: just before the buffer would have been refilled.
  client.take(client.buffered - client.lowWater - 1);
  worker.kill('SIGKILL');
  await worker.exit;
  const killedMs = performance.now();
  const correlationId = 'unanswered';
  const unanswered = expect(client.request({ count: 3, correlationId, timeoutMs: 5_000 })).rejects.toMatchObject({
    code: 'NO_REPLY',
  });
  const ids: bigint[] = [];
  for (let elapsedMs = 0; elapsedMs < COVERED_MS; elapsedMs = performance.now() - killedMs) {
    // As many IDs as were due by then, however late the timer was.
    const due = Math.floor(elapsedMs) - ids.length;
    if (due > 0) ids.push(...client.take(due));
    await pause(20);
  }
  ids.push(...client.take(COVERED_MS - ids.length));
  await unanswered;
  expect(new Set(ids).size).toBe(ids.length);

  worker = realm.worker();
  const again = await client.request({ count: 3, correlationId, timeoutMs: PATIENCE_MS });
  expect(sent.filter((id) => id === correlationId).length).toBeGreaterThan(2);
  const sure = await client.request({ count: 3, correlationId });
  expect(sure).toEqual({ ...again, replayed: true });
  const look = () => batches.find((atMs) => atMs > killedMs);
  const atMs = await filled.wait({ what: () => 'a batch', look, timeoutMs: PATIENCE_MS });
  annotate(`measured: ${ids.length} IDs used while no worker ran; filled again ${atMs - killedMs} ms after the kill`);
});

test('waiting callers outlast a restart of the broker, and everything continues', async ({ annotate }) => {
  const faults: string[] = [];
  const onError = (error: Error) => faults.push(error.message);
  await using client = await connect({ idsPerSecond: 10, coverSeconds: 1, hooks: { onError } });
  await client.ready();
  const restarted = servers.restartKafka();
  const waiting = client.takeAsync(200, { timeoutMs: PATIENCE_MS });
  await restarted;
  const begunMs = performance.now();
  expect(await waiting).toHaveLength(200);
  await client.request({ count: 1, timeoutMs: PATIENCE_MS });
  annotate(`measured: answered ${performance.now() - begunMs} ms after the broker was back; faults: ${faults.length}`);
});

test('close() settles waiting callers, though no worker answers', async () => {
  const client = await connect({ idsPerSecond: 10, coverSeconds: 1 });
  await client.ready();
  worker.kill('SIGSTOP');
  try {
    const ends = expect(client.takeAsync(1_000_000)).rejects.toMatchObject({ code: 'CLIENT_CLOSED' });
    await client.close();
    await ends;
  } finally {
    worker.kill('SIGCONT');
  }
});

test('a closed client lets its process exit, even while the broker hangs', async ({ annotate }) => {
  await using proxy = await TcpProxy.start(servers);
  const child = spawn(process.execPath, [CLOSING, proxy.address, realm.requestTopic, realm.replyTopic]);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const exit = once(child, 'exit');
  expect((await lines.next()).value).toBe('answered');
  // Each connection hangs at its next request, and so do some that are opened later: until this test ends, so the
  // process ends before the broker answers. How soon close() settles is shown in virtual time, in
  // test/client/kafka-link.test.ts.
  const held = Array.from({ length: 12 }, () => proxy.holdRequest(() => true, new Promise(() => undefined)));
  await held[0];
  child.stdin.write('close\n');
  const { closedMs } = JSON.parse((await lines.next()).value ?? '');
  const closedAtMs = performance.now();
  expect(await exit).toEqual([0, null]);
  const endedMs = performance.now() - closedAtMs;
  annotate(`measured: closed in ${closedMs} ms, the process exited ${endedMs} ms later`);
});

test.each(['gzip', 'snappy', 'lz4', 'zstd'])(
  'the client reads a reply that the broker compresses with %s',
  async (codec) => {
    const replyTopic = `${realm.replyTopic}.${codec}`;
    await realm.createTopic(replyTopic, { configs: { 'compression.type': codec } });
    await using client = await connect({ replyTopic, prefetch: false });
    const { batch } = await client.request({ count: 1_000, encoding: 'IDS' });
    expect(expandIds(batch)).toHaveLength(1_000);
  },
);

test('a client whose reply topic is recreated goes on', async () => {
  const replyTopic = `${realm.replyTopic}.anew`;
  await realm.createTopic(replyTopic);
  await using client = await connect({ replyTopic, prefetch: false });
  for (let asked = 0; asked < 3; asked += 1) await client.request({ count: 1 });
  await realm.recreate(replyTopic);
  const { batch } = await client.request({ count: 2, timeoutMs: PATIENCE_MS });
  expect(expandIds(batch)).toHaveLength(2);
});

test('clients whose reply topic is recreated with fewer partitions go on, except with a chosen partition that is gone', async () => {
  const replyTopic = `${realm.env.REPLY_TOPIC_PREFIX}recreated`;
  await realm.createTopic(replyTopic, { partitions: 4 });
  const options = { replyTopic, prefetch: false, timeoutMs: PATIENCE_MS };
  const clients = await Promise.all([1, 2, 3].map(() => connect(options)));
  const chosen = await connect({ ...options, partition: 3 });
  for (const client of [...clients, chosen]) await client.request({ count: 1 });

  await realm.admin.deleteTopics({ topics: [replyTopic] });
  const missing = chosen.request({ count: 1, timeoutMs: 10_000 });
  await expect(missing).rejects.toMatchObject({ code: 'TOPIC_INVALID', message: expect.stringContaining(replyTopic) });
  const waiting = clients.map((client) => client.request({ count: 1 }));
  await realm.createTopic(replyTopic, { partitions: 1 });
  const ids = (await Promise.all(waiting)).flatMap(({ batch }) => expandIds(batch));
  expect(new Set(ids).size).toBe(clients.length);
  const gone = chosen.request({ count: 1, timeoutMs: 10_000 });
  await expect(gone).rejects.toMatchObject({
    code: 'TOPIC_INVALID',
    message: expect.stringMatching(/no partition 3: it has 1$/),
  });
  await Promise.all([...clients, chosen].map((client) => client.close()));
});

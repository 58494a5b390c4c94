import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandIds, IdClient, type IdClientOptions } from '../../src/client/index.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';

/** A program that sends one request, and closes its client on a signal from the test. */
const CLOSING = join(import.meta.dirname, '../support/closing-client.ts');

let realm: Realm;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  await realm.worker().ready();
});

afterAll(() => realm[Symbol.asyncDispose]());

function connect(options: Partial<IdClientOptions> = {}): Promise<IdClient> {
  const { brokers } = suiteServers();
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

test('a closed client lets its process exit, even while the broker hangs', async ({ annotate }) => {
  await using proxy = await TcpProxy.start(suiteServers());
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

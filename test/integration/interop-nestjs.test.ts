import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { countIds, expandIds } from '../../src/codec/id-batch.ts';
import { EXAMPLES, nestModules, skipping } from '../support/example-tools.ts';
import { batchOf, decodeReply, type Followed } from '../support/followed.ts';
import { expectInvoices } from '../support/invoices.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const TIMEOUT_MS = 300_000;
const tool = skipping(await nestModules());
const run = promisify(execFile);
let realm: Realm;
let replies: Followed;
let directory: string;

describe.skipIf(tool.why !== undefined)(`NestJS${tool.title}`, () => {
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'idalloc-nestjs-'));
    copyFileSync(join(EXAMPLES, 'nestjs/package.json'), join(directory, 'package.json'));
    copyFileSync(join(EXAMPLES, 'nestjs/requester.js'), join(directory, 'requester.js'));
    symlinkSync(join(tool.path, 'node_modules'), join(directory, 'node_modules'));
    realm = await Realm.create(suiteServers());
    await realm.createTopic(`${realm.requestTopic}.reply`, { partitions: 2 });
    replies = await realm.follow(`${realm.requestTopic}.reply`);
    await realm.worker().ready();
  });
  afterAll(async () => {
    await realm?.[Symbol.asyncDispose]();
    rmSync(directory, { recursive: true, force: true });
  });

  const ask = (count: number, ...more: string[]) => {
    const args = ['requester.js', suiteServers().brokers.join(), realm.requestTopic, String(count)];
    const all = [...args, join(ROOT, 'schemas'), ...more];
    return run(process.execPath, all, { cwd: directory, timeout: TIMEOUT_MS });
  };

  test("ClientKafka's request is answered on its own reply topic, and its observable completes", async () => {
    const { stdout } = await ask(5_000);
    await replies.until('the reply', (seen) => seen.length > 0);
    const [seen] = replies.seen;
    if (seen === undefined) throw new Error('no reply');
    const batch = batchOf(decodeReply(seen));
    expect(JSON.parse(stdout)).toEqual(expandIds(batch).map(String));
    expect(countIds(batch.ranges)).toBe(5_000);
  });

  test('a retry under the same request ID gets the same batch, though ClientKafka sends another correlation ID', async () => {
    const before = replies.seen.length;
    const first = await ask(3, 'order-42');
    const again = await ask(3, 'order-42');
    expect(again.stdout).toBe(first.stdout);
    await replies.until('both replies', (seen) => seen.length >= before + 2);
    const both = replies.seen
      .slice(before)
      .map(({ message: { key, headers } }) => [key, headers?.['idalloc-request-id']]);
    expect(new Set(both.map(([key]) => String(key))).size).toBe(2);
    expect(both.map(([, requestId]) => String(requestId))).toEqual(['order-42', 'order-42']);
  });

  test('numbers invoices', async () => {
    await expectInvoices(realm, async (sequence, id, count) => JSON.parse((await ask(count, id, sequence)).stdout));
  });

  test('an error reply is an error of the observable', async () => {
    await expect(ask(100_001)).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/INVALID_COUNT: count 100001 is above 100000/),
    });
  });
});

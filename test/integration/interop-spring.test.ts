import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { expandIds } from '../../src/codec/id-batch.ts';
import { EXAMPLES, jars, skipping } from '../support/example-tools.ts';
import { batchOf, decodeReply, type Followed } from '../support/followed.ts';
import { expectInvoices } from '../support/invoices.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const TIMEOUT_MS = 300_000;
const PARTITION = 2;
const tool = skipping(await jars('spring'));
const run = promisify(execFile);
let realm: Realm;
let replies: Followed;
let classes: string;

describe.skipIf(tool.why !== undefined)(`Spring${tool.title}`, () => {
  beforeAll(async () => {
    classes = mkdtempSync(join(tmpdir(), 'idalloc-spring-'));
    const compile = ['-cp', join(tool.path, '*'), '-d', classes, join(EXAMPLES, 'spring/Requester.java')];
    const compiled = run('javac', compile, { timeout: TIMEOUT_MS });
    realm = await Realm.create(suiteServers());
    replies = await realm.follow();
    await Promise.all([compiled, realm.worker().ready()]);
  });
  afterAll(async () => {
    await realm?.[Symbol.asyncDispose]();
    rmSync(classes, { recursive: true, force: true });
  });

  const ask = async (count: number, ...more: string[]) => {
    const topics = [suiteServers().brokers.join(), realm.requestTopic, realm.replyTopic, String(PARTITION)];
    const args = ['-cp', `${classes}:${join(tool.path, '*')}`, 'Requester', ...topics, String(count)];
    const { stdout } = await run('java', [...args, join(ROOT, 'schemas'), ...more], { timeout: TIMEOUT_MS });
    return stdout.trimEnd().split('\n');
  };

  test('ReplyingKafkaTemplate gets its reply on the partition that it names', async () => {
    const ids = await ask(5_000);
    await replies.until('the reply', (seen) => seen.length > 0);
    const [seen] = replies.seen;
    if (seen === undefined) throw new Error('no reply');
    expect(ids).toEqual(expandIds(batchOf(decodeReply(seen))).map(String));
    expect(seen.partition).toBe(PARTITION);
  });

  test("a retry of another process gets the same batch, since the request's own ID is the correlation ID", async () => {
    const first = await ask(3, 'order-42');
    expect(await ask(3, 'order-42')).toEqual(first);
    const { seen } = await replies.reply('order-42');
    expect(String(seen.message.headers?.kafka_correlationId)).toBe('order-42');
  });

  test('numbers invoices', async () => {
    await expectInvoices(realm, (sequence, id, count) => ask(count, id, sequence));
  });

  test('an error reaches the client with code and message', async () => {
    await expect(ask(100_001)).rejects.toThrow(/INVALID_COUNT: count 100001 is above 100000/);
  });
});

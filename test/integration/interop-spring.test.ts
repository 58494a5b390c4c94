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

  const ask = (count: number) => {
    const topics = [suiteServers().brokers.join(), realm.requestTopic, realm.replyTopic, String(PARTITION)];
    const args = ['-cp', `${classes}:${join(tool.path, '*')}`, 'Requester', ...topics, String(count)];
    return run('java', [...args, join(ROOT, 'schemas')], { timeout: TIMEOUT_MS });
  };

  test('ReplyingKafkaTemplate gets its reply on the partition that it names, by its binary correlation ID', async () => {
    const { stdout } = await ask(5_000);
    await replies.until('the reply', (seen) => seen.length > 0);
    const [seen] = replies.seen;
    if (seen === undefined) throw new Error('no reply');
    const decoded = decodeReply(seen);
    expect(stdout.trim().split('\n')).toEqual(expandIds(batchOf(decoded)).map(String));
    expect(decoded.reply.correlationId).toHaveLength(16);
    expect(seen.partition).toBe(PARTITION);
  });

  test('an error reaches the client with code and message', async () => {
    await expect(ask(100_001)).rejects.toThrow(/INVALID_COUNT: count 100001 is above 100000/);
  });
});

import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { expandIds } from '../../src/codec/id-batch.ts';
import { EXAMPLES, jars, skipping } from '../support/example-tools.ts';
import type { Followed } from '../support/followed.ts';
import { expectInvoices } from '../support/invoices.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const TIMEOUT_MS = 300_000;
const tool = skipping(await jars('java'));
const run = promisify(execFile);
let realm: Realm;
let replies: Followed;
let classes: string;

describe.skipIf(tool.why !== undefined)(`Java${tool.title}`, () => {
  beforeAll(async () => {
    classes = mkdtempSync(join(tmpdir(), 'idalloc-java-'));
    const compile = ['-cp', join(tool.path, '*'), '-d', classes, join(EXAMPLES, 'java/Requester.java')];
    const compiled = run('javac', compile, { timeout: TIMEOUT_MS });
    realm = await Realm.create(suiteServers());
    replies = await realm.follow();
    await Promise.all([compiled, realm.worker().ready()]);
  });
  afterAll(async () => {
    await realm?.[Symbol.asyncDispose]();
    rmSync(classes, { recursive: true, force: true });
  });

  const ask = async (count: number, ids: readonly string[], replyTopic = realm.replyTopic, ...options: string[]) => {
    const topics = [suiteServers().brokers.join(), realm.requestTopic, replyTopic];
    const args = ['-cp', `${classes}:${join(tool.path, '*')}`, 'Requester', ...options, ...topics, String(count)];
    const { stdout } = await run('java', [...args, join(ROOT, 'schemas'), ...ids], { timeout: TIMEOUT_MS });
    return stdout.trimEnd().split('\n').sort();
  };
  const expected = async (id: string) => `${id} [${expandIds(await replies.batch(id)).join(', ')}]`;

  test('kafka-clients requests several batches at once, expands the ranges, and gets the same ones again', async () => {
    const first = await ask(5_000, ['a', 'b']);
    expect(first).toEqual([await expected('a'), await expected('b')]);
    expect(await ask(5_000, ['b', 'a'])).toEqual(first);
  });

  test('a request without a correlation ID gets one', async () => {
    const [line = ''] = await ask(2, []);
    expect(line).toBe(await expected(line.split(' ')[0] ?? ''));
  });

  test('numbers invoices', async () => {
    await expectInvoices(realm, async (sequence, id, count) => {
      const [line = ''] = await ask(count, [id], realm.replyTopic, `--sequence=${sequence}`);
      return /^\S+ \[(.*)\]$/.exec(line)?.[1]?.split(', ') ?? [];
    });
    const withoutId = ask(1, [], realm.replyTopic, '--sequence=invoices/2027');
    await expect(withoutId).rejects.toThrow(/name the correlation ID/);
  });

  test('an error reaches the client with code and message, and a missing topic is named', async () => {
    await expect(ask(100_001, ['too-many'])).rejects.toThrow(/INVALID_COUNT: count 100001 is above 100000/);
    await expect(ask(1, ['c'], 'nowhere')).rejects.toThrow(/topic nowhere does not exist/);
  });
});

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { expandIds } from '../../src/codec/id-batch.ts';
import { goRequester, skipping } from '../support/example-tools.ts';
import type { Followed } from '../support/followed.ts';
import { expectInvoices } from '../support/invoices.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const TIMEOUT_MS = 300_000;
const tool = skipping(await goRequester());
const run = promisify(execFile);
let realm: Realm;
let replies: Followed;

describe.skipIf(tool.why !== undefined)(`Go${tool.title}`, () => {
  beforeAll(async () => {
    realm = await Realm.create(suiteServers());
    replies = await realm.follow();
    await realm.worker().ready();
  });
  afterAll(() => realm?.[Symbol.asyncDispose]());

  const lines = async (count: number, more: readonly string[], replyTopic = realm.replyTopic) => {
    const topics = ['-request-topic', realm.requestTopic, '-reply-topic', replyTopic];
    const from = ['-brokers', suiteServers().brokers.join(), '-schemas', join(ROOT, 'schemas')];
    const args = [...from, ...topics, '-count', String(count), ...more];
    const { stdout } = await run(join(tool.path, 'request'), args, { timeout: TIMEOUT_MS });
    return stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
  };
  const ask = async (count: number, ids: readonly string[], replyTopic?: string) => {
    const answers = await lines(count, ids, replyTopic);
    return new Map(answers.map((answer): [string, string[]] => [answer.correlation_id, answer.ids]));
  };

  test('franz-go requests several batches at once, expands the ranges, and gets the same ones again', async () => {
    const first = await ask(5_000, ['a', 'b']);
    for (const id of ['a', 'b']) expect(first.get(id)).toEqual(expandIds(await replies.batch(id)).map(String));
    expect(first.get('a')).toHaveLength(5_000);
    expect(await ask(5_000, ['b', 'a'])).toEqual(first);
  });

  test('a request without a correlation ID gets one', async () => {
    const [[id, ids] = ['', []]] = await ask(2, []);
    expect(ids).toEqual(expandIds(await replies.batch(id)).map(String));
  });

  test('numbers invoices', async () => {
    await expectInvoices(
      realm,
      async (sequence, id, count) => (await lines(count, ['-sequence', sequence, id]))[0].numbers,
    );
    await expect(lines(1, ['-sequence', 'invoices/2027'])).rejects.toThrow(/name the correlation ID/);
  });

  test('an error reaches the client with code and message, and a missing topic is named', async () => {
    await expect(ask(100_001, ['too-many'])).rejects.toThrow(/INVALID_COUNT: count 100001 is above 100000/);
    await expect(ask(1, ['c'], 'nowhere')).rejects.toThrow(/topic nowhere: UNKNOWN_TOPIC_OR_PARTITION/);
  });
});

import { mkdtempDisposableSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import { expandIds } from '../../src/codec/id-batch.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const ERROR_LEVEL = 50;
const PATIENCE_MS = 120_000;
const RESEND_MS = 10_000;

let realm: Realm;
let answers: Followed;
let sent = 0;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  answers = await realm.follow();
});

afterAll(() => realm?.[Symbol.asyncDispose]());

/** Asks for more than ten seconds' quota; the answer is the n-th to this correlation ID. */
async function ask(correlationId = `ask-${sent++}`, nth = 0) {
  await realm.send([{ correlationId, count: 12_000 }]);
  return await answers.reply(correlationId, nth);
}

test('quotas from a file change without a restart, and an invalid text leaves the last valid ones', async () => {
  using dir = mkdtempDisposableSync(join(tmpdir(), 'idalloc-quotas-'));
  const file = join(dir.path, 'quotas');
  const replace = (text: string) => {
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
  };
  replace('# none yet');
  const worker = realm.worker({ QUOTAS_FILE: file });
  await worker.ready();
  const code = async () => {
    const { reply } = await ask();
    return 'error' in reply ? reply.error.code : undefined;
  };
  expect([await code(), await code()]).toEqual([undefined, undefined]);
  replace(`${realm.env.REPLY_TOPIC_PREFIX} 1 -`);
  await expect.poll(code).toBe('QUOTA_EXCEEDED');
  replace('elsewhere. 1 -');
  const { problem } = await worker.line(({ variable, level }) => variable === 'QUOTAS_FILE' && level === ERROR_LEVEL);
  expect(problem).toContain("has 'elsewhere.', which matches no allowed reply topic");
  expect(await code()).toBe('QUOTA_EXCEEDED');
  replace('# none any more');
  await expect.poll(code).toBeUndefined();
  await worker.stop();
});

test('a request over its quota gets its batch when it is sent again later, as the client library does, and a known request at any time', async () => {
  await realm.worker({ QUOTAS: `${realm.env.REPLY_TOPIC_PREFIX} 1000 -` }).ready();
  const first = batchOf(await ask('first'));
  const second = await ask('second');
  const waitMs = String(second.seen.message.headers?.['idalloc-retry-after-ms']);
  const message = expect.stringContaining(`after ${waitMs} ms`);
  expect(second.reply).toMatchObject({ error: { code: 'QUOTA_EXCEEDED', message } });
  expect(batchOf(await ask('first', 1))).toEqual(first);
  let tries = 0;
  const served = async () => 'batch' in (await ask('second', ++tries)).reply;
  await expect.poll(served, { interval: 500 }).toBe(true);
  const attempts: number[] = [];
  await using client = await IdClient.connect({
    ...{ brokers: suiteServers().brokers, requestTopic: realm.requestTopic, replyTopic: realm.replyTopic },
    ...{
      prefetch: false,
      resendAfterMs: RESEND_MS,
      hooks: { onRequest: ({ attempt }) => void attempts.push(attempt) },
    },
  });
  await client.request({ count: 20_000, timeoutMs: PATIENCE_MS }); // an overdraft of twenty seconds
  const before = attempts.length;
  const asked = { count: 1_500, correlationId: 'third' };
  // Less than the client's time for a resend, so that one attempt is all.
  await expect(client.request({ ...asked, timeoutMs: RESEND_MS / 2 })).rejects.toMatchObject({
    ...{ name: 'RequestRefused', code: 'QUOTA_EXCEEDED', retryAfterMs: expect.any(Number), ...asked },
  });
  const third = await client.request({ ...asked, timeoutMs: PATIENCE_MS });
  expect(expandIds(third.batch)).toHaveLength(1_500);
  // One for the caller that had no time, and two at least for the one that had.
  expect(attempts.slice(before, before + 3)).toEqual([1, 1, 2]);
});

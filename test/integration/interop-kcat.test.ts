import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { countIds } from '../../src/codec/id-batch.ts';
import { decodeIdReply } from '../../src/codec/id-reply.ts';
import { EXAMPLES, kcat, skipping } from '../support/example-tools.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import { expectInvoices } from '../support/invoices.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const TIMEOUT_MS = 300_000;
const tool = skipping(await kcat());
const run = promisify(execFile);
let realm: Realm;
let replies: Followed;

describe.skipIf(tool.why !== undefined)(`kcat${tool.title}`, () => {
  beforeAll(async () => {
    realm = await Realm.create(suiteServers());
    replies = await realm.follow();
    await realm.worker().ready();
  });
  afterAll(() => realm?.[Symbol.asyncDispose]());

  const printed = async (...more: string[]) => {
    const args = [suiteServers().brokers.join(), realm.requestTopic, realm.replyTopic, ...more];
    return (await run(join(EXAMPLES, 'kcat/request.sh'), args, { timeout: TIMEOUT_MS })).stdout;
  };
  const ask = async (count: string) => Buffer.from((await printed(count)).replaceAll(/\s/g, ''), 'hex');

  test('an empty value with headers is a request, and kcat reads the reply', async () => {
    const value = await ask('7');
    const reply = decodeIdReply(value);
    expect(countIds(batchOf({ reply }).ranges)).toBe(7);
    const { seen } = await replies.reply(reply.correlationId);
    expect(seen.message.value).toEqual(value);
  });

  test('numbers invoices', async () => {
    await expectInvoices(realm, async (sequence, id, count) =>
      (await printed(String(count), id, sequence)).trimEnd().split('\n'),
    );
  });

  test('an invalid count gets an error reply', async () => {
    expect(decodeIdReply(await ask('seven'))).toMatchObject({ error: { code: 'INVALID_COUNT' } });
  });
});

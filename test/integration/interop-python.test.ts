import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { pythonEnvironment, runPython, skipping } from '../support/example-tools.ts';
import type { Followed } from '../support/followed.ts';
import { expectInvoices } from '../support/invoices.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const tool = skipping(await pythonEnvironment());
let realm: Realm;
let replies: Followed;

describe.skipIf(tool.why !== undefined)(`Python${tool.title}`, () => {
  beforeAll(async () => {
    realm = await Realm.create(suiteServers());
    replies = await realm.follow();
    await realm.worker().ready();
  });
  afterAll(() => realm?.[Symbol.asyncDispose]());

  const script = (name: string, ...args: string[]) => runPython(tool.path, name, suiteServers().brokers, args);
  const ask = async (correlationId: string, count: number, ...more: string[]) => {
    const topics = ['--request-topic', realm.requestTopic, '--reply-topic', realm.replyTopic];
    const about = ['--correlation-id', correlationId, '--count', String(count)];
    const { stdout } = await script('request.py', ...topics, ...about, ...more);
    return JSON.parse(stdout);
  };

  test('confluent-kafka and fastavro request IDs, expand the ranges, and get the same ones again', async () => {
    const first = await ask('from-python', 5_000);
    const batch = await replies.batch('from-python');
    expect(first).toEqual({ ids: expandIds(batch).map(String), replayed: false });
    expect(new Set(first.ids).size).toBe(5_000);
    expect(await ask('from-python', 5_000)).toEqual({ ids: first.ids, replayed: true });
  });

  test('an error reaches the client with code and message', async () => {
    await expect(ask('too-many', 100_001)).rejects.toThrow(/INVALID_COUNT: count 100001 is above 100000/);
  });

  test('numbers invoices', async () => {
    await expectInvoices(realm, async (sequence, id, count) => (await ask(id, count, '--sequence', sequence)).numbers);
    const withoutId = script('request.py', '--reply-topic', realm.replyTopic, '--sequence', 'invoices/2027');
    await expect(withoutId).rejects.toThrow(/--sequence needs --correlation-id/);
  });

  test('a missing topic is named, and not mistaken for an empty one', async () => {
    const nowhere = ['--ledger-topic', 'nowhere', realm.replyTopic];
    await expect(script('ledger.py', ...nowhere)).rejects.toThrow(/topic nowhere: .*create it/);
    await expect(script('request.py', '--reply-topic', 'nowhere')).rejects.toThrow(/topic nowhere: .*create it/);
  });

  test('ledger.py reads decisions from the ledger, and finds a reply that differs', async () => {
    const { ids } = await ask('in-the-ledger', 3);
    const check = () => script('ledger.py', '--ids', '--ledger-topic', realm.ledgerTopic, realm.replyTopic);
    const said = JSON.parse((await check()).stdout);
    expect(said).toMatchObject({ faults: [], losers: 0, decided: { 'in-the-ledger': ids } });

    const { seen } = await replies.reply('in-the-ledger');
    const forged = Buffer.from(seen.message.value ?? []);
    const last = forged.indexOf('in-the-ledger') + 'in-the-ledger'.length - 1;
    forged.write('X', last);
    await realm.sendRaw([{ key: 'forged', value: forged }], realm.replyTopic);
    await expect(check()).rejects.toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/differs from the ledger.s decision/),
    });
  });
});

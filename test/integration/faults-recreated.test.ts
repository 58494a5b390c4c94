import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { remembered } from '../support/site.ts';
import { type LogLine, runIdalloc } from '../support/worker-process.ts';

const COUNT = 7;
const ASKED = 20;
const ERROR_LEVEL = 50;

/** Sends requests under these names; returns bytes and IDs of the `nth` reply to each, the first by default. */
async function ask(realm: Realm, replies: Followed, name: string, nth = 0) {
  const ids = Array.from({ length: ASKED }, (_, i) => `${name}-${i}`);
  await realm.send(ids.map((correlationId) => ({ correlationId, count: COUNT })));
  const answers = await Promise.all(ids.map((correlationId) => replies.reply(correlationId, nth)));
  return answers.map((one) => ({ bytes: one.seen.message.value?.toString('hex'), ids: expandIds(batchOf(one)) }));
}

type Answers = Awaited<ReturnType<typeof ask>>;

function expectDisjoint(...answers: readonly Answers[]): void {
  const ids = answers.flat().flatMap((one) => one.ids);
  expect(new Set(ids).size).toBe(ids.length);
}

test('a recreated request topic with an old ledger is refused, until the ledger is recreated as well, and adopted; what waited is FORGOTTEN', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  const replies = await realm.follow();
  const first = realm.worker();
  await first.ready();
  const before = await ask(realm, replies, 'before');
  await remembered(realm);
  await first.stop();
  await realm.recreate(realm.requestTopic);
  await realm.rewind();

  const refusing = realm.worker();
  await realm.send([{ correlationId: 'meanwhile', count: COUNT }]);
  const refusal = await refusing.line(({ code }: LogLine) => code === 'REQUESTS_RECREATED');
  expect(refusal.level).toBe(ERROR_LEVEL);
  expect(refusal.error).toMatch(/recreate the ledger topic too/);
  expect(await realm.records(realm.replyTopic)).toBe(before.length);
  await refusing.stop();

  await realm.recreate(realm.ledgerTopic);
  expect(await runIdalloc(['namespace', 'adopt-cluster', '--yes'], realm.env)).toMatchObject({ code: 0 });
  await realm.worker().ready();
  const { reply } = await replies.reply('meanwhile');
  expect(reply).toMatchObject({ error: { code: 'FORGOTTEN' } });
  expectDisjoint(before, await ask(realm, replies, 'after'));
});

test('when the ledger was recreated while the worker was down, the index is restored, and earlier decisions are FORGOTTEN', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  await using directory = await mkdtempDisposable(join(tmpdir(), 'idalloc-recreated-'));
  const env = { INDEX_DIR: directory.path };
  const replies = await realm.follow();
  const first = realm.worker(env);
  await first.ready();
  const before = await ask(realm, replies, 'before');
  await first.stop();
  await realm.recreate(realm.ledgerTopic);
  await realm.rewind();

  await realm.worker(env).ready();
  for (let i = 0; i < ASKED; i += 1) {
    const { reply } = await replies.reply(`before-${i}`, 1);
    expect(reply).toMatchObject({ error: { code: 'FORGOTTEN' } });
  }
  const after = await ask(realm, replies, 'after');
  expectDisjoint(before, after);
  expect(await ask(realm, replies, 'after', 1)).toEqual(after);
});

test('when the ledger is recreated under a running worker, it restores its index, and each request has one batch again', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  const replies = await realm.follow();
  const worker = realm.worker();
  await worker.ready();
  const before = await ask(realm, replies, 'before');
  await realm.recreate(realm.ledgerTopic);

  const after = await ask(realm, replies, 'after');
  await worker.line(({ msg }) => msg === 'restoring a ledger partition from the log');
  expectDisjoint(before, after);
  expect(await ask(realm, replies, 'after', 1)).toEqual(after);
});

import { expect, test } from 'vitest';
import { expandIds, type IdBatch } from '../../src/codec/id-batch.ts';
import { encodeLedgerEntry, requestHash } from '../../src/codec/ledger-entry.ts';
import { encodeLedgerKey } from '../../src/codec/ledger-key.ts';
import { BATCH } from '../codec/samples.ts';
import { type DecodedReply, decodeReply, type Followed } from '../support/followed.ts';
import { idFor } from '../support/home.ts';
import { Load } from '../support/load.ts';
import { Realm, type TestRequest } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import { runIdalloc } from '../support/worker-process.ts';

const COUNT = 5;
const PARTITIONS = 3;
const ROUNDS = 4;
const TRIMS = 20;
const ANSWERED = 50;

/** An entry for the request at offset 0, by a writer whose index was empty. */
function handwritten(realm: Realm, correlationId: string, first: bigint) {
  const value = encodeLedgerEntry({
    kind: 'batch',
    requestHash: requestHash(COUNT, realm.replyTopic),
    count: COUNT,
    replyTopic: realm.replyTopic,
    requestOffset: 0,
    batch: { ...BATCH, ranges: [{ first, count: COUNT }] },
    framing: 'SINGLE_OBJECT',
    schemaFingerprint: Buffer.alloc(8),
    end: 0,
    through: -1,
  });
  return { key: encodeLedgerKey(Buffer.from(correlationId)), value, partition: 0 };
}

function codeOf({ reply }: DecodedReply): string {
  return 'error' in reply ? reply.error.code : 'a batch';
}

async function codes(replies: Followed, correlationId: string, count: number): Promise<readonly string[]> {
  await replies.reply(correlationId, count - 1);
  return Promise.all(Array.from({ length: count }, async (_, nth) => codeOf(await replies.reply(correlationId, nth))));
}

/** Expects that all replies to a request are one batch or FORGOTTEN, and that no ID is in two batches. */
function checkNeverTwice(requests: readonly TestRequest[], answered: ReadonlyMap<string, readonly DecodedReply[]>) {
  const ids: bigint[] = [];
  let forgotten = 0;
  for (const { correlationId } of requests) {
    const all = answered.get(correlationId) ?? [];
    expect(all.length, `replies to ${correlationId}`).toBeGreaterThan(0);
    const batches = new Map<string | undefined, IdBatch>();
    for (const { reply, seen } of all) {
      if ('batch' in reply) batches.set(seen.message.value?.toString('hex'), reply.batch);
      else expect(reply).toMatchObject({ error: { code: 'FORGOTTEN' } });
    }
    expect(batches.size, `batches of ${correlationId}`).toBeLessThanOrEqual(1);
    if (batches.size === 0) forgotten += 1;
    for (const batch of batches.values()) ids.push(...expandIds(batch));
  }
  expect(new Set(ids).size).toBe(ids.length);
  return { requests: requests.length, forgotten };
}

/** What retention has deleted is no finding. */
async function audited(realm: Realm): Promise<void> {
  const { code, stdout, stderr } = await runIdalloc(['audit', '--json'], realm.env);
  expect(JSON.parse(stdout), stderr).toMatchObject({ findings: [] });
  expect(code).toBe(0);
}

test('a loser never decides after its winner was trimmed, and nothing is decided anew', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  const replies = await realm.follow();
  await realm.send(['decided', 'never-decided'].map((correlationId) => ({ correlationId, count: COUNT })));
  const [winner, loser] = [handwritten(realm, 'decided', 1_000n), handwritten(realm, 'decided', 2_000n)];
  await realm.sendRaw([winner], realm.ledgerTopic);
  await realm.sendRaw([loser], realm.ledgerTopic);
  await realm.trimLedger(new Map([[0, 1]]));

  const first = realm.worker();
  await first.ready();
  expect(await codes(replies, 'decided', 1)).toEqual(['FORGOTTEN']);
  // A trimmed entry may have decided it, so it is forgotten.
  expect(await codes(replies, 'never-decided', 1)).toEqual(['FORGOTTEN']);
  await realm.send([{ correlationId: 'new', count: COUNT }]);
  expect(await codes(replies, 'new', 1)).toEqual(['a batch']);
  await first.stop();

  await realm.rewind();
  await realm.worker().ready();
  expect(await codes(replies, 'decided', 2)).toEqual(['FORGOTTEN', 'FORGOTTEN']);
  expect(await codes(replies, 'never-decided', 2)).toEqual(['FORGOTTEN', 'FORGOTTEN']);
  expect(await codes(replies, 'new', 2)).toEqual(['a batch', 'a batch']);
  const [answered, again] = await Promise.all([0, 1].map((nth) => replies.reply('new', nth)));
  expect(again?.seen.message.value).toEqual(answered?.seen.message.value);
});

test('a request that is forwarded again or resent from the dead letters after its decision is gone is forgotten', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const replies = await realm.follow();
  const lateTopic = `${realm.replyTopic}.late`;
  const astray = idFor('astray', 1, PARTITIONS);
  const first = realm.worker();
  await first.ready();
  await realm.send([{ correlationId: astray, count: COUNT, partition: 0 }]);
  await realm.send([{ correlationId: 'late', count: COUNT, replyTopic: lateTopic }]);
  expect(await codes(replies, astray, 1)).toEqual(['a batch']);
  await expect.poll(() => realm.records(realm.deadLetterTopic), { timeout: 60_000 }).toBe(1);
  await first.stop();

  await realm.trimLedger();
  await realm.rewind();
  await realm.createTopic(lateTopic);
  const lates = await realm.follow(lateTopic);
  await realm.worker().ready();
  // The forwarded copy, read again, and the copy that was forwarded anew.
  expect(await codes(replies, astray, 3)).toEqual(['a batch', 'FORGOTTEN', 'FORGOTTEN']);
  expect(await codes(lates, 'late', 1)).toEqual(['FORGOTTEN']);
  const { code, stderr } = await runIdalloc(['deadletters', 'resend', '0:0', '--yes'], realm.env);
  expect(code, stderr).toBe(0);
  expect(await codes(lates, 'late', 2)).toEqual(['FORGOTTEN', 'FORGOTTEN']);
  await audited(realm);
});

test(`no request gets a second batch while the ledger is trimmed continuously and entries are settled, in ${ROUNDS} rounds`, async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const replies = await realm.follow();
  const first = realm.worker();
  await first.ready();
  const load = new Load(realm, { partitions: PARTITIONS });
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      const before = replies.seen.length;
      await replies.until('more replies', (seen) => seen.length >= before + ANSWERED);
      for (let i = 0; i < TRIMS; i += 1) await realm.trimLedger();
    }
  } finally {
    await load.stop();
  }
  const served = checkNeverTwice(load.requests, await replies.replies(load.requests.length));
  await report(annotate, `trimmed while serving: ${JSON.stringify(served)}`);

  await first.stop();
  await realm.trimLedger();
  await realm.rewind();
  const before = replies.seen.length;
  await realm.worker().ready();
  await replies.until('another reply to each', (seen) => seen.length >= before + load.requests.length);
  checkNeverTwice(load.requests, await replies.replies(load.requests.length));
  // Nothing was left of the ledger, so no batch can be repeated.
  expect(new Set(replies.seen.slice(before).map(decodeReply).map(codeOf))).toEqual(new Set(['FORGOTTEN']));
  await realm.send([{ correlationId: 'new', count: COUNT }]);
  expect(await codes(replies, 'new', 1)).toEqual(['a batch']);
  await audited(realm);
});

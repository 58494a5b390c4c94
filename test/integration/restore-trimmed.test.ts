import { expect, test } from 'vitest';
import { decodeLedgerEntry, encodeLedgerEntry, encodeLedgerKey, requestHash } from '../../src/codec/ledger-entry.ts';
import { BATCH } from '../codec/samples.ts';
import type { Followed, Seen } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import type { LogLine } from '../support/worker-process.ts';

/** So many that reading them takes some tenths of a second. */
const ENTRIES = 60_000;
const SEND_AT_ONCE = 5_000;
const COUNT = 5;

/** By the log's start, or by an entry behind the gap: the worker's own question for the brokers' time, if it comes first. */
const wasOvertaken = ({ cause }: LogLine) => /^(the log starts|reading went on) at offset/.test(String(cause));

/** Entries as workers with an empty index would write them, in ledger partition 0. */
async function fillLedger(realm: Realm, entries: number): Promise<void> {
  for (let from = 0; from < entries; from += SEND_AT_ONCE) {
    const messages = Array.from({ length: Math.min(SEND_AT_ONCE, entries - from) }, (_, i) => ({
      key: encodeLedgerKey(Buffer.from(`request-${from + i}`)),
      value: encodeLedgerEntry({
        kind: 'batch',
        requestHash: requestHash(COUNT, realm.replyTopic),
        count: COUNT,
        replyTopic: realm.replyTopic,
        requestOffset: 0,
        batch: { ...BATCH, ranges: [{ first: BigInt(from + i) * 10n, count: COUNT }] },
        framing: 'SINGLE_OBJECT',
        schemaFingerprint: Buffer.alloc(8),
        end: 0,
        through: -1,
      }),
      partition: 0,
    }));
    await realm.sendRaw(messages, realm.ledgerTopic);
  }
}

/** The reader has joined its group: from where and to which end it reads was settled before. */
const joinsToRead = ({ msg, groupId }: LogLine) =>
  msg === 'Consumer has joined the group' && String(groupId).includes('.ledger.');

/** Retention takes all that the ledger has, while the worker stands still. */
async function emptyLedger(realm: Realm): Promise<number> {
  const [bounds] = await realm.admin.fetchTopicOffsets(realm.ledgerTopic);
  const partitions = [{ partition: 0, offset: bounds?.high ?? '0' }];
  await realm.admin.deleteTopicRecords({ topic: realm.ledgerTopic, partitions });
  return Number(bounds?.high);
}

/** An entry whose writer had read everything before it. */
function isAnchor({ offset, message }: Seen): boolean {
  return message.value !== null && decodeLedgerEntry(message.value).end === offset;
}

async function ask(realm: Realm, replies: Followed, correlationId: string) {
  await realm.send([{ correlationId, count: COUNT }]);
  return (await replies.reply(correlationId)).reply;
}

test('a restore that retention overtakes begins anew and ends, though the ledger has nothing left', async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  const replies = await realm.follow();
  await fillLedger(realm, ENTRIES);
  const worker = realm.worker();
  await worker.line(joinsToRead);
  worker.kill('SIGSTOP');
  expect(await emptyLedger(realm)).toBe(ENTRIES);
  worker.kill('SIGCONT');
  const sinceMs = performance.now();
  const { cause } = await worker.line(wasOvertaken);
  await report(annotate, `${cause}; seen after ${Math.round(performance.now() - sinceMs)} ms`);
  const ledger = await realm.follow(realm.ledgerTopic);
  await ledger.until('the marker that tells what may be decided', (seen) => seen.some(isAnchor));
  expect(await ask(realm, replies, 'new')).toHaveProperty('batch');
});

test('a worker that serves is restored when retention takes entries that it had not read', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  const replies = await realm.follow();
  const worker = realm.worker();
  await worker.ready();
  expect(await ask(realm, replies, 'first')).toHaveProperty('batch');
  worker.kill('SIGSTOP');
  // The fetch that is under way may bring the first; nobody has asked for the second.
  for (let times = 0; times < 2; times += 1) await fillLedger(realm, 1);
  await emptyLedger(realm);
  worker.kill('SIGCONT');
  await worker.line(wasOvertaken);
  // Nobody can tell whether what the worker had not read has decided this one.
  expect(await ask(realm, replies, 'second')).toMatchObject({ error: { code: 'FORGOTTEN' } });
  expect(await ask(realm, replies, 'third')).toHaveProperty('batch');
});

import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import type { Seen } from '../support/followed.ts';
import { statement } from '../support/memory-records.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

const HOUR_MS = 3_600_000;
/** For a client that waits until a worker runs. */
const PATIENCE_MS = 120_000;
/** More than a quarter of the ledger's retention, which is 26 h. */
const A_QUARTER_AGO_MS = 7 * HOUR_MS;
/**
 * Before the part of the ledger that a list reads, which is 9.5 h; the ledger keeps it, since its retention is 26 h.
 */
const BEFORE_THE_PART_MS = 20 * HOUR_MS;
/** A worker with this retention does not yet write again what is older than the part that a list reads. */
const LONG_RETENTION = { LEDGER_RETENTION_MS: String(40 * 24 * HOUR_MS) };
/** A topic that takes old records. */
const OLD_RECORDS = { 'message.timestamp.type': 'CreateTime' };

/** A realm with one partition, and a client; and with a sequence that was created so long ago, if given. */
async function open(createdAgoMs?: number) {
  const stack = new AsyncDisposableStack();
  const ledger = createdAgoMs === undefined ? {} : { ledgerConfigs: OLD_RECORDS };
  const realm = stack.use(await Realm.create(suiteServers(), { partitions: 1, env: SHORT_SESSION, ...ledger }));
  if (createdAgoMs !== undefined) await createdAgo(realm, createdAgoMs);
  const { replyTopic, requestTopic } = realm;
  // Tests count the replies, so nothing is sent twice by itself: a client that waits for a slow worker would resend.
  const patience = { timeoutMs: PATIENCE_MS, resendAfterMs: PATIENCE_MS };
  const options = { brokers: suiteServers().brokers, replyTopic, requestTopic, prefetch: false, ...patience };
  const client = stack.use(await IdClient.connect(options));
  const take = async (correlationId: string, count = 1) => {
    const taken = await client.sequence('invoices').take(count, { correlationId });
    return [...taken.numbers(), ...(taken.replayed ? ['again'] : [])];
  };
  const command = async (...args: readonly string[]) => {
    const { code, stdout, stderr } = await runIdalloc(['sequence', ...args, '--json'], realm.env);
    return { code, view: stdout === '' ? undefined : JSON.parse(stdout), stderr };
  };
  return { realm, take, command, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

/** Writes what `sequence create` wrote this long ago, as the log dates it. */
async function createdAgo(realm: Realm, agoMs: number): Promise<void> {
  const timestamp = String(Date.now() - agoMs);
  await realm.sendRaw([{ ...statement(0), partition: 0, timestamp }], realm.ledgerTopic);
  await realm.setTopicConfig(realm.ledgerTopic, 'message.timestamp.type', 'LogAppendTime');
}

const kindOf = ({ message }: Seen) => decodeLedgerEntry(message.value as Buffer).kind;

/** The offset of a marker with a statement behind it. */
async function restatedAt(realm: Realm): Promise<number> {
  const ledger = await realm.follow(realm.ledgerTopic);
  const found = (seen: readonly Seen[]) =>
    seen.find((one, i, { [i + 1]: next }) => kindOf(one) === 'marker' && next && kindOf(next) === 'statement');
  await ledger.until('a marker with a statement', (seen) => found(seen) !== undefined);
  return found(ledger.seen)?.offset as number;
}

/** Waits for the marker of a worker. */
async function marked(realm: Realm): Promise<void> {
  await using ledger = await realm.follow(realm.ledgerTopic);
  await ledger.until('a marker', (seen) => seen.some((one) => kindOf(one) === 'marker'));
}

test('a statement is written again with the marker of a worker before retention deletes it, so no lost index loses the sequence', async () => {
  await using scene = await open(A_QUARTER_AGO_MS);
  const { realm, take, command } = scene;
  const first = realm.worker();
  expect(await take('a', 3)).toEqual([1, 2, 3]);
  const marker = await restatedAt(realm);
  await first.stop();
  await realm.trimLedger(new Map([[0, marker]]));

  realm.worker();
  expect(await take('b')).toEqual([4]);
  expect(await take('a', 3)).toEqual([1, 2, 3, 'again']);
  expect((await command('show', 'invoices')).view).toMatchObject({ next: 5 });
  expect((await command('list')).view).toMatchObject({ sequences: [{ sequence: 'invoices', next: 5 }] });
});

test('a new name is created beside workers without reading all of the ledger, and an old one that was never closed is not set back', async () => {
  await using scene = await open(BEFORE_THE_PART_MS);
  const { realm, take, command } = scene;
  realm.worker(LONG_RETENTION);
  await marked(realm);
  // The worker has another retention than commands, so its statement is older than the part that they read; etcd has no
  // such name.
  expect((await command('list')).view).toMatchObject({ sequences: [] });
  expect((await command('list', '--all')).view).toMatchObject({ sequences: [{ sequence: 'invoices', next: 1 }] });
  expect((await command('create', 'tickets')).view).toMatchObject({ next: 1 });
  expect(await take('a', 2)).toEqual([1, 2]);
  expect(await command('create', 'invoices')).toMatchObject({ code: 1, stderr: expect.stringContaining('CONFLICT') });
});

test('a worker that kept its index continues a sequence of which the ledger has nothing left, and others learn it from its statement', async () => {
  await using scene = await open(BEFORE_THE_PART_MS);
  await using directory = await mkdtempDisposable(join(tmpdir(), 'idalloc-idle-'));
  const { realm, take, command } = scene;
  const kept = { INDEX_DIR: directory.path };
  const before = realm.worker({ ...kept, ...LONG_RETENTION });
  expect(await take('a', 2)).toEqual([1, 2]);
  // Its statement is older than the part that a list reads, whose numbers show that it is missing.
  expect((await command('list')).view).toMatchObject({ sequences: [{ sequence: 'invoices', next: 3 }] });
  await before.stop();
  await realm.trimLedger();
  expect((await command('show', 'invoices')).view).toMatchObject({ next: 3, ledger_next: null, etcd_next: 3 });

  const after = realm.worker(kept);
  expect(await take('b')).toEqual([3]);
  expect((await command('show', 'invoices')).view).toMatchObject({ next: 4, max: 1_000 });
  await after.stop();
  realm.worker();
  expect(await take('c')).toEqual([4]);
});

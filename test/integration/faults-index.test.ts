import { cp, mkdtempDisposable, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Load } from '../support/load.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { checkWholeHistory, settledRecords } from '../support/whole-history.ts';
import type { LogLine } from '../support/worker-process.ts';

const PARTITIONS = 3;
const ANSWERED = 200;
const wasDiscarded = ({ msg }: LogLine) => msg === 'ledger index was discarded';

/** Runs two workers of a realm one after the other on one index directory, and `exchange` between them. */
async function served(realm: Realm, indexDir: string, exchange: () => Promise<void>): Promise<readonly LogLine[]> {
  const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  const first = realm.worker({ INDEX_DIR: indexDir });
  await first.ready();
  const load = new Load(realm, { partitions: PARTITIONS });
  try {
    await replies.replies(ANSWERED);
    await first.stop();
    await exchange();
    // All requests are read again: the ledger has the decisions that the index lacks.
    await realm.rewind();
    const second = realm.worker({ INDEX_DIR: indexDir });
    await second.ready();
    await replies.replies(load.requests.length + ANSWERED);
    await load.stop();
    await checkWholeHistory(realm, load.requests, replies, () => settledRecords(realm, realm.ledgerTopic, ledger));
    return second.lines;
  } finally {
    await load.stop();
  }
}

test('the index of another ledger is discarded, and none of its entries count', async () => {
  await using directory = await mkdtempDisposable(join(tmpdir(), 'idalloc-foreign-index-'));
  const [own, others] = [join(directory.path, 'own'), join(directory.path, 'others')];
  const open = () => Realm.create(suiteServers(), { partitions: PARTITIONS });
  await using realm = await open();
  await using other = await open();
  await served(other, others, async () => {});
  const lines = await served(realm, own, async () => {
    await rm(own, { recursive: true });
    await cp(others, own, { recursive: true });
  });
  expect(lines.some(wasDiscarded)).toBe(true);
});

test('an older copy of the index catches up from the ledger before it is queried', async () => {
  await using directory = await mkdtempDisposable(join(tmpdir(), 'idalloc-old-index-'));
  const [own, old] = [join(directory.path, 'own'), join(directory.path, 'old')];
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  await served(realm, own, async () => {
    await cp(own, old, { recursive: true });
    const between = realm.worker({ INDEX_DIR: own });
    await between.ready();
    const decided = await realm.records(realm.ledgerTopic);
    await expect.poll(() => realm.records(realm.ledgerTopic), { timeout: 60_000 }).toBeGreaterThan(decided + ANSWERED);
    await between.stop();
    await rm(own, { recursive: true });
    await cp(old, own, { recursive: true });
  });
});

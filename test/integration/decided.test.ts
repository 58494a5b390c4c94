import { expect, test, vi } from 'vitest';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { LogLine, WorkerProcess } from '../support/worker-process.ts';

const PARTITION = 1;
const ROOMY_BYTES = 2 ** 21;

const triedAgain = ({ msg }: LogLine) => msg === 'requests could not be served and will be retried';

/** Commits offsets as soon as possible, so that a commit that comes too early is detected. */
function openRealm(): Promise<Realm> {
  return Realm.create(suiteServers(), { env: { ...SHORT_SESSION, COMMIT_INTERVAL_MS: '10' } });
}

/** Makes a topic refuse every record as too large, until it is reopened. */
function close(realm: Realm, topic: string): Promise<void> {
  return realm.setTopicConfig(topic, 'max.message.bytes', '1');
}

function reopen(realm: Realm, topic: string): Promise<void> {
  return realm.setTopicConfig(topic, 'max.message.bytes', String(ROOMY_BYTES));
}

/** Waits until serving the request has failed; a reply or a commit ends the wait too, and fails the test. */
async function expectHeldBack(realm: Realm, worker: WorkerProcess): Promise<LogLine | undefined> {
  const replied = () => realm.records(realm.replyTopic);
  const ended = async () =>
    worker.lines.some(triedAgain) || (await replied()) > 0 || (await realm.committed()).size > 0;
  await vi.waitUntil(ended, { timeout: 60_000, interval: 50 });
  expect(await replied()).toBe(0);
  expect(await realm.committed()).toEqual(new Map());
  return worker.lines.find(triedAgain);
}

async function expectCommitted(realm: Realm): Promise<void> {
  await expect.poll(() => realm.committed(), { timeout: 60_000 }).toEqual(new Map([[PARTITION, 1]]));
}

test('while the ledger accepts no entry, no reply is sent and no offset is committed', async () => {
  await using realm = await openRealm();
  const replies = await realm.follow();
  const worker = realm.worker();
  await worker.ready();
  await close(realm, realm.ledgerTopic);
  await realm.send([{ correlationId: 'a', count: 3, partition: PARTITION }]);
  expect(await expectHeldBack(realm, worker)).toMatchObject({ partition: PARTITION, code: 'APPEND_UNANSWERED' });

  await reopen(realm, realm.ledgerTopic);
  const { reply } = await replies.reply('a');
  expect('batch' in reply).toBe(true);
  await expectCommitted(realm);
});

test('while no topic accepts the reply, no offset is committed; the next process replies with what was decided', async () => {
  await using realm = await openRealm();
  const replies = await realm.follow();
  const ledger = await realm.follow(realm.ledgerTopic);
  await Promise.all([realm.replyTopic, realm.deadLetterTopic].map((topic) => close(realm, topic)));
  const worker = realm.worker();
  await worker.ready();
  await realm.send([{ correlationId: 'a', count: 3, partition: PARTITION }]);
  expect(await expectHeldBack(realm, worker)).toMatchObject({ partition: PARTITION });
  expect(await realm.decisions(ledger)).toBe(1);

  worker.kill('SIGKILL');
  await worker.ended();
  await Promise.all([realm.replyTopic, realm.deadLetterTopic].map((topic) => reopen(realm, topic)));
  await realm.worker().ready();
  const { reply, replayed, seen } = await replies.reply('a');
  expect('batch' in reply).toBe(true);
  expect(replayed).toBe(true);
  expect(seen.message.timestamp).toBe(ledger.seen.find(({ message }) => message.key !== null)?.message.timestamp);
  expect(await realm.decisions(ledger)).toBe(1);
  await expectCommitted(realm);
});

test('while the dead-letter topic accepts nothing, no bad record is skipped', async () => {
  await using realm = await openRealm();
  const letters = await realm.follow(realm.deadLetterTopic);
  await close(realm, realm.deadLetterTopic);
  const worker = realm.worker();
  await worker.ready();
  await realm.sendRaw([{ key: 'bad', value: 'bad', partition: PARTITION }]);
  expect(await expectHeldBack(realm, worker)).toMatchObject({ partition: PARTITION, code: 'TOPIC_INVALID' });

  await reopen(realm, realm.deadLetterTopic);
  await letters.until('the dead letter', (seen) => seen.length > 0);
  await expectCommitted(realm);
});

import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Followed } from '../support/followed.ts';
import { Realm, SHORT_SESSION, type TestRequest } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { LogLine } from '../support/worker-process.ts';

const REQUESTS = 300;

function asksFrom(first: number): TestRequest[] {
  return Array.from({ length: REQUESTS }, (_, i) => ({ correlationId: `request-${first + i}`, count: 1 + (i % 7) }));
}

const wasDiscarded = ({ msg }: LogLine) => msg === 'ledger index was discarded';

/** Waits for `records` replies, and expects that all replies to a request are the same bytes. */
async function expectOneBatchEach(replies: Followed, requests: number, records: number): Promise<void> {
  await replies.until(`${records} replies`, (seen) => seen.length >= records);
  const answered = await replies.replies(requests);
  expect(answered.size).toBe(requests);
  for (const [id, own] of answered) {
    expect(
      own.every(({ reply }) => 'batch' in reply),
      `an error for ${id}`,
    ).toBe(true);
    expect(new Set(own.map(({ seen }) => seen.message.value?.toString('hex'))).size, `batches for ${id}`).toBe(1);
  }
}

test('a worker whose index is deleted while it serves, and damaged while it is down, decides nothing twice', async () => {
  await using realm = await Realm.create(suiteServers(), { env: SHORT_SESSION });
  const directory = mkdtempSync(join(tmpdir(), 'idalloc-index-lost-'));
  try {
    const [replies, ledger] = [await realm.follow(), await realm.follow(realm.ledgerTopic)];
    const first = realm.worker({ INDEX_DIR: directory });
    await realm.send(asksFrom(0));
    await expectOneBatchEach(replies, REQUESTS, REQUESTS);

    for (const file of readdirSync(directory)) rmSync(join(directory, file));
    await realm.send(asksFrom(0));
    await expectOneBatchEach(replies, REQUESTS, 2 * REQUESTS);
    await first.line(wasDiscarded);
    await realm.send([...asksFrom(0), ...asksFrom(REQUESTS)]);
    await expectOneBatchEach(replies, 2 * REQUESTS, 4 * REQUESTS);
    expect(await realm.decisions(ledger)).toBe(2 * REQUESTS);

    first.kill('SIGKILL');
    await first.exit;
    for (const file of readdirSync(directory)) writeFileSync(join(directory, file), Buffer.alloc(50_000, 'x'));
    rmSync(join(directory, 'ledger-index.lock'), { force: true });
    const second = realm.worker({ INDEX_DIR: directory });
    await second.line(wasDiscarded);
    await realm.send([...asksFrom(0), ...asksFrom(REQUESTS)]);
    await expectOneBatchEach(replies, 2 * REQUESTS, 6 * REQUESTS);
    expect(await realm.decisions(ledger)).toBe(2 * REQUESTS);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

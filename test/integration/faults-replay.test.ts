import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadWorkerConfig } from '../../src/config/config.ts';
import { createLogger } from '../../src/log.ts';
import { createMetrics } from '../../src/metrics/metrics.ts';
import { Worker } from '../../src/worker/worker.ts';
import { decodeReply } from '../support/followed.ts';
import { Load } from '../support/load.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';

const RESETS = 25;
const PARTITIONS = 3;
const ANSWERED = 60;

/**
 * A new worker for each reset, since offsets can be reset only while the group is empty. All workers run in this
 * process: so many starts of a process would take minutes and read the same requests.
 */
test(`after each of ${RESETS} resets of the offsets to the start, replies are the same bytes and nothing is decided anew`, async ({
  annotate,
}) => {
  await using directory = await mkdtempDisposable(join(tmpdir(), 'idalloc-replay-'));
  await using realm = await Realm.create(suiteServers(), {
    partitions: PARTITIONS,
    env: { INDEX_DIR: directory.path, OPS_PORT: '0', COMMIT_INTERVAL_MS: '10' },
  });
  const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  const load = new Load(realm, { partitions: PARTITIONS, paceMs: 1 });
  await expect.poll(() => load.requests.length).toBeGreaterThanOrEqual(ANSWERED);
  const asks = await load.stop();

  const begunMs = performance.now();
  let expected = 0;
  for (let round = 0; round <= RESETS; round += 1) {
    const worker = new Worker(loadWorkerConfig(realm.env), {
      log: createLogger({ level: 'silent', destination: 'stderr' }),
      metrics: createMetrics(),
    });
    try {
      expected += asks.length;
      await replies.until('a reply to each request', (seen) => seen.length >= expected);
    } finally {
      await worker[Symbol.asyncDispose]();
    }
    expect(replies.seen.length).toBe(expected);
    await realm.rewind();
  }
  await report(annotate, `${Math.round((performance.now() - begunMs) / RESETS)} ms for each reset`);

  const history = await checkWholeHistory(realm, asks, replies, () => settledRecords(realm, realm.ledgerTopic, ledger));
  expect(history).toEqual({ requests: asks.length, duplicates: RESETS * asks.length, losers: 0, doubled: 0 });
  const again = replies.seen.slice(asks.length).map(decodeReply);
  expect(again.every(({ replayed }) => replayed)).toBe(true);
});

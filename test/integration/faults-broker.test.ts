import { expect, test } from 'vitest';
import type { Followed } from '../support/followed.ts';
import { Load } from '../support/load.ts';
import { ownServers } from '../support/own-servers.ts';
import { Realm } from '../support/realm.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';

const PARTITIONS = 6;
const ANSWERED_BEFORE = 500;

const servers = await ownServers({ kafka: true });

/** The time from `sinceMs` to the append of the first decision that was replied; both clocks are this machine's. */
async function firstDecisionAfter(replies: Followed, sinceMs: number): Promise<number> {
  let first = Number.POSITIVE_INFINITY;
  await replies.until('a reply decided after the outage', (seen) => {
    const after = seen.map(({ message }) => Number(message.timestamp)).filter((time) => time >= sinceMs);
    first = Math.min(...after);
    return after.length > 0;
  });
  return first - sinceMs;
}

test.for(['stopped', 'killed'] as const)(
  'after the only broker was %s and started again under load, everything continues',
  async (what, { annotate }) => {
    await using realm = await Realm.create(servers, { partitions: PARTITIONS });
    const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
    const workers = [realm.worker(), realm.worker()];
    await Promise.all(workers.map((worker) => worker.hasPartitions(PARTITIONS / 2)));
    const load = new Load(realm, { partitions: PARTITIONS });
    try {
      await replies.replies(ANSWERED_BEFORE);
      try {
        if (what === 'killed') await servers.killKafka();
      } finally {
        await servers.restartKafka();
      }
      const decidedMs = await firstDecisionAfter(replies, Date.now());
      await report(annotate, `broker ${what}: first decision ${decidedMs} ms after it served again`);
    } finally {
      await load.stop();
    }
    const history = await checkWholeHistory(realm, load.requests, replies, () =>
      settledRecords(realm, realm.ledgerTopic, ledger),
    );
    await report(annotate, `broker ${what}: ${JSON.stringify(history)}`);
    for (const worker of workers) expect(worker.gate()).toBe('open');
  },
);

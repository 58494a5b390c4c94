import { expect, test } from 'vitest';
import { Fleet, PARTITIONS, WORKERS } from '../support/fleet.ts';
import { firstAnswerMs, longestOf, longestWaits } from '../support/longest-wait.ts';
import { SHORT_SESSION } from '../support/realm.ts';
import { report } from '../support/whole-history.ts';

test('after kill -9 of a worker its partitions are served once its session has expired, and the others all the time; every request has one batch, and all IDs differ', async ({
  annotate,
}) => {
  // The sooner offsets are committed, the more likely a commit before its reply shows.
  await using fleet = await Fleet.of({ ...SHORT_SESSION, COMMIT_INTERVAL_MS: '10' });
  const [dead, ...others] = fleet.workers;
  await fleet.shared();
  const lost = new Set(dead?.partitions());
  expect(lost.size).toBe(PARTITIONS / WORKERS);
  const killedMs = performance.now();
  dead?.kill('SIGKILL');
  await Promise.all(others.map((worker) => worker.hasPartitions(PARTITIONS / (WORKERS - 1))));
  await fleet.answered();
  const asks = await fleet.load.stop();
  await fleet.history(asks);
  const waits = longestWaits(asks, fleet.replies, killedMs - 1_000);
  const kept = [...waits.keys()].filter((partition) => !lost.has(partition));
  const [ownMs, otherMs] = [longestOf(waits, lost), longestOf(waits, kept)];
  await report(
    annotate,
    `kill -9 with a session of ${SHORT_SESSION.KAFKA_SESSION_TIMEOUT_MS} ms: its partitions waited at most ${ownMs} ms, the others ${otherMs} ms`,
  );
  // If the others had waited for the killed worker, nothing sent after the kill would be answered before its partitions
  // are.
  const servedAgainMs = firstAnswerMs(asks, fleet.replies, { sentFromMs: killedMs, partitions: lost });
  for (const partition of kept) {
    const own = firstAnswerMs(asks, fleet.replies, { sentFromMs: killedMs, partitions: new Set([partition]) });
    expect(own, `partition ${partition}`).toBeLessThan(servedAgainMs);
  }
});

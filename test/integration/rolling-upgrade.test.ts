import { expect, test } from 'vitest';
import { Fleet, WORKERS } from '../support/fleet.ts';
import { decodeReply, type Followed } from '../support/followed.ts';
import { longestWaits } from '../support/longest-wait.ts';
import { SHORT_SESSION, type TestRequest } from '../support/realm.ts';
import { lastRelease, workerOf } from '../support/released.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';

/** Of the requests decided by one version, so many are sent again to the other. */
const REPEATED = 100;

/**
 * Replaces one worker after another, as docs/how-to/rolling-upgrade.md says, and serves for a while after each. Some of the oldest and of the
 * newest requests are sent again each time: whichever version decided them, they have their batch. Returns those.
 */
async function roll(fleet: Fleet, program?: readonly string[]): Promise<readonly TestRequest[]> {
  const repeated: TestRequest[] = [];
  for (let i = 0; i < WORKERS; i += 1) {
    const { requests } = fleet.load;
    const some = [...requests.slice(0, REPEATED / 2), ...requests.slice(-REPEATED / 2)];
    await fleet.workers[i]?.stop();
    expect(await fleet.workers[i]?.exit).toEqual({ code: 0, signal: null });
    await fleet.start(i, program).ready();
    await fleet.shared();
    await fleet.realm.send(some);
    repeated.push(...some);
    await fleet.answered();
  }
  return repeated;
}

/** Resolves when so many replies are marked as replays. */
async function replays(replies: Followed, count: number): Promise<void> {
  let [at, found] = [0, 0];
  await replies.until(`${count} replays`, (seen) => {
    for (const one of seen.slice(at)) if (decodeReply(one).replayed) found += 1;
    at = seen.length;
    return found >= count;
  });
}

test('workers of the last release and of this version serve side by side, upwards and back, with one batch for each request', async (context) => {
  const release = lastRelease();
  if ('missing' in release) return context.skip(release.missing);
  const old = await workerOf(release);
  // Workers forward to workers of the other version.
  await using fleet = await Fleet.open(SHORT_SESSION, { program: old, misroutes: true });
  const { realm, replies, load } = fleet;
  const ledger = await realm.follow(realm.ledgerTopic);
  const begunMs = performance.now();
  const repeated = [...(await roll(fleet))];
  const upgradedMs = performance.now();
  repeated.push(...(await roll(fleet, old)));
  const endedMs = performance.now();
  const asks = await load.stop();
  await replays(replies, repeated.length);

  const history = await checkWholeHistory(realm, asks, replies, () => settledRecords(realm, realm.ledgerTopic, ledger));
  const longestMs = Math.max(...longestWaits(asks, replies, begunMs).values());
  const seconds = (fromMs: number, toMs: number) => Math.round((toMs - fromMs) / 1_000);
  await report(
    context.annotate,
    `${release.version} to this in ${seconds(begunMs, upgradedMs)} s, back in ${seconds(upgradedMs, endedMs)} s; longest wait ${Math.round(longestMs)} ms; ${repeated.length} repeated: ${JSON.stringify(history)}`,
  );
  expect(repeated).toHaveLength(2 * WORKERS * REPEATED);
}, 1_200_000);

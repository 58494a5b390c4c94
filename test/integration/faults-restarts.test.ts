import { expect, test } from 'vitest';
import { Load } from '../support/load.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 6;
const RESTARTS = 10;
const STORMS = 2;
const STORM_WORKERS = 4;
const ANSWERED = 200;

/** Runs the change under load, and checks everything once all requests are answered. */
async function underLoad(
  realm: Realm,
  annotate: (text: string) => Promise<unknown>,
  change: (answered: (more: number) => Promise<unknown>) => Promise<string>,
): Promise<void> {
  const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  const load = new Load(realm, { partitions: PARTITIONS });
  let what: string;
  try {
    what = await change((more) => replies.replies(load.requests.length + more));
  } finally {
    await load.stop();
  }
  const history = await checkWholeHistory(realm, load.requests, replies, () =>
    settledRecords(realm, realm.ledgerTopic, ledger),
  );
  await report(annotate, `${what}: ${JSON.stringify(history)}`);
}

test(`${RESTARTS} rolling restarts of two workers under load leave each request with one batch`, async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  let pair: readonly [WorkerProcess, WorkerProcess] = [realm.worker(), realm.worker()];
  const shared = () => Promise.all(pair.map((worker) => worker.hasPartitions(PARTITIONS / 2)));
  await shared();
  await underLoad(realm, annotate, async (answered) => {
    await answered(ANSWERED);
    const begunMs = performance.now();
    for (let i = 0; i < RESTARTS; i += 1) {
      const [oldest, other] = pair;
      await oldest.stop();
      expect(await oldest.exit).toEqual({ code: 0, signal: null });
      pair = [other, realm.worker()];
      await shared();
    }
    const eachMs = Math.round((performance.now() - begunMs) / RESTARTS);
    await answered(ANSWERED);
    return `${RESTARTS} restarts of ${eachMs} ms each`;
  });
});

test(`each request gets one batch while ${STORM_WORKERS} workers join and leave another one, ${STORMS} times`, async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const steady = realm.worker();
  await steady.hasPartitions(PARTITIONS);
  await underLoad(realm, annotate, async (answered) => {
    await answered(ANSWERED);
    const joins = () => steady.lines.filter(({ msg }) => msg === 'joined the request group').length;
    const before = joins();
    for (let storm = 0; storm < STORMS; storm += 1) {
      const guests = Array.from({ length: STORM_WORKERS }, () => realm.worker());
      await Promise.all(guests.map((guest) => guest.ready().then(() => guest.stop())));
    }
    await steady.hasPartitions(PARTITIONS);
    await answered(ANSWERED);
    return `${STORMS} storms with ${joins() - before} rebalances`;
  });
  expect(steady.gate()).toBe('open');
});

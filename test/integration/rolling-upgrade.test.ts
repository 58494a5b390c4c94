import { expect, test } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import { isOfSequence as isSequenceKey } from '../../src/codec/ledger-key.ts';
import { Fleet, WORKERS } from '../support/fleet.ts';
import { decodeReply, type Followed } from '../support/followed.ts';
import { longestWaits } from '../support/longest-wait.ts';
import { KEPT, leaveNumbersBefore } from '../support/numbers-before.ts';
import { type Realm, SHORT_SESSION, type TestRequest } from '../support/realm.ts';
import { lastRelease, workerOf } from '../support/released.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';
import { runIdalloc } from '../support/worker-process.ts';

/** Of the requests decided by one version, so many are sent again to the other. */
const REPEATED = 100;
/** A sequence that the ledger has since before etcd knew of sequences, and one that this version creates. */
const [BEFORE, CREATED] = ['invoices/2026', 'invoices/2027'];

/**
 * Replaces one worker after another, as docs/how-to/rolling-upgrade.md says, and serves for a while after each. Some of
 * the oldest and of the newest requests are sent again each time: whichever version decided them, they have their
 * batch. Returns those.
 */
async function roll(fleet: Fleet, program?: readonly string[]): Promise<readonly TestRequest[]> {
  const repeated: TestRequest[] = [];
  for (let i = 0; i < WORKERS; i += 1) {
    const { requests } = fleet.load;
    const some = [...requests.slice(0, REPEATED / 2), ...requests.slice(-REPEATED / 2)];
    await fleet.workers[i]?.stop();
    expect(await fleet.workers[i]?.exit).toEqual({ code: 0, signal: null });
    await fleet.replace(i, program).ready();
    await fleet.shared();
    // A copy that is read together with its request shares its reply, which is no replay.
    for (const { correlationId } of some) await fleet.replies.reply(correlationId);
    await fleet.realm.send(some);
    repeated.push(...some);
    await fleet.answered();
  }
  return repeated;
}

/** Replaces all workers at once. */
async function replace(fleet: Fleet, program?: readonly string[]): Promise<void> {
  await Promise.all(fleet.workers.map((worker) => worker.stop()));
  await Promise.all(fleet.workers.map((_, i) => fleet.replace(i, program).ready()));
  await fleet.shared();
  await fleet.answered();
}

/** Takes numbers of sequences, on a reply topic of their own. */
async function numberTaker({ env, requestTopic }: Realm, replyTopic: string) {
  const options = { brokers: (env.KAFKA_BROKERS ?? '').split(','), replyTopic, requestTopic };
  const client = await IdClient.connect({ ...options, prefetch: false, timeoutMs: 120_000 });
  return {
    take: async (sequence: string, correlationId: string, count = 1) => {
      return (await client.sequence(sequence).take(count, { correlationId })).numbers();
    },
    [Symbol.asyncDispose]: () => client.close(),
  };
}

const refused = { code: 'UNKNOWN_SEQUENCE' };

/** Resolves when so many replies are marked as replays. */
async function replays(replies: Followed, count: number): Promise<void> {
  let [at, found] = [0, 0];
  await replies.until(`${count} replays`, (seen) => {
    for (const one of seen.slice(at)) if (decodeReply(one).replayed) found += 1;
    at = seen.length;
    return found >= count;
  });
}

test('workers of the last release and of this version serve side by side, upwards and back, with one batch for each request; numbers are given out by this version alone, and go on when it is back', async (context) => {
  const release = lastRelease();
  if ('missing' in release) return context.skip(release.missing);
  const old = await workerOf(release);
  // Workers forward to workers of the other version.
  const topicOf = (realm: Realm) => `${realm.env.REPLY_TOPIC_PREFIX}numbers`;
  const prepare = async (realm: Realm) => {
    await realm.createTopic(topicOf(realm));
    await leaveNumbersBefore(realm, BEFORE, topicOf(realm));
  };
  await using fleet = await Fleet.of(SHORT_SESSION, { program: old, misroutes: true, prepare });
  const { realm, replies, load } = fleet;
  await using numbers = await numberTaker(realm, topicOf(realm));
  const { take } = numbers;
  await expect(take(BEFORE, 'a')).rejects.toMatchObject(refused);
  const ledger = await realm.follow(realm.ledgerTopic);
  const begunMs = performance.now();
  const repeated = [...(await roll(fleet))];
  const upgradedMs = performance.now();
  expect(await take(BEFORE, KEPT.correlationId, KEPT.count)).toEqual([40, 41]);
  expect(await take(BEFORE, 'a')).toEqual([42]);
  expect(await runIdalloc(['sequence', 'create', CREATED], realm.env)).toMatchObject({ code: 0 });
  expect(await take(CREATED, 'a', 2)).toEqual([1, 2]);

  const turnedMs = performance.now();
  repeated.push(...(await roll(fleet, old)));
  const endedMs = performance.now();
  for (const name of [BEFORE, CREATED]) await expect(take(name, 'b')).rejects.toMatchObject(refused);
  await replace(fleet);
  expect([await take(CREATED, 'a', 2), await take(CREATED, 'b')]).toEqual([[1, 2], [3]]);
  expect([await take(BEFORE, 'a'), await take(BEFORE, 'b')]).toEqual([[42], [43]]);
  const asks = await load.stop();
  await replays(replies, repeated.length);

  const idsAlone = async () =>
    (await settledRecords(realm, realm.ledgerTopic, ledger)).filter(({ key }) => key === null || !isSequenceKey(key));
  const history = await checkWholeHistory(realm, asks, replies, idsAlone);
  expect(await realm.command(['audit'])).toMatchObject({ findings: [] });
  const longestMs = Math.max(...longestWaits(asks, replies, begunMs).values());
  const seconds = (fromMs: number, toMs: number) => Math.round((toMs - fromMs) / 1_000);
  await report(
    context.annotate,
    `${release.version} to this in ${seconds(begunMs, upgradedMs)} s, back in ${seconds(turnedMs, endedMs)} s; longest wait ${Math.round(longestMs)} ms; ${repeated.length} repeated: ${JSON.stringify(history)}`,
  );
  expect(repeated).toHaveLength(2 * WORKERS * REPEATED);
}, 1_200_000);

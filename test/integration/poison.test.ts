import { expect, test } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { mainThreadTimes } from '../support/cpu-time.ts';
import { decodeReply, type Followed } from '../support/followed.ts';
import { Handmade } from '../support/handmade.ts';
import { idFor } from '../support/home.ts';
import { poisonCases } from '../support/poison.ts';
import type { PoisonCase } from '../support/poison-maker.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { testKafka } from '../support/test-kafka.ts';
import { runIdalloc } from '../support/worker-process.ts';

const PARTITIONS = 3;
const STALL_LIMIT_MS = 100;
const LEAST_CASES = 40;
const ERROR_LEVEL = 50;
const BOMB_BYTES = 100_000_000;
/**
 * Rounds that measure stalls: work that is no case's own, such as a collection of garbage, hardly falls in one case
 * each time.
 */
const MEASURED_ROUNDS = 3;

interface Sent {
  readonly one: PoisonCase;
  /** Where the record is; undefined if the broker refused it. */
  readonly place: string | undefined;
  /** The correlation ID of the good request after it. */
  readonly good: string;
}

const placeOf = (partition: number, offset: number) => `${partition}:${offset}`;

/** Sends each case, and a good request after it in the same partition. */
async function sendAll(
  realm: Realm,
  cases: readonly PoisonCase[],
  afterEach: (one: PoisonCase, good: string) => Promise<void>,
): Promise<readonly Sent[]> {
  const sent: Sent[] = [];
  for (const [i, one] of cases.entries()) {
    const partition = i % PARTITIONS;
    const offset = await one.send(partition).catch((error: Error) => error);
    if (offset instanceof Error && one.refused !== true) throw new Error(`${one.name} was refused`, { cause: offset });
    const good = idFor(`good-${one.name}`, partition, PARTITIONS);
    sent.push({ one, good, place: offset instanceof Error ? undefined : placeOf(partition, offset) });
    await realm.send([{ correlationId: good, count: 1 }]);
    await afterEach(one, good);
  }
  return sent;
}

/** The outcome of each record, in the terms of the table. */
function outcomes(sent: readonly Sent[], replies: Followed, letters: Followed) {
  const letterAt = new Map(
    letters.seen.map(({ message: { headers = {} } }) => {
      const partition = (headers['kafka_dlt-original-partition'] as Buffer).readInt32BE();
      const offset = Number((headers['kafka_dlt-original-offset'] as Buffer).readBigInt64BE());
      // A record that was forwarded before it was rejected has its first place in a header.
      const [cameTo, cameAt] = String(headers['idalloc-origin'] ?? '').split('/');
      return [cameAt === undefined ? placeOf(partition, offset) : `${cameTo}:${cameAt}`, headers] as const;
    }),
  );
  return sent.map(({ one, place }) => {
    const replied = replies.seen.find(({ message }) => message.key?.equals(one.id));
    const { reply } = replied === undefined ? { reply: undefined } : decodeReply(replied);
    const letter = letterAt.get(place ?? '');
    return {
      name: one.name,
      reply: reply === undefined ? undefined : 'error' in reply ? reply.error.code : 'batch',
      letter: letter === undefined ? undefined : String(letter['kafka_dlt-exception-fqcn']),
      bare: letter?.['idalloc-record-left-out'] === undefined ? undefined : true,
      refused: place === undefined ? true : undefined,
    };
  });
}

/** Each partition's last record is a good one, which is answered only when all before it are. */
async function checkAll(realm: Realm, sent: readonly Sent[], replies: Followed, letters: Followed): Promise<void> {
  for (const { one, good } of sent) expect('batch' in (await replies.reply(good)).reply, one.name).toBe(true);
  // The ends move while requests are forwarded.
  const left = async () => {
    const highs = await realm.admin.fetchTopicOffsets(realm.requestTopic);
    const committed = await realm.committed();
    return highs.filter(({ partition, high }) => committed.get(partition) !== Number(high));
  };
  await expect.poll(left, { timeout: 10_000 }).toEqual([]);
  const published = await realm.records(realm.deadLetterTopic);
  await letters.until('all dead letters', (seen) => seen.length >= published);
  const table = sent.map(({ one: { name, reply, letter, bare, refused } }) => ({ name, reply, letter, bare, refused }));
  expect(outcomes(sent, replies, letters)).toEqual(table);
}

test('no record of any kind stops the worker, blocks a partition, stalls the event loop or delays a good request', async () => {
  const servers = suiteServers();
  await using realm = await Realm.create(servers, { partitions: PARTITIONS });
  await realm.setTopicConfig(realm.requestTopic, 'message.timestamp.after.max.ms', String(2n ** 63n - 1n));
  const kafka = testKafka(servers.brokers);
  await using handmade = await Handmade.connect(kafka, realm.requestTopic);
  const [replies, letters] = await Promise.all([realm.follow(), realm.follow(realm.deadLetterTopic)]);
  const worker = realm.worker();
  const pid = Number((await worker.ready()).pid);

  const cases = poisonCases({ realm, kafka, handmade, round: 0 });
  expect(cases.length).toBeGreaterThanOrEqual(LEAST_CASES);
  const together = await sendAll(realm, cases, async () => {});
  await checkAll(realm, together, replies, letters);

  // A stall is processor time of the main thread in one piece: cases that take less in all can't stall it, however busy
  // the machine is. Only for the others, and in later rounds, the event loop's own figure says whether it was one
  // piece.
  let stalling = cases.map((_, i) => i);
  for (let round = 1; round <= MEASURED_ROUNDS && stalling.length > 0; round += 1) {
    const all = poisonCases({ realm, kafka, handmade, round });
    const again = stalling.flatMap((i) => all[i] ?? []);
    stalling = [];
    const longestLagMs = async () => 1_000 * (await worker.metric('nodejs_eventloop_lag_max_seconds'));
    await longestLagMs(); // each reading starts the figure anew
    let { usedMs } = mainThreadTimes(pid);
    const oneByOne = await sendAll(realm, again, async (one, good) => {
      await replies.reply(good);
      if (mainThreadTimes(pid).usedMs - usedMs >= STALL_LIMIT_MS && (await longestLagMs()) >= STALL_LIMIT_MS) {
        stalling.push(all.indexOf(one));
      }
      ({ usedMs } = mainThreadTimes(pid));
    });
    await checkAll(realm, oneByOne, replies, letters);
  }
  expect(stalling.map((i) => cases[i]?.name)).toEqual([]);
  expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
  expect((await worker.ops('/readyz')).status).toBe(200);

  const { stdout, stderr } = await runIdalloc(['audit', '--json'], realm.env);
  const audit = JSON.parse(stdout);
  expect(audit, stderr).toMatchObject({ findings: [], unjudged: {}, waiting: 0, answered: audit.requests });
});

test('a request topic that becomes compressed after the start does not stop the worker', async () => {
  const servers = suiteServers();
  await using realm = await Realm.create(servers, { partitions: 1 });
  const kafka = testKafka(servers.brokers);
  await using handmade = await Handmade.connect(kafka, realm.requestTopic);
  const [replies, letters] = await Promise.all([realm.follow(), realm.follow(realm.deadLetterTopic)]);
  const worker = realm.worker();
  await worker.ready();
  await realm.setTopicConfig(realm.requestTopic, 'compression.type', 'producer');

  const { replyTopic } = realm;
  const messages = (codec: string) =>
    [0, 1, 2].map((i) => ({
      value: encodeIdRequest({ count: 1, correlationId: Buffer.from(`${codec}-${i}`), replyTopic }),
      partition: 0,
    }));
  const codecs = ['gzip', 'zstd', 'snappy', 'lz4'] as const;
  for (const codec of codecs) await handmade.compressed(codec, messages(codec));
  for (const codec of ['gzip', 'zstd'] as const) {
    await handmade.records(0, [{ key: null, value: Buffer.alloc(BOMB_BYTES) }], codec);
  }
  await realm.send([{ correlationId: 'last', count: 1 }]);

  const asked = [...codecs.flatMap((codec) => [0, 1, 2].map((i) => `${codec}-${i}`)), 'last'];
  const answered = await replies.replies(asked.length);
  expect([...answered.keys()].sort()).toEqual(asked.sort());
  await letters.until('a letter for each bomb', (seen) => seen.length >= 2);
  const reasons = letters.seen.map(({ message }) => String(message.headers?.['idalloc-unreadable']));
  expect(reasons.map((reason) => reason.replace(/:.*offsets/, ' at'))).toEqual([
    'a gzip batch holds more than 4194304 bytes at 12 to 12)',
    'a zstd batch holds more than 4194304 bytes at 13 to 13)',
  ]);
  await expect.poll(() => realm.committed(), { timeout: 10_000 }).toEqual(new Map([[0, 15]]));
  expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
});

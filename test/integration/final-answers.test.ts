import { afterAll, beforeAll, expect, test } from 'vitest';
import { replayRecord } from '../../src/codec/request-position.ts';
import { partitionFor } from '../../src/kafka/records/partitioner.ts';
import { answerIn } from '../support/documents.ts';
import { decodeReply, type Followed, type Seen } from '../support/followed.ts';
import { Realm, SHORT_SESSION, type TestRequest } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import { runIdalloc, startIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 3;
const INVOICES = 'invoices/2027';
const TICKETS = 'tickets';
const CLOSED = 'invoices/2026';
/** In milliseconds since 1970; long ago. */
const LONG_AGO_MS = 1_767_225_600_000;
const MOST = 100;

let realm: Realm;
let thrifty: string;
let followed: readonly Followed[];
let worker: WorkerProcess;
const asks: TestRequest[] = [];
/** What each request was told first: the first number, `IDs`, or the code of an error. */
const first = new Map<string, number | string>();

/** Requests of one kind, in order; every third one lies in another partition than its home, so that it is forwarded. */
function make(name: string, many: number, fields: Partial<TestRequest> = {}): readonly TestRequest[] {
  return Array.from({ length: many }, (_, nth) => {
    const correlationId = `${name}-${nth}`;
    const home = partitionFor(Buffer.from(fields.sequence ?? correlationId), PARTITIONS, () => 0);
    return { correlationId, count: 1, partition: nth % 3 === 2 ? (home + 1) % PARTITIONS : home, ...fields };
  });
}

const repliesTo = (correlationId: string): readonly Seen[] =>
  followed.flatMap(({ seen }) => seen.filter(({ message }) => message.key?.toString() === correlationId));
const lastAnswer = (correlationId: string) => answerIn(decodeReply(repliesTo(correlationId).at(-1) as Seen));

/** Sends requests, and returns what each is told: one code, or the first numbers in order. */
async function ask(requests: readonly TestRequest[]): Promise<readonly (number | string)[]> {
  const before = new Map(requests.map(({ correlationId }) => [correlationId, repliesTo(correlationId).length]));
  await realm.send(requests);
  for (const { correlationId, replyTopic } of requests) {
    const [main, other] = followed as [Followed, Followed];
    await (replyTopic === thrifty ? other : main).reply(correlationId, before.get(correlationId));
  }
  return requests.map(({ correlationId }) => lastAnswer(correlationId));
}

/** As `ask`, for requests that are in the story. */
async function tell(requests: readonly TestRequest[]): Promise<readonly (number | string)[]> {
  const answers = await ask(requests);
  requests.forEach(({ correlationId }, i) => {
    first.set(correlationId, answers[i] ?? '');
  });
  asks.push(...requests);
  return answers;
}

async function sequence(...args: readonly string[]) {
  const { code, stdout, stderr } = await runIdalloc(['sequence', ...args, '--json'], realm.env);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout);
}

const nextOf = async (name: string): Promise<number> => (await sequence('show', name)).next;

/** Replays everything with a worker that has no limits. `meanwhile`: before that worker starts. */
async function replay(flags: readonly string[] = [], meanwhile?: () => Promise<unknown>) {
  await worker.stop();
  const running = startIdalloc(['replay', '--from', '1d', '--yes', '--json', ...flags], realm.env);
  await running.printed(/start the workers now/);
  await meanwhile?.();
  worker = realm.worker();
  const { code, stdout, stderr } = await running.ended;
  expect(stdout, stderr).not.toBe('');
  // Every reply of the replay is in its topic by now, and the followers may be behind.
  await Promise.all(followed.map((one) => realm.readToEnd(one)));
  return { code, found: JSON.parse(stdout) };
}

/** The requests that were refused with one of these codes; with any by default. */
const refused = (...codes: readonly string[]) =>
  asks.filter(({ correlationId }) => {
    const answer = first.get(correlationId) ?? '';
    return typeof answer === 'string' && answer !== 'IDs' && (codes.length === 0 || codes.includes(answer));
  });
const answered = () => asks.filter((one) => !refused().includes(one));
const copiesOf = (requests: readonly TestRequest[]) =>
  requests.filter(({ correlationId, sequence: name, partition }) => {
    return partition !== partitionFor(Buffer.from(name ?? correlationId), PARTITIONS, () => 0);
  }).length;

beforeAll(async () => {
  realm = await Realm.create(suiteServers(), { partitions: PARTITIONS, env: SHORT_SESSION });
  thrifty = `${realm.env.REPLY_TOPIC_PREFIX}thrifty`;
  await realm.createTopic(thrifty);
  followed = await Promise.all([realm.follow(), realm.follow(thrifty)]);
  worker = realm.worker({ MAX_COUNT: String(MOST), QUOTAS: `${thrifty} 1 -` });
  await worker.ready();
});

afterAll(() => realm?.[Symbol.asyncDispose]());

const all = (many: number, answer: string) => Array.from({ length: many }, () => answer);
const from = (number: number, many: number) => Array.from({ length: many }, (_, nth) => number + nth);

test('68 requests get IDs, numbers, or a refusal of each code; afterwards the reasons for most refusals are gone', async () => {
  expect(await tell(make('early', 4, { sequence: INVOICES }))).toEqual(all(4, 'UNKNOWN_SEQUENCE'));
  await sequence('create', INVOICES, '--format', 'INV-{number:6}');
  await sequence('create', TICKETS, '--max', '3');
  await sequence('create', CLOSED);
  expect((await tell(make('invoice', 8, { sequence: INVOICES }))).toSorted()).toEqual(from(1, 8));
  expect((await tell(make('ticket', 3, { sequence: TICKETS }))).toSorted()).toEqual(from(1, 3));
  expect(await tell(make('ticket-late', 5, { sequence: TICKETS }))).toEqual(all(5, 'SEQUENCE_EXHAUSTED'));
  await tell(make('old', 2, { sequence: CLOSED }));
  await sequence('close', CLOSED, '--yes');
  expect(await tell(make('old-late', 4, { sequence: CLOSED }))).toEqual(all(4, 'SEQUENCE_CLOSED'));
  expect(await tell(make('usual', 20))).toEqual(all(20, 'IDs'));
  // It uses up the quota of more than a minute.
  expect(await tell(make('spent', 1, { count: MOST, replyTopic: thrifty }))).toEqual(['IDs']);
  expect(await tell(make('thrifty', 10, { replyTopic: thrifty }))).toEqual(all(10, 'QUOTA_EXCEEDED'));
  expect(await tell(make('huge', 5, { count: 5 * MOST }))).toEqual(all(5, 'INVALID_COUNT'));
  expect(await tell(make('expired', 6, { expiresAtMs: LONG_AGO_MS }))).toEqual(all(6, 'EXPIRED'));
  await sequence('redefine', TICKETS, '--max', '1000');
  expect(asks).toHaveLength(68);
  expect(refused()).toHaveLength(34);
});

test('a replay gives out nothing: what was refused is refused again, and what was answered gets the same bytes', async ({
  annotate,
}) => {
  const before = new Map(answered().map(({ correlationId }) => [correlationId, repliesTo(correlationId).length]));
  const { code, found } = await replay();
  await report(annotate, `replay of 68 requests: ${JSON.stringify({ code, ...found, plan: undefined })}`);
  for (const { correlationId } of answered()) {
    const replies = repliesTo(correlationId);
    expect(replies.length, correlationId).toBeGreaterThan(before.get(correlationId) ?? 0);
    expect(new Set(replies.map(({ message }) => message.value?.toString('hex'))).size, correlationId).toBe(1);
  }
  const told = (codes: readonly string[]) => [
    ...new Set(refused(...codes).map(({ correlationId }) => lastAnswer(correlationId))),
  ];
  const others = ['UNKNOWN_SEQUENCE', 'SEQUENCE_EXHAUSTED', 'SEQUENCE_CLOSED', 'QUOTA_EXCEEDED', 'INVALID_COUNT'];
  expect(told(others)).toEqual(['ANSWERED_BEFORE']);
  expect(told(['EXPIRED'])).toEqual(['EXPIRED']);
  expect([await nextOf(INVOICES), await nextOf(TICKETS), await nextOf(CLOSED)]).toEqual([9, 4, 3]);
  const nothing = { requests: 0, ids: 0, numbers: 0, listed: [] };
  const repeated = { read_again: asks.length + copiesOf(asks), newly_given: nothing, without_first: 0, findings: [] };
  expect({ code, found }).toMatchObject({ code: 0, found: repeated });
  // Copies of a request that are read together share a reply.
  expect(Object.keys(found.refused_again).toSorted()).toEqual(['ANSWERED_BEFORE', 'EXPIRED']);
  expect(found.refused_again.ANSWERED_BEFORE).toBeGreaterThanOrEqual(refused(...others).length);
});

test('offsets that another program moves back give out nothing either', async () => {
  await worker.stop();
  await realm.admin.resetOffsets({ groupId: realm.groupId, topic: realm.requestTopic, earliest: true });
  const before = repliesTo('usual-0').length;
  const closedBefore = repliesTo('old-late-0').length;
  worker = realm.worker();
  await (followed[0] as Followed).reply('usual-0', before);
  await (followed[0] as Followed).reply('old-late-0', closedBefore);
  expect(await ask(make('order', 1, { sequence: INVOICES }))).toEqual([9]); // it comes after all that is read again
  expect(await ask(make('call', 1, { sequence: TICKETS }))).toEqual([4]);
  expect(
    refused('UNKNOWN_SEQUENCE', 'SEQUENCE_EXHAUSTED').map(({ correlationId }) => lastAnswer(correlationId)),
  ).toEqual(all(9, 'ANSWERED_BEFORE'));
});

test('a refused document that asks again with a new record is numbered', async () => {
  expect(await ask(make('early', 1, { sequence: INVOICES }))).toEqual([10]);
});

test('--decide-refused says what it will take, and takes it', async ({ annotate }) => {
  await worker.stop();
  const dryRun = (...flags: readonly string[]) =>
    runIdalloc(['replay', '--from', '1d', '--dry-run', ...flags], realm.env);
  const undecided = [
    { sequence: CLOSED, requests: 4, wanted: 4 },
    { sequence: INVOICES, requests: 3, wanted: 3 }, // of four documents, since one has asked again
    { sequence: TICKETS, requests: 5, wanted: 5 },
    { reply_topic: thrifty, requests: 10, wanted: 10 },
    { reply_topic: realm.replyTopic, requests: 11, wanted: 5 * 5 * MOST + 6 },
  ];
  for (const flags of [[], ['--decide-refused']]) {
    const { code, stdout } = await dryRun(...flags, '--json');
    const found = JSON.parse(stdout).undecided as typeof undecided;
    expect(code).toBe(0);
    expect(found).toHaveLength(undecided.length);
    expect(found).toMatchObject(expect.arrayContaining(undecided.map((one) => expect.objectContaining(one))));
  }
  expect((await dryRun()).stdout).toMatch(/33 requests have no decision/);
  expect((await dryRun('--decide-refused')).stdout).toContain(INVOICES);
  expect(await nextOf(INVOICES)).toBe(11);
  const { code, found } = await replay(['--decide-refused']);
  await report(annotate, `replay --decide-refused: ${JSON.stringify({ code, ...found, plan: undefined })}`);
  const numbers = { requests: 23, numbers: 8, ids: 10 + 5 * 5 * MOST };
  expect(found).toMatchObject({ newly_given: numbers, findings: [] });
  const documents = found.newly_given.listed.map((one: { correlation_id: string }) => one.correlation_id);
  expect(documents.toSorted()).toEqual(
    [...refused('QUOTA_EXCEEDED', 'INVALID_COUNT', 'SEQUENCE_EXHAUSTED'), ...refused('UNKNOWN_SEQUENCE').slice(1)]
      .map(({ correlationId }) => correlationId)
      .toSorted(),
  );
  expect(code).toBe(0);
  expect([await nextOf(INVOICES), await nextOf(TICKETS), await nextOf(CLOSED)]).toEqual([14, 10, 3]);
  const told = (...codes: readonly string[]) => refused(...codes).map(({ correlationId }) => lastAnswer(correlationId));
  expect(told('QUOTA_EXCEEDED', 'INVALID_COUNT')).toEqual(all(15, 'IDs'));
  expect(told('SEQUENCE_CLOSED')).toEqual(all(4, 'SEQUENCE_CLOSED'));
  expect(told('EXPIRED')).toEqual(all(6, 'EXPIRED'));
  expect(told('UNKNOWN_SEQUENCE').toSorted((one, other) => Number(one) - Number(other))).toEqual(from(10, 4));
});

test('a replay that gives something out after all names it, and exits with 1', async () => {
  // Another program states meanwhile that nothing was answered: the last statement holds.
  const { key, value, headers } = replayRecord(0);
  const partitions = Array.from({ length: PARTITIONS }, (_, partition) => partition);
  const overrule = () =>
    realm.sendRaw(
      partitions.map((partition) => ({ partition, key, value, headers })),
      realm.ledgerTopic,
    );
  const late = make('late', 2, { sequence: 'invoices/2028' });
  expect(await ask(late)).toEqual(all(2, 'UNKNOWN_SEQUENCE'));
  await sequence('create', 'invoices/2028');
  const { code, found } = await replay([], overrule);
  expect({ code, given: found.newly_given }).toMatchObject({ code: 1, given: { requests: 2, ids: 0, numbers: 2 } });
  expect(found.newly_given.listed).toMatchObject([
    { correlation_id: 'late-0', sequence: 'invoices/2028', from: 1, to: 1 },
    { correlation_id: 'late-1', sequence: 'invoices/2028', from: 2, to: 2 },
  ]);
});

test('the audit of all this finds nothing wrong, and the journal has the commands', async () => {
  await worker.stop();
  const audit = await runIdalloc(['audit', '--json'], realm.env);
  expect(JSON.parse(audit.stdout)).toMatchObject({ findings: [] });
  expect(audit.code).toBe(0);
  const journal = await runIdalloc(['journal', '--json'], realm.env);
  const { entries } = JSON.parse(journal.stdout) as { entries: readonly { command: string; outcome: string }[] };
  expect(entries.map(({ command }) => command)).toEqual([
    ...['sequence create', 'sequence create', 'sequence create', 'sequence close', 'sequence redefine'],
    ...['replay', 'replay', 'sequence create', 'replay'],
  ]);
  expect(new Set(entries.map(({ outcome }) => outcome))).toEqual(new Set(['done']));
});

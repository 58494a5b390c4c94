import { afterEach, beforeEach, expect, test } from 'vitest';
import { ANSWERED_HEADER, decodeAnswered, readReplay, replayRecord } from '../../src/codec/request-position.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';
import { idFor } from '../support/home.ts';
import { idsOf, type StagedRequests, servedRequests } from '../support/staged-requests.ts';
import { config, type WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;
/** Longer than a commit takes, and the read of the ledger that precedes it. */
const SETTLED_MS = 3_000;
/** Longer than until added partitions are noticed. */
const NOTICED_MS = 12_000;
const { requests, ledger } = config.topics;
const LARGE = 6_000;

let stage: WorkerStage;
let asked: StagedRequests;

beforeEach(async () => {
  ({ stage, asked } = await servedRequests());
});

afterEach(() => stage.stop());

const ask = (ids: readonly string[]) => asked.send(ids);
const replies = (ids: readonly string[]) => asked.counts(ids);
const committed = () => asked.committed;
const warnings = () => stage.lines.filter(({ msg }) => msg.startsWith('the committed offset is not from a worker'));

/** Sets the group's offset as other tools do; undefined for none. */
const moveTo = (offset: number | undefined) => stage.kafka.cluster.groups.reset(config.groupId, requests, 0, offset);

/** Stops the worker, lets `happen` what does, and starts it again. */
async function meanwhile(happen: () => void): Promise<void> {
  await stage.stop();
  happen();
  stage.start();
  await stage.pass(START_MS);
}

test('an offset that was moved past waiting requests is not believed: they are answered, and the offset is set right', async () => {
  const [old, waiting] = [idsOf('old', 4), idsOf('waiting', 6)];
  ask(old);
  await stage.pass(SETTLED_MS);
  await meanwhile(() => {
    ask(waiting);
    moveTo(10);
  });
  expect(replies(waiting)).toEqual([1, 1, 1, 1, 1, 1]);
  expect(committed()).toBe(10);
  expect(warnings()).toMatchObject([{ partition: 0, offset: 10, level: 40 }]);
});

test('what the ledger shows as answered is not read again', async () => {
  const [early, late, waiting] = [idsOf('early', 4), idsOf('late', 1), idsOf('waiting', 1)];
  ask(early);
  await stage.pass(SETTLED_MS);
  ask(late);
  await stage.pass(SETTLED_MS);
  await meanwhile(() => {
    ask(waiting);
    moveTo(6);
  });
  expect(replies(early)).toEqual([1, 1, 1, 1]);
  expect(replies(late), 'answered after the last append').toEqual([2]);
  expect(replies(waiting)).toEqual([1]);
  expect(warnings()).toMatchObject([{ offset: 6, from: 4 }]);
});

test('an offset that was moved past large requests that wait is not believed', async () => {
  ask(idsOf('old', 1));
  await stage.pass(SETTLED_MS);
  const [large, small] = [idsOf('large', 3), idsOf('small', 3)];
  await meanwhile(() => {
    asked.send(large, LARGE);
    ask(small);
    moveTo(7);
  });
  expect(replies([...large, ...small])).toEqual([1, 1, 1, 1, 1, 1]);
});

test('an offset that was moved back is believed: what is read again gets the same replies, and nothing else is read', async () => {
  const old = idsOf('old', 4);
  ask(old);
  await stage.pass(SETTLED_MS);
  ask(idsOf('more', 1));
  await stage.pass(SETTLED_MS);
  await meanwhile(() => moveTo(2));
  expect(replies(old)).toEqual([1, 1, 2, 2]);
  expect(committed()).toBe(5);
});

test('an offset that was moved into a topic of which nothing is answered is not believed: all of it is read', async () => {
  const waiting = idsOf('waiting', 4);
  await meanwhile(() => {
    ask(waiting);
    moveTo(4);
  });
  expect(replies(waiting)).toEqual([1, 1, 1, 1]);
  expect(warnings()).toMatchObject([{ offset: 4, from: 0 }]);
});

test('an offset that was moved in an idle partition is set right at once, so that the next owner believes it', async () => {
  await meanwhile(() => moveTo(0));
  expect(warnings()).toMatchObject([{ offset: 0, from: 0 }]);
  await meanwhile(() => {});
  expect(warnings(), 'after another start').toHaveLength(1);
});

test('an offset that was moved in an added partition, which has no ledger, is not believed either', async () => {
  const added = config.topics.requestPartitions;
  const waiting = idsOf('waiting', 3);
  await meanwhile(() => {
    stage.kafka.cluster.growTopic(requests, added + 1);
    asked.send(waiting, 1, added);
    stage.kafka.cluster.groups.reset(config.groupId, requests, added, 3);
  });
  await stage.pass(NOTICED_MS);
  expect(replies(waiting)).toEqual([1, 1, 1]);
});

test('an offset in a log that has lost its tail since is not believed', async () => {
  ask(idsOf('old', 5));
  await stage.pass(SETTLED_MS);
  ask(idsOf('more', 5));
  await stage.pass(SETTLED_MS);
  const waiting = idsOf('waiting', 14);
  await meanwhile(() => {
    stage.kafka.cluster.truncate(requests, 0, 2);
    ask(waiting);
    moveTo(4);
  });
  await stage.pass(START_MS);
  expect(replies(waiting)).toEqual(waiting.map(() => 1));
});

/** One that nobody has created. */
const SEQUENCE = idFor('invoices', 0, config.topics.requestPartitions);
const codes = () => asked.repliesTo('document').map((reply) => ('error' in reply ? reply.error.code : 'numbers'));
const ledgerRecords = () => stage.kafka.cluster.partition(ledger, 0).log.batches().flatMap(recordsOf);
const statements = () => ledgerRecords().flatMap((record) => readReplay(record) ?? []);

/** A request that is refused, and two appends after it: the second says that it was answered. */
async function refused(): Promise<void> {
  asked.sendForNumber('document', SEQUENCE);
  await stage.pass(SETTLED_MS);
  for (const name of ['a', 'b']) {
    ask(idsOf(name, 1));
    await stage.pass(SETTLED_MS);
  }
  expect(codes()).toEqual(['UNKNOWN_SEQUENCE']);
}

test('an offset that was moved back, or deleted, is a replay: what was refused stays refused', async () => {
  await refused();
  await meanwhile(() => moveTo(0));
  expect([codes(), statements()]).toEqual([['UNKNOWN_SEQUENCE', 'ANSWERED_BEFORE'], [2]]);
  ask(idsOf('c', 1));
  await stage.pass(SETTLED_MS);
  await meanwhile(() => moveTo(undefined));
  expect([codes().slice(2), statements()]).toEqual([['ANSWERED_BEFORE'], [2, 3]]);
  expect(replies(idsOf('a', 1)), 'known ones are answered each time').toEqual([3]);
  expect(stage.lines.filter(({ msg }) => msg.startsWith('requests are read again'))).toMatchObject([
    { partition: 0, offset: 0, from: 0, answeredBelow: 2, level: 40 },
    { partition: 0, from: 0, answeredBelow: 3 },
  ]);
});

test('nothing is decided before the ledger says that it is a replay, however slowly that is written', async () => {
  await refused();
  const { network } = stage.kafka;
  const fateOf = network.fateOf.bind(network);
  network.fateOf = (message, host, node) =>
    message.call === 'produce' && message.request.topic === ledger ? 500 : fateOf(message, host, node);
  await meanwhile(() => moveTo(0));
  expect([codes(), statements()]).toEqual([['UNKNOWN_SEQUENCE', 'ANSWERED_BEFORE'], [2]]);
});

test('an offset that was moved back is a replay, though the last answered requests came in a dense batch', async () => {
  await refused();
  const junk = Array.from({ length: 600 }, () => ({ key: null, value: Buffer.alloc(0) }));
  stage.kafka.cluster.send(requests, 0, junk);
  await stage.pass(SETTLED_MS);
  ask(idsOf('c', 1));
  await stage.pass(SETTLED_MS);
  await meanwhile(() => moveTo(0));
  expect([codes(), statements()]).toEqual([['UNKNOWN_SEQUENCE', 'ANSWERED_BEFORE'], [603]]);
});

test('a request that nobody had answered is decided, though the offset was moved back', async () => {
  await refused();
  await meanwhile(() => {
    asked.sendForNumber('another', SEQUENCE);
    moveTo(0);
  });
  expect(asked.repliesTo('another')).toMatchObject([{ error: { code: 'UNKNOWN_SEQUENCE' } }]);
});

test('an order to decide what was refused is not taken back by a worker that finds the offset', async () => {
  await refused();
  await meanwhile(() => {
    const { end } = stage.kafka.cluster.partition(ledger, 0).log;
    stage.kafka.cluster.send(ledger, 0, [replayRecord(0, end)]);
    moveTo(0);
  });
  expect([codes(), statements()]).toEqual([['UNKNOWN_SEQUENCE', 'UNKNOWN_SEQUENCE'], [0]]);
});

test("a worker's own offset, and none at all, cause no warning", async () => {
  ask(idsOf('old', 4));
  await stage.pass(SETTLED_MS);
  await meanwhile(() => {});
  await meanwhile(() => moveTo(undefined));
  expect(warnings()).toEqual([]);
});

test('the first entry of each append says what was answered before it', async () => {
  for (const name of ['a', 'b', 'c']) {
    ask(idsOf(name, 2));
    await stage.pass(SETTLED_MS);
  }
  const said = ledgerRecords().flatMap(({ headers }) => {
    const header = headers?.[ANSWERED_HEADER];
    return Buffer.isBuffer(header) ? decodeAnswered(header.toString()) : [];
  });
  expect(said.map((position) => position?.next)).toEqual([2, 4]);
});

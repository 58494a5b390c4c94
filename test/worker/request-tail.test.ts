import { afterEach, beforeEach, expect, test } from 'vitest';
import { idsOf, type StagedRequests, servedRequests } from '../support/staged-requests.ts';
import { config, type WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;
const CONFIRMED_MS = 15_000;
/** A worker that was cut off has its brokers and its partitions back. */
const REACHED_MS = 60_000;
const { requests } = config.topics;

let stage: WorkerStage;
let asked: StagedRequests;

beforeEach(async () => {
  ({ stage, asked } = await servedRequests());
});

afterEach(() => stage.stop());

const ask = (ids: readonly string[]) => asked.send(ids);
const log = () => stage.kafka.cluster.partition(requests, 0).log;

/** How many replies a correlation ID got, all of them batches. */
function replies(id = ''): number {
  const found = asked.repliesTo(id);
  for (const reply of found) expect(reply).toHaveProperty('batch');
  return found.length;
}

/** The request topic loses all but its first four records, and takes new ones at once. Returns the IDs of these. */
function regrown(fresh: number): readonly string[] {
  stage.kafka.cluster.truncate(requests, 0, 4);
  const ids = idsOf('fresh', fresh);
  ask(ids);
  return ids;
}

test('after the request topic has lost its tail, requests at reused offsets get replies, old ones are not read again, and the loss is logged', async () => {
  const old = idsOf('old', 4);
  ask(old);
  await stage.pass(120_000);
  ask(old); // known requests: the tail has no decisions
  await stage.pass(3_000);
  expect(replies(old[0])).toBe(2);
  stage.kafka.cluster.truncate(requests, 0, 4);
  const [early, late] = [idsOf('early', 2), idsOf('late', 3)];
  ask(early); // before the worker has seen the shorter log
  await stage.pass(CONFIRMED_MS);
  ask(late);
  await stage.pass(CONFIRMED_MS);
  expect([...early, ...late].map((id) => replies(id))).toEqual([1, 1, 1, 1, 1]);
  expect(replies(old[0])).toBe(2);
  expect(stage.lines.filter(({ msg }) => /has lost records/.test(msg))).toMatchObject([
    { partition: 0, position: 8, logStart: 0, end: 6, from: 4 },
  ]);
  expect(asked.committed).toBe(log().end);
});

test('requests are answered even if the log is as long again moments after its loss was seen', async () => {
  const old = idsOf('old', 4);
  ask(old);
  await stage.pass(3_000);
  ask(old);
  await stage.pass(3_000);
  stage.kafka.cluster.truncate(requests, 0, 4);
  await stage.pass(3_000);
  const { committed } = asked;
  expect(committed, 'the next owner begins within the log').toBeLessThanOrEqual(4);
  const fresh = idsOf('fresh', 4);
  ask(fresh);
  expect(log().end).toBe(8);
  await stage.pass(CONFIRMED_MS);
  expect(fresh.map((id) => replies(id))).toEqual([1, 1, 1, 1]);
});

test('the offset after a lost tail is committed once the coordinator accepts it, even if nothing can be answered meanwhile', async () => {
  ask(idsOf('old', 4));
  await stage.pass(3_000);
  const { cluster } = stage.kafka;
  const committed = () => asked.committed;
  expect(committed()).toBe(4);
  cluster.refuses = (call) => (call === 'offsetCommit' ? 'GROUP_LOAD_IN_PROGRESS' : undefined);
  cluster.truncate(requests, 0, 2); // the ledger knows more: nothing is decided until the log is longer
  await stage.pass(3_000);
  expect(committed()).toBe(4);
  cluster.refuses = () => undefined;
  await stage.pass(3_000);
  expect(committed(), 'the next owner begins within the log').toBeLessThanOrEqual(2);
});

test('requests are answered even if the log is as long again before its loss could be seen', async () => {
  const old = idsOf('old', 4);
  ask(old);
  await stage.pass(120_000);
  ask(old);
  await stage.pass(3_000);
  expect(log().end).toBe(8);
  stage.cut.add('instance');
  await stage.pass(1_000);
  const fresh = regrown(4);
  expect(log().end).toBe(8);
  stage.cut.delete('instance');
  await stage.pass(REACHED_MS);
  expect(fresh.map((id) => replies(id))).toEqual([1, 1, 1, 1]);
  expect(stage.lines.filter(({ msg }) => /has lost records/.test(msg))).toHaveLength(1);
});

test('requests are answered even if the log is as long again at once, and no fetch has failed', async () => {
  ask(idsOf('old', 4));
  await stage.pass(120_000);
  ask(idsOf('last', 4));
  await stage.pass(3_000);
  const fresh = regrown(5);
  expect(log().end).toBe(9);
  await stage.pass(CONFIRMED_MS);
  expect(fresh.map((id) => replies(id))).toEqual([1, 1, 1, 1, 1]);
});

test('requests are answered even if the tail was lost while it was being answered', async () => {
  ask(idsOf('old', 4));
  await stage.pass(3_000);
  stage.kafka.network.script = (call, way) => (call === 'produce' && way === 'back' ? 3_000 : undefined);
  ask(idsOf('tail', 2));
  await stage.pass(500);
  stage.cut.add('instance');
  await stage.pass(1_000);
  stage.kafka.cluster.truncate(requests, 0, 4);
  stage.cut.delete('instance');
  await stage.pass(REACHED_MS);
  stage.kafka.network.script = () => undefined;
  const fresh = idsOf('fresh', 3);
  ask(fresh);
  await stage.pass(CONFIRMED_MS);
  expect(fresh.map((id) => replies(id))).toEqual([1, 1, 1]);
});

test('after an interruption without a loss nothing is answered again', async () => {
  const old = idsOf('old', 4);
  ask(old);
  await stage.pass(3_000);
  stage.cut.add('instance');
  await stage.pass(1_000);
  const fresh = idsOf('fresh', 4);
  ask(fresh);
  stage.cut.delete('instance');
  await stage.pass(REACHED_MS);
  expect([...old, ...fresh].map((id) => replies(id))).toEqual(Array(8).fill(1));
  expect(stage.lines.filter(({ msg }) => /has lost records/.test(msg))).toEqual([]);
});

test('a worker that starts after the log was lost and is as long again serves what is new', async () => {
  ask(idsOf('old', 4));
  await stage.pass(120_000);
  ask(idsOf('last', 4));
  await stage.pass(3_000);
  await stage.stop('instance');
  const fresh = regrown(5);
  stage.start();
  await stage.pass(START_MS + CONFIRMED_MS);
  expect(fresh.map((id) => replies(id))).toEqual([1, 1, 1, 1, 1]);
  expect(replies(idsOf('old', 4)[0])).toBe(1);
});

test('a worker that starts beyond the end of the log reads it from its start, once that is certain', async () => {
  ask(idsOf('old', 4));
  await stage.pass(3_000);
  asked.send(idsOf('old', 4), 2); // conflicts, which the ledger does not know of
  await stage.pass(3_000);
  await stage.stop('instance');
  const fresh = regrown(2);
  stage.start();
  await stage.pass(START_MS + CONFIRMED_MS + CONFIRMED_MS);
  expect(fresh.map((id) => replies(id))).toEqual([1, 1]);
});

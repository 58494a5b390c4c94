import { afterEach, beforeEach, expect, test } from 'vitest';
import { LARGE_AT_ONCE } from '../../src/pipeline/part.ts';
import { idsOf, type StagedRequests, servedRequests } from '../support/staged-requests.ts';
import { config, type WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;
const LARGE = 10_000;
/** More than a partition keeps in memory. */
const MANY = 1_100;
const { requests } = config.topics;

let stage: WorkerStage;
let asked: StagedRequests;

beforeEach(async () => {
  ({ stage, asked } = await servedRequests());
});

afterEach(() => stage.stop());

const replies = (ids: readonly string[]) => asked.counts(ids);
const all = (ids: readonly string[], count: number) => ids.map(() => count);
const committed = () => asked.committed;

test('more large requests than fit into memory are answered once each, and small ones do not wait for them', async () => {
  const [large, small] = [idsOf('large', MANY), idsOf('small', 10)];
  asked.send(large, LARGE);
  asked.send(small);
  await stage.pass(300);
  expect(replies(small)).toEqual(all(small, 1));
  const early = replies(large).filter((count) => count > 0).length;
  expect(early).toBeLessThan(MANY / 2);
  const late = idsOf('late', 10);
  asked.send(late);
  asked.send(idsOf('last', 1), LARGE);
  await stage.pass(300);
  expect(replies(late)).toEqual(all(late, 1));
  await stage.pass(20_000);
  expect(replies([...large, ...idsOf('last', 1)])).toEqual(all([...large, 'last'], 1));
  expect(committed()).toBe(MANY + 21);
});

test('requests of a dense batch are answered once each, after small ones behind them, and also by a worker that starts again', async () => {
  const dense = idsOf('dense', 1_200);
  const [before, after, late] = [idsOf('before', 5), idsOf('after', 5), idsOf('late', 5)];
  asked.send(before);
  asked.sendDense(dense);
  asked.send(after);
  await stage.pass(30);
  expect(replies([...before, ...after])).toEqual(all([...before, ...after], 1));
  await stage.stop('instance');
  const early = replies(dense).filter((count) => count > 0).length;
  expect(early).toBeLessThan(dense.length);
  stage.start();
  await stage.pass(START_MS);
  asked.send(late);
  await stage.pass(20_000);
  expect(replies([...before, ...after, ...late])).toEqual(all([...before, ...after, ...late], 1));
  expect(Math.min(...replies(dense))).toBe(1);
  expect(committed()).toBe(dense.length + 15);
});

test('a worker that answered a dense batch last continues behind it after an interruption, and reports no loss', async () => {
  const dense = idsOf('dense', 600);
  asked.sendDense(dense);
  await stage.pass(20_000);
  const { leadership } = stage.kafka.cluster.partition(requests, 0);
  stage.kafka.cluster.crash(leadership.leader);
  await stage.pass(20_000);
  const late = idsOf('late', 5);
  asked.send(late);
  await stage.pass(20_000);
  expect(replies([...dense, ...late])).toEqual(all([...dense, ...late], 1));
  expect(stage.lines.filter(({ msg }) => /lost/.test(msg))).toEqual([]);
});

test('a worker that starts again answers no small request again, and every large one', async () => {
  const [large, small] = [idsOf('large', 400), idsOf('small', 50)];
  asked.send(large, LARGE);
  asked.send(small);
  await stage.pass(300);
  await stage.stop('instance');
  expect(committed()).toBeLessThan(large.length);
  stage.start();
  await stage.pass(20_000);
  expect(replies(small)).toEqual(all(small, 1));
  const counts = replies(large);
  expect(Math.min(...counts)).toBe(1);
  expect(counts.filter((count) => count > 1).length).toBeLessThanOrEqual(LARGE_AT_ONCE);
  expect(committed()).toBe(large.length + small.length);
});

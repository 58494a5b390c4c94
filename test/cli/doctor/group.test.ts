import { expect, test } from 'vitest';
import { judgeGroup } from '../../../src/cli/doctor/kafka.ts';
import type { DescribedGroup } from '../../../src/kafka/loops/described-group.ts';

const MEMBER = { memberId: 'm', clientId: 'idalloc', clientHost: '/192.0.2.1', assignment: Buffer.alloc(0) };
const FOREIGN = { ...MEMBER, clientId: 'rdkafka', clientHost: '/192.0.2.7' };
const GROUP: DescribedGroup = { state: 'Stable', members: [MEMBER], foreign: [] };
const SPANS = [0, 1].map((partition) => ({ topic: 'id.requests', partition, from: 10, to: 20 }));
const by = (isWorkers: boolean, offset = 15) => ({
  offset,
  position: isWorkers ? { next: offset, small: offset } : undefined,
});
const judge = (group: DescribedGroup | undefined, ...committed: readonly ReturnType<typeof by>[]) =>
  judgeGroup('workers', group, SPANS, new Map(committed.entries()));

test('a group of workers is well, with its members and its lag', () => {
  expect(judge(GROUP, by(true), by(true, 20))).toEqual({
    name: 'consumer group',
    state: 'ok',
    detail: 'workers: Stable, 1 member, lag 5',
  });
});

test('a group that does not exist yet is well', () => {
  expect(judge(undefined)).toMatchObject({ state: 'ok', detail: 'workers: none yet, 0 members, lag 20' });
});

test('a consumer that is not a worker is a fault, with its name', () => {
  expect(judge({ ...GROUP, members: [MEMBER, FOREIGN], foreign: [FOREIGN] }, by(false))).toMatchObject({
    state: 'fault',
    detail: "workers: Stable, 2 members, lag 15; not a worker: 'rdkafka' at 192.0.2.7",
  });
});

test('of many consumers that are not workers, with long names, the first are named in short', () => {
  const foreign = Array.from({ length: 300 }, () => ({ ...FOREIGN, clientId: 'x'.repeat(30_000) }));
  const { detail } = judge({ ...GROUP, members: foreign, foreign });
  expect(detail).toMatch(/not a worker: ('x{100}…' at 192\.0\.2\.7, ){5}295 more$/);
});

test('offsets that no worker committed are a warning, with their partitions', () => {
  expect(judge(GROUP, by(true), by(false))).toMatchObject({
    state: 'warn',
    detail: 'workers: Stable, 1 member, lag 10; no worker committed the offsets of partitions 1',
  });
});

import { afterEach, beforeEach, expect, test } from 'vitest';
import type { EtcdStatus } from '../../src/adapters/etcd/member.ts';
import { IdallocError } from '../../src/errors.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;
const EXHAUSTED_MS = config.timing.reserveMs + config.timing.heartbeatMs;
const LOOK_MS = 61_000;
const REFUSED =
  'etcd refused a transaction (etcd: database space exceeded): compact and defragment it, then disarm the alarm';

let stage: WorkerStage;

beforeEach(() => {
  stage = new WorkerStage();
});

afterEach(() => stage.stop());

/** etcd refuses writes, and the adapter says why. */
function fill(): void {
  stage.etcd.fill();
  stage.etcdTells.error = new IdallocError('ETCD_REFUSED', REFUSED);
}

function free(): void {
  stage.etcd.free();
  stage.etcdTells.error = undefined;
}

const status = (changes: Partial<EtcdStatus> = {}): EtcdStatus => {
  return { version: '3.6.1', isLeader: true, hasLeader: true, dbBytes: 2 ** 20, alarms: [], latencyMs: 1, ...changes };
};
const tell = (changes: Partial<EtcdStatus>) => {
  stage.etcdTells.statuses = new Map([['http://etcd:2379', status(changes)]]);
};
const logged = (message: string) => stage.lines.filter(({ msg }) => msg === message);

test('a worker whose etcd refuses writes names the alarm and the remedy, and resumes within 5 s of the repair', async () => {
  const worker = stage.start();
  await stage.pass(START_MS);
  expect(worker.unready).toBeUndefined();
  fill();
  await stage.pass(EXHAUSTED_MS);
  expect([worker.unready, worker.unreadyDetail]).toEqual(['RESERVATION_EXHAUSTED', REFUSED]);
  expect(logged('gate closed').at(-1)).toMatchObject({ detail: expect.stringContaining(REFUSED) });
  await stage.pass(2 * 60_000);
  free();
  await stage.pass(5_000);
  expect(logged('gate open')).toHaveLength(2);
});

test('a worker that starts while etcd refuses writes says why, and holds a worker ID within 5 s of the repair', async () => {
  fill();
  const worker = stage.start();
  await stage.pass(2 * 60_000);
  expect([worker.unready, worker.unreadyDetail]).toEqual(['NO_IDENTITY', REFUSED]);
  free();
  await stage.pass(5_000);
  expect(logged('worker ID acquired')).toHaveLength(1);
});

test.each([
  ['NOSPACE', /quota \(alarm NOSPACE\): compact and defragment it, then disarm the alarm/],
  ['CORRUPT', /alarm CORRUPT\): replace that member, then disarm the alarm/],
] as const)(
  'the alarm %s is reported within a minute, with its remedy, once, and when it is disarmed',
  async (alarm, remedy) => {
    const worker = stage.start();
    await stage.pass(START_MS);
    tell({ alarms: [alarm] });
    await stage.pass(2 * LOOK_MS);
    expect(worker.warning).toEqual({ code: 'ETCD_REFUSED', detail: expect.stringMatching(remedy) });
    expect(worker.vitals().etcd.alarms).toEqual(new Set([alarm]));
    expect(logged('etcd has raised an alarm')).toMatchObject([{ level: 50, error: worker.warning?.detail }]);
    tell({});
    await stage.pass(LOOK_MS);
    expect([worker.warning, worker.vitals().etcd.alarms.size]).toEqual([undefined, 0]);
    expect(logged('etcd has no alarm, and its database is below three quarters of its quota')).toHaveLength(1);
  },
);

test('an alarm that is there before is reported as soon as a worker starts', async () => {
  tell({ alarms: ['NOSPACE'] });
  const worker = stage.start();
  await stage.pass(100);
  expect(worker.warning?.detail).toMatch(/alarm NOSPACE/);
});

test('a database above three quarters of the quota is reported while writes still succeed', async () => {
  const { quotaBytes } = config.etcd;
  tell({ dbBytes: 0.75 * quotaBytes });
  const worker = stage.start();
  await stage.pass(START_MS);
  expect(worker.warning).toBeUndefined();
  tell({ dbBytes: 0.8 * quotaBytes });
  await stage.pass(LOOK_MS);
  expect(worker.warning?.detail).toMatch(/nears its quota \(http:\/\/etcd:2379 80 %\).*compact and defragment/);
  expect(worker.vitals().etcd.databases).toEqual([{ endpoint: 'http://etcd:2379', bytes: 0.8 * quotaBytes }]);
  expect([worker.unready, logged('the database of etcd is nearly full').length]).toEqual([undefined, 1]);
});

test('a member that no longer answers is left out, and counts neither as alarmed nor as repaired', async () => {
  const worker = stage.start();
  tell({ alarms: ['NOSPACE'] });
  await stage.pass(LOOK_MS);
  stage.etcdTells.statuses = new Map();
  await stage.pass(LOOK_MS);
  expect(worker.vitals().etcd).toEqual({ databases: [], alarms: new Set() });
  expect(logged('etcd has no alarm, and its database is below three quarters of its quota')).toEqual([]);
});

test('a large database is not reported as repaired while its member is silent', async () => {
  const small = ['http://etcd-2:2379', status()] as const;
  stage.etcdTells.statuses = new Map([['http://etcd:2379', status({ dbBytes: config.etcd.quotaBytes })], small]);
  stage.start();
  await stage.pass(START_MS);
  stage.etcdTells.statuses = new Map([small]);
  await stage.pass(2 * LOOK_MS);
  const repaired = 'etcd has no alarm, and its database is below three quarters of its quota';
  expect(logged(repaired)).toEqual([]);
  stage.etcdTells.statuses = new Map([['http://etcd:2379', status()], small]);
  await stage.pass(LOOK_MS);
  expect(logged(repaired)).toHaveLength(1);
});

test('a warning of the topics and one of etcd are shown together, with the code of the first', async () => {
  const worker = stage.start();
  await stage.pass(START_MS);
  tell({ alarms: ['NOSPACE'] });
  stage.kafka.cluster.growTopic(config.topics.requests, 5);
  await stage.pass(LOOK_MS);
  expect(worker.warning).toEqual({
    code: 'TOPIC_INVALID',
    detail: expect.stringMatching(/has 5 partitions.*; etcd's database has reached its quota/),
  });
});

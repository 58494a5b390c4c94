import { afterEach, expect, test } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { IdallocError } from '../../src/errors.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const ERROR_LEVEL = 50;
const WARN_LEVEL = 40;
/** Time to acquire a worker ID and to join the group. */
const START_MS = 10_000;

let stage: WorkerStage;

afterEach(() => stage.stop());

async function started(changes: Partial<typeof config> = {}): Promise<void> {
  stage = new WorkerStage();
  stage.start(changes);
  await stage.pass(START_MS);
}

test('an etcd that was rolled back is logged as one error line with the remedy', async () => {
  await started();
  stage.etcd.wipe();
  await stage.pass(60_000);
  expect(stage.lines.filter(({ level }) => level >= ERROR_LEVEL)).toMatchObject([
    { code: 'RESTORED', error: expect.stringMatching(/run 'idalloc namespace rebuild'/) },
  ]);
});

test('a worker that starts on an etcd that was rolled back logs one error line with the remedy', async () => {
  await started();
  await stage.stop();
  stage.etcd.wipe();
  const before = stage.lines.length;
  stage.start();
  await stage.pass(60_000);
  expect(stage.lines.slice(before).filter(({ level }) => level >= ERROR_LEVEL)).toMatchObject([{ code: 'RESTORED' }]);
});

test('a worker that etcd left logs that it left the group, has no partition meanwhile, and logs that it is ready again', async () => {
  const at = START_MS;
  stage = new WorkerStage();
  const worker = stage.start();
  await stage.pass(at);
  const serving = () => worker.status.partitions.map(({ owned, copy }) => `${owned} ${copy}`);
  expect(new Set(serving())).toEqual(new Set(['true serving']));
  const error = 'etcd has not confirmed the lease';
  stage.etcdFault = new IdallocError('ETCD_UNAVAILABLE', 'no response');
  await stage.pass(40_000);
  expect(new Set(serving())).toEqual(new Set(['false following']));
  expect(worker.unreadyDetail).toContain(error);
  expect(worker.status.detail).toContain(error);
  stage.etcdFault = undefined;
  await stage.pass(40_000);
  const told = stage.lines.flatMap(({ msg, reason }) =>
    /^(idalloc ready|not ready|ready again|left the request group)$/.test(msg) ? [reason ?? msg] : [],
  );
  expect(told).toEqual(['idalloc ready', 'LEASE_SUSPENDED', 'left the request group', 'LEASE_LOST', 'ready again']);
});

test('a worker without Kafka logs no line of which the error is empty', async () => {
  await started();
  stage.onBrokers('freeze');
  await stage.pass(60_000);
  stage.onBrokers('thaw');
  await stage.pass(60_000);
  expect(stage.lines.filter(({ error }) => error === '')).toEqual([]);
});

test('refused requests are one line in 10 s for each code, with the first as an example', async () => {
  await started();
  const correlationId = Buffer.from('late-1');
  const replyTopic = topicOf('late');
  stage.kafka.cluster.createTopic(replyTopic, { partitions: 1, replicas: 3 });
  const value = encodeIdRequest({ count: 1, correlationId, replyTopic, expiresAtMs: 1 });
  for (const partition of [0, 1, 2])
    stage.kafka.cluster.send(config.topics.requests, partition, [{ key: correlationId, value }]);
  await stage.pass(1_000);
  expect(stage.lines.filter(({ msg }) => msg.startsWith('requests were refused'))).toMatchObject([
    { code: 'EXPIRED', offset: expect.any(Number), partition: expect.any(Number), correlationId: 'late-1' },
  ]);
});

test('dead letters are one line in 10 s for each code, with their number', async () => {
  await started();
  const malformed = () =>
    stage.kafka.cluster.send(config.topics.requests, 0, [{ key: null, value: Buffer.from('junk') }]);
  for (let sent = 0; sent < 4; sent += 1) {
    malformed();
    await stage.pass(1_000);
  }
  await stage.pass(10_000);
  malformed();
  await stage.pass(1_000);
  const lines = stage.lines.filter(({ msg }) => msg.startsWith('requests became dead letters'));
  expect(lines.map(({ level, code, count, partition, offset }) => [level, code, count, partition, offset])).toEqual([
    [WARN_LEVEL, 'MALFORMED_REQUEST', 1, 0, 0],
    [WARN_LEVEL, 'MALFORMED_REQUEST', 4, 0, 4],
  ]);
});

/** Starts a worker that allows each of these tenants one request a second. */
async function startedWithQuotas(tenants: readonly string[]): Promise<void> {
  const quotas = tenants.map((tenant) => `id.replies.${tenant}. - 1`).join('\n');
  await started({ quotas: () => quotas });
  const replies = { partitions: 1, replicas: 3 };
  for (const tenant of tenants) stage.kafka.cluster.createTopic(topicOf(tenant), replies);
}

const topicOf = (tenant: string) => `id.replies.${tenant}.a`;

/** Each tenant asks three times, in turn: the quota refuses two of its requests. */
async function askTooMuch(tenants: readonly string[], name: string): Promise<void> {
  const ask = (tenant: string, round: number) => {
    const correlationId = Buffer.from(`${name} ${round} of ${tenant}`);
    return { key: correlationId, value: encodeIdRequest({ count: 1, correlationId, replyTopic: topicOf(tenant) }) };
  };
  const records = [0, 1, 2].flatMap((round) => tenants.map((tenant) => ask(tenant, round)));
  stage.kafka.cluster.send(config.topics.requests, 0, records);
  await stage.pass(1_000);
}

const refusals = () => stage.lines.filter(({ msg }) => msg.startsWith('requests were refused by'));

test('a tenant whose prefix differs from that of another only in a digit has a line of its own', async () => {
  const tenants = ['eu1', 'eu2'];
  await startedWithQuotas(tenants);
  await askTooMuch(tenants, 'once');
  expect(
    refusals()
      .map(({ prefix, count }) => [prefix, count])
      .sort(),
  ).toEqual([
    ['id.replies.eu1.', 1],
    ['id.replies.eu2.', 1],
  ]);
});

test('101 tenants above their quotas are 21 lines in 10 s, one of which counts those without a line', async () => {
  const letters = [...'abcdefghijk'];
  const tenants = letters.flatMap((one) => letters.map((other) => `${one}${other}`)).slice(0, 101);
  await startedWithQuotas(tenants);
  await askTooMuch(tenants, 'first');
  expect(refusals()).toHaveLength(21);
  await askTooMuch(tenants, 'soon after');
  expect(refusals()).toHaveLength(21);
  await stage.pass(10_000);
  await askTooMuch(tenants, 'later');
  expect(refusals()).toHaveLength(42);
  const counts = refusals().flatMap(({ names, count }) => (names === undefined ? [] : [{ names, count }]));
  expect(counts).toMatchObject([{ names: 1, count: 1 }, { names: 81 }]);
});

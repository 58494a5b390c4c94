import { afterEach, expect, test } from 'vitest';
import { config, WorkerStage } from '../support/worker-stage.ts';

const ERROR_LEVEL = 50;
const WARN_LEVEL = 40;
/** Time to acquire a worker ID and to join the group. */
const START_MS = 10_000;

let stage: WorkerStage;

afterEach(() => stage.stop());

async function started(): Promise<void> {
  stage = new WorkerStage();
  stage.start();
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
  expect(lines.map(({ level, code, count }) => [level, code, count])).toEqual([
    [WARN_LEVEL, 'MALFORMED_REQUEST', 1],
    [WARN_LEVEL, 'MALFORMED_REQUEST', 4],
  ]);
});

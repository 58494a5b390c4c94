import { expect, test } from 'vitest';
import { namespaceKeys } from '../../src/identity/keys.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

/** Longer than a worker takes until it serves. */
const START_MS = 10_000;

test('a worker that stops gives its worker ID back before it closes etcd', async () => {
  const stage = new WorkerStage();
  const keys = namespaceKeys(config.etcd.prefix, config.datacenterId);
  const pool = Array.from({ length: config.pool.last + 1 }, (_, workerId) => workerId);
  const held = () => pool.filter((workerId) => stage.etcd.peek(keys.owner(workerId)) !== undefined);
  stage.start();
  await stage.pass(START_MS);
  expect(held()).toHaveLength(1);
  const heldThen: number[][] = [];
  stage.onEtcdClosed = () => heldThen.push(held());
  await stage.stop();
  expect(heldThen[0]).toEqual([]);
});

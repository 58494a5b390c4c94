import { beforeEach, describe, expect, test, vi } from 'vitest';
import type { Config } from '../../src/config.ts';
import { IdallocError } from '../../src/errors.ts';
import type { Worker } from '../../src/worker.ts';
import { cli } from './harness.ts';

const startWorker = vi.hoisted(() => vi.fn<(config: Config) => Promise<Worker>>());
vi.mock('../../src/worker.ts', () => ({ startWorker }));

/** A worker's log goes to stdout, where it would mix with the report of the tests. */
vi.mock('../../src/log.ts', async (original) => {
  const real = await original<typeof import('../../src/log.ts')>();
  const nowhere = { write: () => undefined };
  return { ...real, createLogger: () => real.createLogger({ level: 'info', destination: nowhere }) };
});

const ENV = {
  KAFKA_BROKERS: 'a:1',
  ETCD_ENDPOINTS: 'http://a:1',
  DATACENTER_ID: '0',
  OPS_HOST: '127.0.0.1',
  OPS_PORT: '0',
  DRAIN_TIMEOUT_MS: '0',
};

/** A worker that does nothing until it is told to fail; it counts how often it was released. */
function idleWorker() {
  const done = Promise.withResolvers<void>();
  const released = vi.fn(async () => undefined);
  const worker: Worker = { done: done.promise, health: () => ({ gate: 'open' }), [Symbol.asyncDispose]: released };
  return { worker, released, fail: (error: Error) => done.reject(error) };
}

beforeEach(() => {
  startWorker.mockReset();
});

describe('idalloc worker', () => {
  test('serves until told to stop, then releases the worker once and ends with 0', async () => {
    const { worker, released } = idleWorker();
    const stop = new AbortController();
    const started = new Promise<void>((resolve) => {
      startWorker.mockImplementation(async () => {
        resolve();
        return worker;
      });
    });
    const running = cli(['worker'], ENV, stop.signal);
    await started;
    expect(released).not.toHaveBeenCalled();
    stop.abort();
    expect((await running).code).toBe(0);
    expect(released).toHaveBeenCalledTimes(1);
  });

  test("puts this machine's address in where none was given", async () => {
    startWorker.mockRejectedValue(new IdallocError('KAFKA_UNAVAILABLE', 'x'));
    await cli(['worker'], ENV);
    await cli(['worker'], { ...ENV, WORKER_IP: '192.0.2.9' });
    expect(startWorker.mock.calls.map(([config]) => config.workerIp)).toEqual(['192.0.2.1', '192.0.2.9']);
  });

  test.each([
    ['a fault with a code', new IdallocError('INDEX_LOCKED', 'x'), 1],
    ['a faulty configuration', new IdallocError('CONFIG_INVALID', 'x'), 78],
    ['a fault of idalloc itself', new TypeError('x'), 70],
  ])('that can not start for %s ends with its code', async (_, error, code) => {
    startWorker.mockRejectedValue(error);
    expect((await cli(['worker'], ENV)).code).toBe(code);
  });

  test('whose worker can not go on releases it and ends with 1', async () => {
    const { worker, released, fail } = idleWorker();
    startWorker.mockResolvedValue(worker);
    const running = cli(['worker'], ENV);
    fail(new IdallocError('NAMESPACE_MISMATCH', 'x'));
    expect((await running).code).toBe(1);
    expect(released).toHaveBeenCalledTimes(1);
  });

  test('that is told to stop while its start hangs does not wait for it', async () => {
    const stop = new AbortController();
    startWorker.mockReturnValue(new Promise(() => undefined));
    const running = cli(['worker'], ENV, stop.signal);
    stop.abort();
    expect((await running).code).toBe(1);
  });

  test('whose release fails ends with 1', async () => {
    const { worker, released } = idleWorker();
    released.mockRejectedValue(new IdallocError('ETCD_UNAVAILABLE', 'x'));
    startWorker.mockResolvedValue(worker);
    const stop = new AbortController();
    stop.abort();
    expect((await cli(['worker'], ENV, stop.signal)).code).toBe(1);
  });

  test('whose port is taken does not start the worker and ends with 78', async () => {
    expect((await cli(['worker'], { ...ENV, OPS_HOST: '192.0.2.7' })).code).toBe(78);
    expect(startWorker).not.toHaveBeenCalled();
  });
});

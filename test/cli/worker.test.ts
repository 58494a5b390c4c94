import { beforeEach, describe, expect, test, vi } from 'vitest';
import type { Config } from '../../src/config/config.ts';
import { IdallocError } from '../../src/errors.ts';
import type { Worker } from '../../src/worker/worker.ts';
import { cli } from './harness.ts';

/** Creates the workers that the command gets from `new Worker()`. */
const createWorker = vi.hoisted(() => vi.fn<(config: Config) => Worker>());
vi.mock('../../src/worker/worker.ts', () => ({
  Worker: function FakeWorker(config: Config) {
    return createWorker(config);
  },
}));

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

/** A worker that does nothing until the test makes it fail; it counts how often it was released. */
function idleWorker() {
  const done = Promise.withResolvers<void>();
  done.promise.catch(() => undefined); // as the real one does
  const released = vi.fn(async () => undefined);
  const worker = { done: done.promise, unready: undefined, [Symbol.asyncDispose]: released } as unknown as Worker;
  return { worker, released, fail: (error: Error) => done.reject(error) };
}

/** A worker that has failed already. */
function failedWorker(error: Error) {
  const idle = idleWorker();
  idle.fail(error);
  return idle;
}

beforeEach(() => {
  createWorker.mockReset();
});

describe('idalloc worker', () => {
  test('serves until it is stopped, then releases the worker once and exits with 0', async () => {
    const { worker, released } = idleWorker();
    const stop = new AbortController();
    const started = Promise.withResolvers<void>();
    createWorker.mockImplementation(() => {
      started.resolve();
      return worker;
    });
    const running = cli(['worker'], ENV, stop.signal);
    await started.promise;
    expect(released).not.toHaveBeenCalled();
    stop.abort();
    expect((await running).code).toBe(0);
    expect(released).toHaveBeenCalledTimes(1);
  });

  test('with a delay announces its end at the stop, and serves on until it is over or the worker can not continue', async () => {
    const { worker, released, fail } = idleWorker();
    const [stop, announced, started] = [
      new AbortController(),
      Promise.withResolvers<void>(),
      Promise.withResolvers<void>(),
    ];
    createWorker.mockImplementation(() => {
      started.resolve();
      return Object.assign(worker, { announceEnd: announced.resolve });
    });
    const running = cli(['worker'], { ...ENV, SHUTDOWN_DELAY_MS: '60000' }, stop.signal);
    await started.promise;
    stop.abort();
    await announced.promise;
    await new Promise((resolve) => setImmediate(resolve));
    expect(released).not.toHaveBeenCalled();
    fail(new IdallocError('INDEX_LOCKED', 'x'));
    expect((await running).code).toBe(1);
    expect(released).toHaveBeenCalledTimes(1);
  });

  test("uses this machine's address if WORKER_IP is not set", async () => {
    createWorker.mockImplementation(() => failedWorker(new IdallocError('INDEX_LOCKED', 'x')).worker);
    await cli(['worker'], ENV);
    await cli(['worker'], { ...ENV, WORKER_IP: '192.0.2.9' });
    expect(createWorker.mock.calls.map(([config]) => config.workerIp)).toEqual(['192.0.2.1', '192.0.2.9']);
  });

  test.each([
    ['a fault with a code', new IdallocError('INDEX_LOCKED', 'x'), 1],
    ['an invalid configuration', new IdallocError('CONFIG_INVALID', 'x'), 78],
    ['an internal error', new TypeError('x'), 70],
  ])(
    "releases the worker and exits with its code, if it can't start or continue because of %s",
    async (_, error, code) => {
      const { worker, released } = failedWorker(error);
      createWorker.mockReturnValue(worker);
      expect((await cli(['worker'], ENV)).code).toBe(code);
      expect(released).toHaveBeenCalledTimes(1);
    },
  );

  test('exits with 1 after the drain time and the release time, if the release hangs', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const { worker, released } = idleWorker();
      const releasing = Promise.withResolvers<void>();
      released.mockImplementation(() => {
        releasing.resolve();
        return new Promise(() => undefined);
      });
      createWorker.mockReturnValue(worker);
      const stop = new AbortController();
      stop.abort();
      const running = cli(['worker'], ENV, stop.signal);
      await releasing.promise;
      await vi.advanceTimersByTimeAsync(10_000);
      expect((await running).code).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test('exits with 1 if the release fails', async () => {
    const { worker, released } = idleWorker();
    released.mockRejectedValue(new IdallocError('ETCD_UNAVAILABLE', 'x'));
    createWorker.mockReturnValue(worker);
    const stop = new AbortController();
    stop.abort();
    expect((await cli(['worker'], ENV, stop.signal)).code).toBe(1);
  });

  test('exits with 78 without starting the worker, if its port is taken', async () => {
    expect((await cli(['worker'], { ...ENV, OPS_HOST: '192.0.2.7' })).code).toBe(78);
    expect(createWorker).not.toHaveBeenCalled();
  });
});

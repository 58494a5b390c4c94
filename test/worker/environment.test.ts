import { describe, expect, test } from 'vitest';
import type { ClosableEtcd } from '../../src/adapters/etcd/etcd.ts';
import { IdallocError } from '../../src/errors.ts';
import { stepTimer, timedEtcd } from '../../src/worker/environment.ts';

/** A clock that each call of `work` moves by 250 ms. */
function world() {
  let nowMs = 1_000;
  const seen: unknown[][] = [];
  const clock = { monotonicMs: () => nowMs };
  const work = async <T>(result: T): Promise<T> => {
    nowMs += 250;
    return result;
  };
  const fail = async (): Promise<never> => {
    nowMs += 4_000;
    throw new IdallocError('ETCD_UNAVAILABLE', 'no member answered');
  };
  const note = (...args: unknown[]) => {
    seen.push(args);
  };
  return { clock, work, fail, seen, note };
}

describe('a step', () => {
  test('is measured, and its result returned', async () => {
    const { clock, work, seen, note } = world();
    const timeStep = stepTimer(clock, { observeStep: note });
    expect(await timeStep('append', () => work('done'))).toBe('done');
    expect(seen).toEqual([['append', 250]]);
  });

  test('that fails is measured as well, and fails', async () => {
    const { clock, fail, seen, note } = world();
    await expect(stepTimer(clock, { observeStep: note })('reply', fail)).rejects.toThrow('no member answered');
    expect(seen).toEqual([['reply', 4_000]]);
  });
});

describe('a measured etcd', () => {
  const portOf = (over: Partial<ClosableEtcd>): ClosableEtcd => over as ClosableEtcd;

  test('passes each call on, and says how long it took', async () => {
    const { clock, work, seen, note } = world();
    const calls: unknown[][] = [];
    const answered =
      <T>(result: T) =>
      (...args: unknown[]) => {
        calls.push(args);
        return work(result);
      };
    const etcd = portOf({
      range: answered({ revision: 1n, kvs: [] }),
      get: answered(new Map()),
      transact: answered({ succeeded: true, revision: 2n }),
      grantLease: answered(undefined),
      keepAlive: answered({ ttlSeconds: 30 }),
      revokeLease: answered(undefined),
    });
    const timed = timedEtcd(etcd, clock, { observeEtcdCall: note });
    await timed.range('/a', { from: '/ab', limit: 2 });
    await timed.get(['/b']);
    expect(await timed.transact([], [])).toEqual({ succeeded: true, revision: 2n });
    await timed.grantLease(7n, 30);
    expect(await timed.keepAlive(7n)).toEqual({ ttlSeconds: 30 });
    await timed.revokeLease(7n);
    expect(calls).toEqual([['/a', { from: '/ab', limit: 2 }], [['/b']], [[], []], [7n, 30], [7n], [7n]]);
    const names = ['range', 'get', 'transact', 'grant_lease', 'keep_alive', 'revoke_lease'];
    expect(seen).toEqual(names.map((name) => [name, 250, 'answered']));
  });

  test('tells a call that was not answered from one that was', async () => {
    const { clock, fail, seen, note } = world();
    const timed = timedEtcd(portOf({ keepAlive: fail }), clock, { observeEtcdCall: note });
    await expect(timed.keepAlive(7n)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    expect(seen).toEqual([['keep_alive', 4_000, 'failed']]);
  });

  test('tells a refusal from a call that nothing answered', async () => {
    const { clock, seen, note } = world();
    const refuse = () => Promise.reject(new IdallocError('ETCD_REFUSED', 'no space'));
    await expect(
      timedEtcd(portOf({ transact: refuse }), clock, { observeEtcdCall: note }).transact([], []),
    ).rejects.toThrow();
    expect(seen).toEqual([['transact', 0, 'refused']]);
  });

  test('shows the last error of etcd, and closes it', () => {
    const { clock, note } = world();
    const lastError = new IdallocError('ETCD_UNAVAILABLE', 'no member answered');
    let closed = 0;
    const etcd = portOf({
      lastError,
      close: () => {
        closed += 1;
      },
    });
    const timed = timedEtcd(etcd, clock, { observeEtcdCall: note });
    timed.close();
    expect([timed.lastError, closed]).toEqual([lastError, 1]);
  });
});

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type ErrorClassifier, Rotation } from '../../../src/adapters/etcd/rotation.ts';
import { describeError } from '../../../src/errors.ts';

const TIMING = { callMs: 4_000, hedgeMs: 1_000 };
const PEERS = ['a', 'b', 'c'].map((endpoint) => ({ endpoint }));

/** Endpoints that answer when the test says so; `called` lists the endpoints that were called, in order. */
function stage(
  isFinal: (error: unknown) => boolean = () => false,
  remedyOf: ErrorClassifier['remedyOf'] = () => undefined,
  isRefusal: (error: unknown) => boolean = isFinal,
) {
  const called: string[] = [];
  const faults: string[] = [];
  const waiting = new Map<string, PromiseWithResolvers<string>>();
  const returned: string[] = [];
  const rotation = new Rotation(
    PEERS,
    TIMING,
    { isFinal, isRefusal, remedyOf, textOf: describeError },
    ({ endpoint }) => faults.push(endpoint),
    (endpoint) => returned.push(endpoint),
  );
  const signals: AbortSignal[] = [];
  const run = () =>
    rotation.run('a call', ({ endpoint }, signal) => {
      called.push(endpoint);
      signals.push(signal);
      const deferred = Promise.withResolvers<string>();
      waiting.set(endpoint, deferred);
      return deferred.promise;
    });
  const answer = (endpoint: string) => waiting.get(endpoint)?.resolve(endpoint);
  const refuse = (endpoint: string, why = 'down') => waiting.get(endpoint)?.reject(new Error(why));
  return { rotation, run, answer, refuse, called, faults, returned, signals };
}

describe('calling etcd endpoints in rotation', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  it('calls only one endpoint while it answers in time', async () => {
    const { run, answer, called } = stage();
    const call = run();
    await vi.advanceTimersByTimeAsync(999);
    answer('a');
    expect(await call).toBe('a');
    expect(called).toEqual(['a']);
  });

  it('keeps the error of the last call, with its remedy, until a call succeeds', async () => {
    const { rotation, run, answer, refuse } = stage(
      () => true,
      () => 'check the password',
    );
    const refused = run();
    refuse('a', 'permission denied');
    await expect(refused).rejects.toThrow(/^etcd refused a call \(a: permission denied\): check the password$/);
    expect(rotation.lastError).toMatchObject({ code: 'ETCD_REFUSED' });
    const answered = run();
    answer('a');
    await answered;
    expect(rotation.lastError).toBeUndefined();
  });

  it('calls the next endpoint, too, after each second of silence, and uses the first answer', async () => {
    const { run, answer, called } = stage();
    const call = run();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(called).toEqual(['a', 'b']);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(called).toEqual(['a', 'b', 'c']);
    answer('b');
    expect(await call).toBe('b');
  });

  it('calls silent endpoints again until the call ends', async () => {
    const { run, answer, called } = stage();
    const call = run();
    await vi.advanceTimersByTimeAsync(3_000);
    expect(called).toEqual(['a', 'b', 'c', 'a']);
    answer('a');
    expect(await call).toBe('a');
  });

  it('reports endpoints that say nothing until the call ends, and each of them that answers later', async () => {
    const { run, answer, faults, returned } = stage();
    const silent = expect(run()).rejects.toThrow(/a: no response; b: no response; c: no response/);
    await vi.advanceTimersByTimeAsync(4_000);
    await silent;
    expect([faults, returned]).toEqual([['a', 'b', 'c'], []]);
    for (let round = 0; round < 2; round += 1) {
      const call = run();
      answer('a');
      await call;
    }
    expect(returned).toEqual(['a']);
  });

  it('calls the next endpoint immediately after a failure', async () => {
    const { run, answer, refuse, called, faults } = stage();
    const call = run();
    refuse('a');
    await vi.advanceTimersByTimeAsync(0);
    answer('b');
    expect(await call).toBe('b');
    expect([called, faults]).toEqual([['a', 'b'], ['a']]);
  });

  it('prefers the endpoint that answered last', async () => {
    const { run, answer, refuse, called } = stage();
    const first = run();
    refuse('a');
    await vi.advanceTimersByTimeAsync(0);
    answer('b');
    await first;
    const second = run();
    answer('b');
    expect(await second).toBe('b');
    expect(called).toEqual(['a', 'b', 'b']);
  });

  it('fails after 4 s, naming every endpoint and its error', async () => {
    const { run, refuse } = stage();
    const call = run();
    refuse('a', 'connection refused');
    const outcome = expect(call).rejects.toMatchObject({
      code: 'ETCD_UNAVAILABLE',
      message: expect.stringMatching(/a: connection refused; b: no response; c: no response/),
    });
    await vi.advanceTimersByTimeAsync(4_000);
    await outcome;
  });

  it('fails immediately when every endpoint has failed', async () => {
    const { run, refuse } = stage();
    const outcome = expect(run()).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE', cause: new Error('third') });
    for (const [endpoint, why] of [
      ['a', 'first'],
      ['b', 'second'],
      ['c', 'third'],
    ] as const) {
      refuse(endpoint, why);
      await vi.advanceTimersByTimeAsync(0);
    }
    await outcome;
  });

  const isDenied = (error: unknown) => error instanceof Error && error.message === 'permission denied';

  it("accepts the cluster's own rejection from the first endpoint", async () => {
    const { run, refuse, called } = stage(isDenied);
    const outcome = expect(run()).rejects.toMatchObject({ code: 'ETCD_REFUSED' });
    refuse('a', 'permission denied');
    await outcome;
    expect(called).toEqual(['a']);
  });

  it('counts as refused when each endpoint has refused it', async () => {
    const { run, refuse } = stage(undefined, undefined, () => true);
    const outcome = expect(run()).rejects.toMatchObject({
      code: 'ETCD_REFUSED',
      message: "etcd refused a call (a: busy; b: busy; c: busy): look for the cause in etcd's log",
    });
    for (const endpoint of ['a', 'b', 'c']) {
      refuse(endpoint, 'busy');
      await vi.advanceTimersByTimeAsync(0);
    }
    await outcome;
  });

  it('counts as unanswered when an endpoint that was called before is still silent', async () => {
    const { run, refuse } = stage(isDenied);
    const outcome = expect(run()).rejects.toMatchObject({
      code: 'ETCD_UNAVAILABLE',
      message: expect.stringContaining('a: no response; b: permission denied'),
    });
    await vi.advanceTimersByTimeAsync(1_000);
    refuse('b', 'permission denied');
    await outcome;
  });

  it('counts as unanswered when one endpoint failed in another way', async () => {
    const { run, refuse } = stage(isDenied);
    const outcome = expect(run()).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    refuse('a', 'connection reset');
    await vi.advanceTimersByTimeAsync(0);
    refuse('b', 'permission denied');
    await outcome;
  });

  it('asks every endpoint, leaves out those that fail, and reports why', async () => {
    const { rotation, faults } = stage();
    const statuses = rotation.onEach('a status', async ({ endpoint }) => {
      if (endpoint === 'b') throw new Error('down');
      return endpoint.toUpperCase();
    });
    expect([...(await statuses)]).toEqual([
      ['a', 'A'],
      ['c', 'C'],
    ]);
    expect(faults).toEqual(['b']);
  });

  it('a call that fails for lack of a connection names the cause that another call was told first, and its remedy', async () => {
    const remedyOf = (error: unknown) => (String(error).includes('certificate') ? 'check ETCD_CA' : undefined);
    const { rotation, run, refuse, answer } = stage(() => true, remedyOf);
    await rotation.onEach('a status', async () => {
      throw new Error('the certificate has expired');
    });
    const refused = run();
    refuse('a', 'not connected');
    await expect(refused).rejects.toThrow(
      'etcd refused a call (a: not connected, after: the certificate has expired): check ETCD_CA',
    );
    const answered = run();
    answer('a');
    await answered;
    const later = run();
    refuse('a', 'not connected');
    await expect(later).rejects.toThrow(/^etcd refused a call \(a: not connected\): look for the cause in etcd's log$/);
  });

  it('aborts open calls when the call ends, and ignores their late failures', async () => {
    const { run, answer, refuse, signals } = stage();
    const call = run();
    await vi.advanceTimersByTimeAsync(1_000);
    answer('b');
    await call;
    expect(signals.every((signal) => signal.aborted)).toBe(true);
    refuse('a');
    await vi.advanceTimersByTimeAsync(0);
  });
});

import { describe, expect, test, vi } from 'vitest';
import { askAny, asUnavailable, isUnsent, unlessStopped, withRetries } from '../../../src/adapters/kafka/brokers.ts';
import { IdallocError } from '../../../src/errors.ts';
import { faultOf, KafkaFault } from '../../../src/kafka/wire/fault.ts';
import { failing, scriptedBrokers } from './scripted-brokers.ts';

const fault = (name: string) => new KafkaFault(name, `it failed: ${name}`);
const refusal = (work: Promise<unknown>) => work.catch((error: unknown) => error);

describe('withRetries', () => {
  /** What fails with these faults, one after the other, and then works. */
  function attempts(errors: readonly unknown[]) {
    const left = [...errors];
    return async () => {
      if (left.length > 0) throw left.shift();
      return 'done';
    };
  }

  test('tries again while the fault is one that passes', async () => {
    const { runtime, nowMs } = scriptedBrokers({ link: () => ({}) });
    const faults = ['LEADER_NOT_AVAILABLE', 'NO_ANSWER', 'GROUP_LOAD_IN_PROGRESS'].map(fault);
    expect(await withRetries({ runtime }, attempts(faults))).toBe('done');
    expect(nowMs()).toBe(300);
  });

  test('gives up after 10 s, with the last fault', async () => {
    const { runtime, nowMs } = scriptedBrokers({ link: () => ({}) });
    const faults = Array.from({ length: 500 }, (_, i) => fault(i < 100 ? 'NO_ANSWER' : 'UNREACHABLE'));
    expect(faultOf(await refusal(withRetries({ runtime }, attempts(faults))))).toBe('UNREACHABLE');
    expect(nowMs()).toBe(10_000);
  });

  test.each([
    ['a fault that stays', fault('TOPIC_AUTHORIZATION_FAILED')],
    ['a refused login', fault('LOGIN_REFUSED')],
    ['a closed connection of our own', fault('CLOSED')],
    ['a verdict that a passing fault has led to', new IdallocError('NOT_FOUND', 'gone', { cause: fault('NO_ANSWER') })],
    ['a bug', new TypeError('x is not a function')],
  ])('fails at once with %s', async (_, error) => {
    const { runtime, nowMs } = scriptedBrokers({ link: () => ({}) });
    expect(await refusal(withRetries({ runtime }, attempts([error])))).toBe(error);
    expect(nowMs()).toBe(0);
  });
});

test.each([
  ['UNREACHABLE', true],
  ['NOT_LEADER_FOR_PARTITION', true],
  ['NOT_ENOUGH_REPLICAS', true],
  ['NOT_ENOUGH_REPLICAS_AFTER_APPEND', false],
  ['CONNECTION_LOST', false],
  ['NO_ANSWER', false],
  ['MALFORMED_ANSWER', false],
  ['REQUEST_TIMED_OUT', false],
  [undefined, false],
])('a write that met %s is surely not in the log: %s', (name, expected) => {
  expect(isUnsent(name)).toBe(expected);
});

describe('askAny', () => {
  const answer = { throttleMs: 0, topics: [] };
  const ask = (brokers: ReturnType<typeof scriptedBrokers>) =>
    askAny(brokers, (link) => link.describeConfigs({ topics: [] }));

  test('takes the answer of the first broker that gives one', async () => {
    const brokers = scriptedBrokers({
      link: (node) => ({ describeConfigs: node === 3 ? async () => answer : failing('NO_ANSWER') }),
    });
    expect(await ask(brokers)).toBe(answer);
    expect(brokers.called).toEqual([1, 2, 3]);
  });

  test('takes the refusal of a broker for that of all', async () => {
    const brokers = scriptedBrokers({ link: () => ({ describeConfigs: failing('CLUSTER_AUTHORIZATION_FAILED') }) });
    expect(faultOf(await refusal(ask(brokers)))).toBe('CLUSTER_AUTHORIZATION_FAILED');
    expect(brokers.called).toEqual([1]);
  });

  test('fails when no broker answers', async () => {
    const brokers = scriptedBrokers({ link: () => ({ describeConfigs: failing('NO_ANSWER') }) });
    expect(faultOf(await refusal(ask(brokers)))).toBe('NO_ANSWER');
    expect(brokers.called).toEqual([1, 2, 3]);
  });
});

test.each([
  [fault('NO_ANSWER'), 'KAFKA_UNAVAILABLE'],
  [fault('LOGIN_REFUSED'), 'CONFIG_INVALID'],
])('%s reaches the user as %s', (error, code) => {
  expect(asUnavailable(error)).toMatchObject({ code, cause: error });
});

test('what has a code already, and a bug, reach the user as they are', () => {
  const errors = [new IdallocError('NOT_FOUND', 'gone', { cause: fault('NO_ANSWER') }), new TypeError('a bug')];
  for (const error of errors) expect(asUnavailable(error)).toBe(error);
});

describe('work that a signal can end', () => {
  test('settles as it does without one, and leaves nothing behind at the signal', async () => {
    const { signal } = new AbortController();
    const [added, removed] = [vi.spyOn(signal, 'addEventListener'), vi.spyOn(signal, 'removeEventListener')];
    expect(await unlessStopped(signal, async () => 'done')).toBe('done');
    const error = new Error('it failed');
    await expect(unlessStopped(signal, () => Promise.reject(error))).rejects.toBe(error);
    expect(removed.mock.calls).toEqual(added.mock.calls.map(([name, listener]) => [name, listener]));
  });

  test('is STOPPING at once when the signal comes, and is not begun after that', async () => {
    const stop = new AbortController();
    const work = vi.fn(() => new Promise<never>(() => undefined));
    const first = unlessStopped(stop.signal, work);
    stop.abort();
    await expect(first).rejects.toMatchObject({ code: 'STOPPING' });
    await expect(unlessStopped(stop.signal, work)).rejects.toMatchObject({ code: 'STOPPING' });
    expect(work).toHaveBeenCalledTimes(1);
  });
});

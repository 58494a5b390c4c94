import { describe, expect, test, vi } from 'vitest';
import { asUnavailable, isWriteOver, PATIENT, unlessStopped } from '../../../src/adapters/kafka/brokers.ts';
import { retrying } from '../../../src/async/retrying.ts';
import { IdallocError } from '../../../src/errors.ts';
import { KafkaError, kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import { scriptedBrokers } from './scripted-brokers.ts';

const errorCode = (name: string) => new KafkaError(name, `it failed: ${name}`);
const refusal = (work: Promise<unknown>) => work.catch((error: unknown) => error);

describe('patience', () => {
  /** Fails with these faults, one after the other, and then succeeds. */
  function attempts(errors: readonly unknown[]) {
    const left = [...errors];
    return async () => {
      if (left.length > 0) throw left.shift();
      return 'done';
    };
  }

  test('retries while the fault is transient', async () => {
    const { runtime, nowMs } = scriptedBrokers({ link: () => ({}) });
    const faults = ['LEADER_NOT_AVAILABLE', 'NO_RESPONSE', 'GROUP_LOAD_IN_PROGRESS'].map(errorCode);
    expect(await retrying(runtime, PATIENT, attempts(faults))).toBe('done');
    expect(nowMs()).toBe(300);
  });

  test('gives up after 10 s, with the last fault', async () => {
    const { runtime, nowMs } = scriptedBrokers({ link: () => ({}) });
    const faults = Array.from({ length: 500 }, (_, i) => errorCode(i < 100 ? 'NO_RESPONSE' : 'UNREACHABLE'));
    expect(kafkaErrorCode(await refusal(retrying(runtime, PATIENT, attempts(faults))))).toBe('UNREACHABLE');
    expect(nowMs()).toBe(10_000);
  });

  test.each([
    ['a permanent fault', errorCode('TOPIC_AUTHORIZATION_FAILED')],
    ['a refused login', errorCode('LOGIN_REFUSED')],
    ['a cluster closed on this side', errorCode('CLOSED')],
    [
      'an IdallocError caused by a transient fault',
      new IdallocError('NOT_FOUND', 'gone', { cause: errorCode('NO_RESPONSE') }),
    ],
    ['a bug', new TypeError('x is not a function')],
  ])('fails immediately with %s', async (_, error) => {
    const { runtime, nowMs } = scriptedBrokers({ link: () => ({}) });
    expect(await refusal(retrying(runtime, PATIENT, attempts([error])))).toBe(error);
    expect(nowMs()).toBe(0);
  });
});

test.each([
  ['UNREACHABLE', true],
  ['NOT_LEADER_FOR_PARTITION', true],
  ['NOT_ENOUGH_REPLICAS', true],
  ['NOT_ENOUGH_REPLICAS_AFTER_APPEND', false],
  ['CONNECTION_LOST', false],
  ['NO_RESPONSE', false],
  ['MALFORMED_RESPONSE', false],
  ['REQUEST_TIMED_OUT', false],
  [undefined, false],
])('after %s a write is certainly not in the log: %s', (name, expected) => {
  expect(isWriteOver(name === undefined ? new Error('no') : errorCode(name))).toBe(expected);
});

test.each([
  [errorCode('NO_RESPONSE'), 'KAFKA_UNAVAILABLE'],
  [errorCode('LOGIN_REFUSED'), 'CONFIG_INVALID'],
])('%s becomes %s', (error, code) => {
  expect(asUnavailable(error)).toMatchObject({ code, cause: error });
});

test('an error with a code, and a bug, are not converted', () => {
  const errors = [new IdallocError('NOT_FOUND', 'gone', { cause: errorCode('NO_RESPONSE') }), new TypeError('a bug')];
  for (const error of errors) expect(asUnavailable(error)).toBe(error);
});

describe('unlessStopped', () => {
  test('settles as the work does, and leaves no listener on the signal', async () => {
    const { signal } = new AbortController();
    const [added, removed] = [vi.spyOn(signal, 'addEventListener'), vi.spyOn(signal, 'removeEventListener')];
    expect(await unlessStopped(signal, async () => 'done')).toBe('done');
    const error = new Error('it failed');
    await expect(unlessStopped(signal, () => Promise.reject(error))).rejects.toBe(error);
    expect(removed.mock.calls).toEqual(added.mock.calls.map(([name, listener]) => [name, listener]));
  });

  test('rejects with STOPPING as soon as the signal aborts, and does not start the work after that', async () => {
    const stop = new AbortController();
    const work = vi.fn(() => new Promise<never>(() => undefined));
    const first = unlessStopped(stop.signal, work);
    stop.abort();
    await expect(first).rejects.toMatchObject({ code: 'STOPPING' });
    await expect(unlessStopped(stop.signal, work)).rejects.toMatchObject({ code: 'STOPPING' });
    expect(work).toHaveBeenCalledTimes(1);
  });
});

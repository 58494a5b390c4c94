import type { Retries } from '../../async/retrying.ts';
import { retrying } from '../../async/retrying.ts';
import type { Runtime } from '../../async/runtime.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { BrokerResponse } from '../../kafka/wire/api.ts';
import type { Cluster } from '../../kafka/wire/cluster.ts';
import { meaningOf } from '../../kafka/wire/error-codes.ts';
import { KafkaError, type KafkaErrorCode, kafkaErrorCode } from '../../kafka/wire/kafka-error.ts';
import type { BrokerLink } from '../../kafka/wire/port.ts';
import { LOGIN_SETTINGS, loginRefused } from '../../kafka/wire/settings.ts';

/** The cluster, and the clock for retries. */
export interface Brokers {
  readonly cluster: Pick<Cluster, 'metadata' | 'call' | 'callAny' | 'callCoordinator'>;
  readonly runtime: Pick<Runtime, 'monotonicMs' | 'sleep'>;
}

/** The longest wait for a response that brokers send without delay. */
export const CALL_TIMEOUT_MS = 5_000;

export function isTransientCode(errorCode: KafkaErrorCode | undefined): boolean {
  return meaningOf(errorCode).isTransient === true;
}

/** Whether a retry may succeed. These include errors after which a write may have been executed. */
export function isTransient(error: unknown): boolean {
  return !(error instanceof IdallocError) && isTransientCode(kafkaErrorCode(error));
}

/** Whether a write that failed is not executed any more. It may be in the log already: see `ErrorMeaning`. */
export function isWriteOver(error: unknown): boolean {
  return !(error instanceof IdallocError) && meaningOf(kafkaErrorCode(error)).writeIsOver === true;
}

/** For longer than a leader election takes. */
export const PATIENT = {
  timeoutMs: 10_000,
  minTryMs: 0, // each attempt has a limit of its own
  waits: { minMs: 100, maxMs: 100 },
  isTransient,
} as const satisfies Retries;

/**
 * Settles as the work does; rejects with STOPPING when the signal aborts, without starting the work if it already has.
 */
export function unlessStopped<T>(stop: AbortSignal, work: () => Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = () => reject(new IdallocError('STOPPING', 'stopped by a signal before it was done'));
    if (stop.aborted) return end();
    stop.addEventListener('abort', end);
    void work()
      .then(resolve, reject)
      .finally(() => stop.removeEventListener('abort', end));
  });
}

/** A call to the coordinator of a group, repeated while it moves or loads its groups. */
export function callCoordinator<R extends BrokerResponse>(
  { cluster, runtime }: Brokers,
  groupId: string,
  use: (link: BrokerLink) => Promise<R>,
): Promise<R> {
  return retrying(runtime, PATIENT, () => cluster.callCoordinator(groupId, 'control', CALL_TIMEOUT_MS, use));
}

/** Throws if a response contains an error. */
export function requireNoError(errorCode: KafkaErrorCode | undefined, what: string): void {
  if (errorCode !== undefined) throw new KafkaError(errorCode, `${what}: ${errorCode}`);
}

/** Settles as the call does, with asUnavailable of its error. */
export async function withCode<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw asUnavailable(error);
  }
}

/** Converts a Kafka error to an IdallocError; returns any other error unchanged. */
export function asUnavailable(error: unknown): unknown {
  const errorCode = kafkaErrorCode(error);
  if (error instanceof IdallocError || errorCode === undefined) return error;
  if (errorCode === 'LOGIN_REFUSED') return loginRefused(error, LOGIN_SETTINGS);
  const message = `the brokers rejected the call or did not answer: ${describeError(error)}`;
  return new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
}

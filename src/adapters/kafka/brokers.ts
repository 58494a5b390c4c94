import type { Runtime } from '../../core/runtime.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { Cluster } from '../../kafka/wire/cluster.ts';
import { type FaultName, faultOf, isLinkFault, KafkaFault } from '../../kafka/wire/fault.ts';
import type { Answer, BrokerLink } from '../../kafka/wire/port.ts';
import { LOGIN_SETTINGS, loginRefused } from '../../kafka/wire/settings.ts';

/** What it takes to call brokers with retries: the cluster, and a clock. */
export interface Brokers {
  readonly cluster: Pick<Cluster, 'metadata' | 'call' | 'coordinator' | 'doubtCoordinator'>;
  readonly runtime: Pick<Runtime, 'monotonicMs' | 'sleep'>;
}

/** The longest wait for an answer that brokers give without delay. */
export const CALL_TIMEOUT_MS = 5_000;
/** How long transient faults are retried: longer than a leader election takes. */
const PATIENCE_MS = 10_000;
const REST_MS = 100;

/** Faults of one broker, of an election, or of a topic that not all brokers know yet. */
const TRANSIENT: ReadonlySet<FaultName | undefined> = new Set([
  'UNREACHABLE',
  'CONNECTION_LOST',
  'NO_ANSWER',
  'BROKER_NOT_AVAILABLE',
  'GROUP_COORDINATOR_NOT_AVAILABLE',
  'GROUP_LOAD_IN_PROGRESS',
  'KAFKA_STORAGE_ERROR',
  'LEADER_NOT_AVAILABLE',
  'NOT_CONTROLLER',
  'NOT_COORDINATOR_FOR_GROUP',
  'NOT_LEADER_FOR_PARTITION',
  'OFFSET_NOT_AVAILABLE',
  'REPLICA_NOT_AVAILABLE',
  'REQUEST_TIMED_OUT',
  'UNKNOWN_TOPIC_OR_PARTITION',
]);

/** After one of these faults a write was not executed, and never will be. */
const UNSENT: ReadonlySet<FaultName | undefined> = new Set([
  'UNREACHABLE',
  'LEADER_NOT_AVAILABLE',
  'NOT_ENOUGH_REPLICAS',
  'NOT_LEADER_FOR_PARTITION',
  'UNKNOWN_TOPIC_OR_PARTITION',
]);

export function isTransientFault(fault: FaultName | undefined): boolean {
  return TRANSIENT.has(fault);
}

export function isUnsent(fault: FaultName | undefined): boolean {
  return UNSENT.has(fault);
}

/** Retries for 10 s while the fault is transient. By default these include faults after which a write may have been executed. */
export async function withRetries<T>(
  { runtime }: Pick<Brokers, 'runtime'>,
  attempt: () => Promise<T>,
  isTransient: (fault: FaultName | undefined) => boolean = isTransientFault,
): Promise<T> {
  const endMs = runtime.monotonicMs() + PATIENCE_MS;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      const mayRetry = !(error instanceof IdallocError) && isTransient(faultOf(error));
      if (!mayRetry || runtime.monotonicMs() >= endMs) throw error;
    }
    await runtime.sleep(REST_MS);
  }
}

/** Settles as the work does; rejects with STOPPING when the signal aborts, without starting the work if it already has. */
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

/** A call that any broker can answer: each is asked in turn until one does. */
export async function askAny<R extends Answer>(
  { cluster }: Brokers,
  use: (link: BrokerLink) => Promise<R>,
): Promise<R> {
  const { brokers } = await cluster.metadata([], CALL_TIMEOUT_MS);
  let fault: unknown = new KafkaFault('UNREACHABLE', 'the cluster has no brokers');
  for (const { nodeId } of brokers) {
    try {
      return await cluster.call(nodeId, 'control', CALL_TIMEOUT_MS, use);
    } catch (error) {
      if (!isLinkFault(faultOf(error))) throw error;
      fault = error;
    }
  }
  throw fault;
}

/** A call to the coordinator of a group, which is looked up again when it has moved or is loading its groups. */
export function askCoordinator<R extends Answer>(
  brokers: Brokers,
  groupId: string,
  use: (link: BrokerLink) => Promise<R>,
): Promise<R> {
  const { cluster } = brokers;
  return withRetries(brokers, async () => {
    const node = await cluster.coordinator(groupId, CALL_TIMEOUT_MS);
    try {
      return await cluster.call(node, 'control', CALL_TIMEOUT_MS, use);
    } catch (error) {
      cluster.doubtCoordinator(groupId);
      throw error;
    }
  });
}

/** Throws the fault of an answer, if it has one. */
export function requireNoFault(fault: FaultName | undefined, what: string): void {
  if (fault !== undefined) throw new KafkaFault(fault, `${what}: ${fault}`);
}

/** Converts a Kafka fault to an IdallocError; returns any other error unchanged. */
export function asUnavailable(error: unknown): unknown {
  const fault = faultOf(error);
  if (error instanceof IdallocError || fault === undefined) return error;
  if (fault === 'LOGIN_REFUSED') return loginRefused(error, LOGIN_SETTINGS);
  const message = `the brokers rejected the call or did not answer: ${describeError(error)}`;
  return new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
}

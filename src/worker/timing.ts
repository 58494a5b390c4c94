import type { ClosableEtcd } from '../adapters/etcd/etcd.ts';
import type { Runtime } from '../async/runtime.ts';
import { IdallocError } from '../errors.ts';
import type { TimeStep } from '../ledger/ledger-ports.ts';
import type { EtcdOutcome, Metrics } from '../metrics/metrics.ts';

type Clock = Pick<Runtime, 'monotonicMs'>;

/** Does the work, and passes on how long it took and how it ended. */
async function timed<T>(
  clock: Clock,
  observe: (milliseconds: number, outcome: EtcdOutcome) => void,
  work: () => Promise<T>,
): Promise<T> {
  const startedMs = clock.monotonicMs();
  let outcome: EtcdOutcome = 'answered';
  try {
    return await work();
  } catch (error) {
    outcome = error instanceof IdallocError && error.code === 'ETCD_REFUSED' ? 'refused' : 'failed';
    throw error;
  } finally {
    observe(clock.monotonicMs() - startedMs, outcome);
  }
}

/**
 * Measures the steps of the pipeline for the metrics: a few for each part of a record batch, none for a single request.
 */
export function stepTimer(clock: Clock, metrics: Pick<Metrics, 'observeStep'>): TimeStep {
  return (step, work) => timed(clock, (milliseconds) => metrics.observeStep(step, milliseconds), work);
}

/** The same etcd, with its calls measured for the metrics. */
export function timedEtcd(etcd: ClosableEtcd, clock: Clock, metrics: Pick<Metrics, 'observeEtcdCall'>): ClosableEtcd {
  const call = <T>(name: Parameters<Metrics['observeEtcdCall']>[0], work: () => Promise<T>): Promise<T> =>
    timed(clock, (milliseconds, outcome) => metrics.observeEtcdCall(name, milliseconds, outcome), work);
  return {
    range: (prefix, page) => call('range', () => etcd.range(prefix, page)),
    get: (keys) => call('get', () => etcd.get(keys)),
    transact: (compares, operations) => call('transact', () => etcd.transact(compares, operations)),
    grantLease: (leaseId, ttlSeconds) => call('grant_lease', () => etcd.grantLease(leaseId, ttlSeconds)),
    keepAlive: (leaseId) => call('keep_alive', () => etcd.keepAlive(leaseId)),
    revokeLease: (leaseId) => call('revoke_lease', () => etcd.revokeLease(leaseId)),
    statuses: () => etcd.statuses(),
    get lastError() {
      return etcd.lastError;
    },
    close: () => etcd.close(),
  };
}

import type { ClosableEtcd } from '../adapters/etcd/etcd.ts';
import type { Runtime } from '../async/runtime.ts';
import type { TimeStep } from '../ledger/ports.ts';
import type { Metrics } from '../metrics/metrics.ts';

type Clock = Pick<Runtime, 'monotonicMs'>;

/** Does the work, and passes on how long it took and whether it succeeded. */
async function timed<T>(
  clock: Clock,
  observe: (milliseconds: number, succeeded: boolean) => void,
  work: () => Promise<T>,
): Promise<T> {
  const startedMs = clock.monotonicMs();
  let succeeded = false;
  try {
    const result = await work();
    succeeded = true;
    return result;
  } finally {
    observe(clock.monotonicMs() - startedMs, succeeded);
  }
}

/** Measures the steps of the pipeline for the metrics: a few for each part of a record batch, none for a single request. */
export function stepTimer(clock: Clock, metrics: Pick<Metrics, 'observeStep'>): TimeStep {
  return (step, work) => timed(clock, (milliseconds) => metrics.observeStep(step, milliseconds), work);
}

/** The same etcd, with its calls measured for the metrics. */
export function timedEtcd(etcd: ClosableEtcd, clock: Clock, metrics: Pick<Metrics, 'observeEtcdCall'>): ClosableEtcd {
  const call = <T>(name: Parameters<Metrics['observeEtcdCall']>[0], work: () => Promise<T>): Promise<T> =>
    timed(clock, (milliseconds, isAnswered) => metrics.observeEtcdCall(name, milliseconds, isAnswered), work);
  return {
    range: (prefix) => call('range', () => etcd.range(prefix)),
    get: (keys) => call('get', () => etcd.get(keys)),
    transact: (compares, operations) => call('transact', () => etcd.transact(compares, operations)),
    grantLease: (leaseId, ttlSeconds) => call('grant_lease', () => etcd.grantLease(leaseId, ttlSeconds)),
    keepAlive: (leaseId) => call('keep_alive', () => etcd.keepAlive(leaseId)),
    revokeLease: (leaseId) => call('revoke_lease', () => etcd.revokeLease(leaseId)),
    get lastError() {
      return etcd.lastError;
    },
    close: () => etcd.close(),
  };
}

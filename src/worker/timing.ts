import type { ClosableEtcd } from '../adapters/etcd/etcd.ts';
import type { Runtime } from '../async/runtime.ts';
import type { TimeStep } from '../ledger/ports.ts';
import type { Metrics } from '../metrics/metrics.ts';

type Clock = Pick<Runtime, 'monotonicMs'>;

/** Measures the steps of the pipeline for the metrics: a few for each part of a record batch, none for a single request. */
export function stepTimer(clock: Clock, metrics: Pick<Metrics, 'observeStep'>): TimeStep {
  return async (step, work) => {
    const startedMs = clock.monotonicMs();
    try {
      return await work();
    } finally {
      metrics.observeStep(step, clock.monotonicMs() - startedMs);
    }
  };
}

/** The same etcd, with its calls measured for the metrics. */
export function timedEtcd(etcd: ClosableEtcd, clock: Clock, metrics: Pick<Metrics, 'observeEtcdCall'>): ClosableEtcd {
  const timed = async <T>(call: Parameters<Metrics['observeEtcdCall']>[0], work: () => Promise<T>): Promise<T> => {
    const startedMs = clock.monotonicMs();
    let isAnswered = false;
    try {
      const response = await work();
      isAnswered = true;
      return response;
    } finally {
      metrics.observeEtcdCall(call, clock.monotonicMs() - startedMs, isAnswered);
    }
  };
  return {
    range: (prefix) => timed('range', () => etcd.range(prefix)),
    get: (keys) => timed('get', () => etcd.get(keys)),
    transact: (compares, operations) => timed('transact', () => etcd.transact(compares, operations)),
    grantLease: (leaseId, ttlSeconds) => timed('grant_lease', () => etcd.grantLease(leaseId, ttlSeconds)),
    keepAlive: (leaseId) => timed('keep_alive', () => etcd.keepAlive(leaseId)),
    revokeLease: (leaseId) => timed('revoke_lease', () => etcd.revokeLease(leaseId)),
    get lastError() {
      return etcd.lastError;
    },
    close: () => etcd.close(),
  };
}

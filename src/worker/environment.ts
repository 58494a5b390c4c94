import { type ClosableEtcd, connectEtcd } from '../adapters/etcd/etcd.ts';
import { instanceIdIn } from '../adapters/index/instance-id.ts';
import { type IndexBinding, type IndexEvents, SqliteIndex } from '../adapters/index/sqlite-index.ts';
import { diskOf, requireIndexDirectory } from '../adapters/index/store.ts';
import type { Runtime } from '../async/runtime.ts';
import type { Config } from '../config/config.ts';
import { IdallocError } from '../errors.ts';
import type { Dialer } from '../kafka/wire/port.ts';
import { kafkaDialer } from '../kafka/wire/settings.ts';
import type { LedgerCopies, TimeStep } from '../ledger/ledger-ports.ts';
import { etcdLog, type Log } from '../log.ts';
import type { EtcdOutcome, Metrics } from '../metrics/metrics.ts';
import type { Vitals } from '../metrics/vitals.ts';
import type { Allocator } from '../pipeline/ports.ts';
import { RUNTIME } from '../runtime.ts';
import { type AllocatorOptions, LeasedAllocator } from './allocator.ts';

/** Everything outside a worker that it uses; the simulator passes its own. */
export interface Outside {
  readonly runtime: Runtime;
  readonly dialer: Dialer;
  readonly etcd: ClosableEtcd;
  readonly openIndex: (binding: IndexBinding, events: IndexEvents) => LedgerCopies;
  /** The disk of the index; undefined while it can't be asked. */
  readonly indexDisk: () => Vitals['indexDisk'];
  /** Names this worker in the request group across restarts; called while the index is open. */
  readonly instanceId: () => string;
  readonly createAllocator: (options: AllocatorOptions) => Allocator;
}

/** Throws INDEX_LOCKED or INDEX_UNUSABLE, before Kafka and etcd are waited for, if INDEX_DIR can't hold the index. */
export function realEnvironment(config: Config, log: Log): Outside {
  requireIndexDirectory(config.indexDir, (cause) =>
    log.warn(
      { directory: config.indexDir, cause },
      'the lock of the ledger index was damaged and has been replaced: check the disk',
    ),
  );
  return {
    runtime: RUNTIME,
    dialer: kafkaDialer(config.kafka),
    etcd: connectEtcd({ ...config.etcd, ...etcdLog(log) }),
    openIndex: (binding, events) => new SqliteIndex(config.indexDir, binding, events),
    indexDisk: () => diskOf(config.indexDir),
    instanceId: () => config.instanceId ?? instanceIdIn(config.indexDir, RUNTIME.uuid),
    createAllocator: (options) => new LeasedAllocator(options),
  };
}

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

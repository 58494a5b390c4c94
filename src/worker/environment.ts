import { type ClosableEtcd, connectEtcd } from '../adapters/etcd/etcd.ts';
import { instanceIdIn } from '../adapters/index/instance-id.ts';
import { type IndexBinding, type IndexEvents, SqliteIndex } from '../adapters/index/sqlite-index.ts';
import { requireIndexDirectory } from '../adapters/index/store.ts';
import type { Runtime } from '../async/runtime.ts';
import type { Config } from '../config/config.ts';
import type { Dialer } from '../kafka/wire/port.ts';
import { kafkaDialer } from '../kafka/wire/settings.ts';
import type { LedgerCopies } from '../ledger/ledger-ports.ts';
import { etcdErrorLog, type Log } from '../log.ts';
import type { Allocator } from '../pipeline/ports.ts';
import { RUNTIME } from '../runtime.ts';
import { type AllocatorOptions, LeasedAllocator } from './allocator.ts';

/** Everything outside a worker that it uses; the simulator passes its own. */
export interface Outside {
  readonly runtime: Runtime;
  readonly dialer: Dialer;
  readonly etcd: ClosableEtcd;
  readonly openIndex: (binding: IndexBinding, events: IndexEvents) => LedgerCopies;
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
    etcd: connectEtcd({ ...config.etcd, onError: etcdErrorLog(log) }),
    openIndex: (binding, events) => new SqliteIndex(config.indexDir, binding, events),
    instanceId: () => config.instanceId ?? instanceIdIn(config.indexDir, RUNTIME.uuid),
    createAllocator: (options) => new LeasedAllocator(options),
  };
}

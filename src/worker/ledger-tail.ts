import type { Runtime } from '../async/runtime.ts';
import { Tail } from '../kafka/loops/tail.ts';
import type { WireLog } from '../kafka/wire/broker.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';

/** How long a broker holds a fetch of ledger and witness when there is nothing new. */
const MAX_WAIT_MS = 500;
const MAX_BYTES = 8 * 1_048_576;
const MAX_BYTES_PER_PARTITION = 1_048_576;

/** Reads ledger and witness, over one connection to each broker. */
export function ledgerTail(cluster: Cluster, runtime: Runtime, log: WireLog): Tail {
  return new Tail({
    cluster,
    runtime,
    lane: 'ledger',
    // No worker writes to either in transactions; a foreign transaction must not hold up reading.
    isolation: 'read_uncommitted',
    maxWaitMs: MAX_WAIT_MS,
    maxBytes: MAX_BYTES,
    maxBytesPerPartition: MAX_BYTES_PER_PARTITION,
    log,
  });
}

import { WitnessFollower, WitnessReader, WitnessTopic } from '../adapters/kafka/witness-topic.ts';
import type { Runtime } from '../async/runtime.ts';
import type { WitnessPort } from '../identity/identity-ports.ts';
import { Tail } from '../kafka/loops/tail.ts';
import type { WireLog } from '../kafka/wire/broker.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';

/** How long a broker holds a fetch of ledger and witness when there is nothing new. */
const MAX_WAIT_MS = 500;
const MAX_BYTES = 8 * 1_048_576;
const MAX_BYTES_PER_PARTITION = 1_048_576;
/** A worker knows its own entries from the responses to its appends, and copies may be a few milliseconds behind. */
const BUSY_GAP_MS = 10;

/**
 * Reads ledger and witness, over one connection to each broker. Copies that decide nothing are read in this rack, if
 * the brokers have replicas there.
 */
export function ledgerTail(cluster: Cluster, runtime: Runtime, log: WireLog, rack?: string): Tail {
  return new Tail({
    cluster,
    runtime,
    purpose: 'ledger',
    // No worker writes to either in transactions; a foreign transaction must not hold up reading.
    isolation: 'read_uncommitted',
    maxWaitMs: MAX_WAIT_MS,
    maxBytes: MAX_BYTES,
    maxBytesPerPartition: MAX_BYTES_PER_PARTITION,
    busyGapMs: BUSY_GAP_MS,
    rack,
    log,
  });
}

/** The dependencies of following the witness topic. */
export interface WitnessServiceOptions {
  readonly config: {
    readonly topics: { readonly witness: string };
    readonly datacenterId: number;
    readonly timing: { readonly refuseAfterMs: number };
  };
  readonly cluster: Cluster;
  readonly runtime: Runtime;
  /** Reads uncommitted; its creator closes it. */
  readonly tail: Tail;
}

const MAX_CALL_MS = 4_000;

/** The witness topic, followed from now on until the tail is closed. */
export function startWitness({ config, cluster, runtime, tail }: WitnessServiceOptions): WitnessPort {
  const { topics, datacenterId, timing } = config;
  // Each heartbeat waits for the topic, and must end well before the own deadline even without a response.
  const callLimitMs = Math.min(MAX_CALL_MS, timing.refuseAfterMs / 2);
  const topic = topics.witness;
  const follower = new WitnessFollower(datacenterId);
  const reader = new WitnessReader(tail, topic, follower);
  reader.start();
  const restartReader = () => reader.restart();
  return new WitnessTopic({ cluster, runtime, topic, datacenterId, follower, restartReader, callLimitMs });
}

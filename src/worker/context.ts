import type { Runtime } from '../async/runtime.ts';
import type { ThrottledLog } from '../async/throttle.ts';
import type { Config } from '../config/config.ts';
import type { WireLog } from '../kafka/wire/broker.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import type { TimeStep } from '../ledger/ledger-ports.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Tracing } from '../pipeline/trace.ts';
import type { Outside } from './environment.ts';
import type { Gatekeeper } from './gatekeeper.ts';
import type { GuardedClock } from './guarded-clock.ts';
import type { KafkaRefusals } from './kafka-refusals.ts';

/** The dependencies that the parts of one worker share. */
export interface WorkerContext {
  readonly config: Config;
  readonly log: Log;
  /** The same for what is repeated: one line of a kind in 10 s. */
  readonly lines: ThrottledLog;
  /** The same for the Kafka layers. */
  readonly wireLog: WireLog;
  readonly metrics: Metrics;
  readonly timeStep: TimeStep;
  readonly tracing: Tracing;
  readonly runtime: Runtime;
  readonly cluster: Cluster;
  readonly clock: GuardedClock;
  readonly gate: Gatekeeper;
  readonly environment: Outside;
  readonly refusals: KafkaRefusals;
  /** Ends the worker: for errors that waiting won't fix. */
  readonly fail: (error: unknown) => void;
}

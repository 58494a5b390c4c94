import type { Admin, Kafka, Producer } from 'kafkajs';
import type { Config } from './config.ts';
import type { Gatekeeper } from './gatekeeper.ts';
import type { GuardedClock } from './guarded-clock.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

/** What the sides of one worker share. */
export interface Tools {
  readonly config: Config;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly kafka: Kafka;
  readonly admin: Admin;
  readonly producer: Producer;
  readonly clock: GuardedClock;
  readonly gate: Gatekeeper;
  /** Ends the worker: for faults that no waiting mends. */
  readonly fail: (error: unknown) => void;
}

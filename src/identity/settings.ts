import type { DriftSample, Verdict } from '../core/clock-guard.ts';
import type { Layout } from '../core/layout.ts';
import type { LeaseTiming } from '../core/reservation.ts';
import type { Random, Reading } from '../core/units.ts';
import type { Bindings } from './bindings.ts';
import type { NamespaceKeys } from './keys.ts';
import type { Namespace } from './namespace.ts';
import type { EtcdPort, WitnessPort } from './ports.ts';
import type { IdentityState } from './state.ts';

/** A reading of both clocks, with the verdict of the process's clock guard. */
export interface GuardedReading {
  readonly reading: Reading;
  readonly verdict: Verdict;
}

type Log = (level: 'debug' | 'info' | 'warn' | 'error', message: string, fields?: object) => void;

/** The dependencies of an identity; all IO, time and randomness comes in here. */
export interface IdentitySettings {
  readonly etcd: EtcdPort;
  /** A reservation must be written here, as well as in etcd, before it is used. */
  readonly witness: WitnessPort;
  readonly keys: NamespaceKeys;
  readonly bindings: Bindings;
  /** The namespace as it was opened. A rebuild may have changed its UUID since, and nothing else. */
  readonly namespace: Namespace;
  readonly layout: Layout;
  readonly timing: LeaseTiming;
  /** Reads both clocks through the process's guard: ceilings are raised only on a steady verdict. */
  readonly readClock: () => GuardedReading;
  readonly random: Random;
  /** Never the same twice; without spaces. */
  readonly newNonce: () => string;
  /** Never the same twice; from 1 to 2^63 - 1. */
  readonly newLeaseId: () => bigint;
  /** Shown in the lease record. */
  readonly workerIp: string;
  /** The only worker ID to acquire; if absent, any free one of the pool. */
  readonly staticWorkerId?: number | undefined;
  /**
   * Samples the brokers' clocks before a worker ID is claimed: one sample for each that answered. Rejects with a
   * retryable error when none did. If absent, our clock is compared only with those of the current owners.
   */
  readonly sampleBrokerClocks?: () => Promise<readonly DriftSample[]>;
  /** Called after each change of the mode or of the reason to refuse; must not throw. */
  readonly onChange?: (state: IdentityState) => void;
  readonly log: Log;
}

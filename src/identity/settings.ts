import type { DriftSample, Verdict } from '../core/clock-guard.ts';
import type { Layout } from '../core/layout.ts';
import type { LeaseTiming } from '../core/reservation.ts';
import type { Random, Reading } from '../core/units.ts';
import type { Bindings } from './bindings.ts';
import type { NamespaceKeys } from './keys.ts';
import type { Namespace } from './namespace.ts';
import type { EtcdPort, WitnessPort } from './ports.ts';
import type { IdentityState } from './state.ts';

/** A reading of both clocks, and what the process's one clock guard says about it. */
export interface GuardedReading {
  readonly reading: Reading;
  readonly verdict: Verdict;
}

type Log = (level: 'debug' | 'info' | 'warn' | 'error', message: string, fields?: object) => void;

/** What an identity is made of; everything that touches the world comes in here. */
export interface IdentitySettings {
  readonly etcd: EtcdPort;
  /** What must hold a reservation, beside etcd, before it is used. */
  readonly witness: WitnessPort;
  readonly keys: NamespaceKeys;
  readonly bindings: Bindings;
  /** As it was opened. It may be rebuilt meanwhile, with another UUID and else the same. */
  readonly namespace: Namespace;
  readonly layout: Layout;
  readonly timing: LeaseTiming;
  /** Reads both clocks through the process's guard: no ceiling is raised unless it says steady. */
  readonly readClock: () => GuardedReading;
  readonly random: Random;
  /** Unique for ever, without spaces. */
  readonly newNonce: () => string;
  /** Unique for ever, from 1 to 2^63 - 1. */
  readonly newLeaseId: () => bigint;
  /** Shown in the lease record. */
  readonly workerIp: string;
  /** The only worker ID to take; without it any free one of the pool. */
  readonly staticWorkerId?: number;
  /**
   * Asks brokers for the time, before a worker ID is claimed: one sample for each that answered. Rejects with a passing
   * fault when none did. Without it our clock is compared with the living owners' alone.
   */
  readonly sampleBrokerClocks?: () => Promise<readonly DriftSample[]>;
  /** Called after each change of the mode or of the reason to refuse; must not throw. */
  readonly onChange?: (state: IdentityState) => void;
  readonly log: Log;
}

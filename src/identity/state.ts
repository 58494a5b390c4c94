import type { DriftSample, Verdict } from '../core/clock-guard.ts';
import type { GateReason } from '../core/gate.ts';
import type { Layout } from '../core/layout.ts';
import type { LeaseTiming, Reservation } from '../core/reservation.ts';
import type { Random, Reading } from '../core/units.ts';
import type { IdallocError } from '../errors.ts';
import type { Bindings } from './bindings.ts';
import type { EtcdPort, WitnessPort } from './identity-ports.ts';
import type { NamespaceKeys } from './keys.ts';
import type { Namespace } from './namespace.ts';

/** See the state machine above Identity. */
export type Mode = 'none' | 'acquiring' | 'held' | 'suspended' | 'lost';

/** Why allocation is refused; each is an error code as well. The other gate reasons are about the process. */
type IdentityRefusalCode = Exclude<GateReason, 'STARTING' | 'KAFKA_UNAVAILABLE' | 'STOPPING'>;

export interface Refusal {
  readonly code: IdentityRefusalCode;
  readonly message: string;
}

/** The refusal for an ejection by the clock guard. */
export function refusalFor({ reason, detail }: Extract<Verdict, { kind: 'eject' }>): Refusal {
  return { code: reason, message: detail };
}

export const NOT_ACQUIRED: Refusal = { code: 'NO_IDENTITY', message: 'no worker ID has been acquired yet' };
export const PAUSED: Refusal = {
  code: 'PROCESS_PAUSED',
  message: 'this process was paused: allocation waits until etcd confirms that it still owns the worker ID',
};
/** What follows PAUSED when etcd does not answer a heartbeat sent after the pause. */
export const SILENT_SINCE_PAUSE: Refusal = {
  code: 'LEASE_SUSPENDED',
  message:
    "this process was paused, and etcd has not confirmed the lease since: allocation waits until it does; check etcd's health",
};

export interface IdentityState {
  readonly mode: Mode;
  /** Present unless the mode is held. */
  readonly refusal?: Refusal;
  /** Present while held or suspended. */
  readonly workerId?: number;
  readonly fence?: bigint;
}

/** The authority to allocate now, or the reason for a refusal. */
export type Authority =
  | {
      readonly ok: true;
      readonly workerId: number;
      readonly fence: bigint;
      readonly reservation: Reservation;
    }
  | ({ readonly ok: false } & Refusal);

/** How one attempt to acquire ended. */
export type AcquireOutcome =
  | { readonly kind: 'held' }
  /** No error: try again after waitMs, or sooner. */
  | { readonly kind: 'waiting'; readonly waitMs: number }
  | ({ readonly kind: 'refused' } & Refusal)
  /** Another worker was faster: try again immediately. */
  | { readonly kind: 'raced' }
  /** etcd, or the witness topic, did not answer. */
  | { readonly kind: 'failed'; readonly error: IdallocError }
  /** The identity was released meanwhile, or another step is still in flight. */
  | { readonly kind: 'stopped' };

/** How one heartbeat ended. */
export type HeartbeatOutcome =
  /** etcd shows the worker ID as ours; the own deadline restarts. */
  | { readonly kind: 'held' }
  | ({ readonly kind: 'lost' } & Refusal)
  /** The clock can't be trusted: the identity was released. */
  | ({ readonly kind: 'ejected' } & Refusal)
  | { readonly kind: 'failed'; readonly error: IdallocError }
  | { readonly kind: 'stopped' };

declare const guarded: unique symbol;

/**
 * A reading of both clocks, with the verdict of the process's clock guard. Only the guard makes one: what allocates or
 * raises a ceiling does not compile with a plain clock, which would let it go on through a step.
 */
export interface GuardedReading {
  readonly reading: Reading;
  readonly verdict: Verdict;
  readonly [guarded]: true;
}

type LineLog = (level: 'debug' | 'info' | 'warn' | 'error', message: string, fields?: object) => void;

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
  /** Returns a text without spaces, never the same twice. */
  readonly newNonce: () => string;
  /** Returns a number from 1 to 2^63 - 1, never the same twice. */
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
  readonly log: LineLog;
}

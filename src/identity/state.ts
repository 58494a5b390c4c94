import type { Verdict } from '../core/clock-guard.ts';
import type { GateReason } from '../core/gate.ts';
import type { Reservation } from '../core/reservation.ts';
import type { IdallocError } from '../errors.ts';

/** See the state machine above Identity. */
export type Mode = 'none' | 'acquiring' | 'held' | 'suspended' | 'lost';

/** Why allocation is refused; each is an error code as well. The other gate reasons are about the process. */
type RefusalCode = Exclude<GateReason, 'STARTING' | 'KAFKA_UNAVAILABLE' | 'STOPPING'>;

export interface Refusal {
  readonly code: RefusalCode;
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

import { CLOCK_OFF_REASONS, EJECTION_REASONS } from './clock-guard.ts';
import type { MonoMs } from './units.ts';

/** The sources that may keep the gate closed, each for one reason at a time. */
export type GateSource = 'identity' | 'clock' | 'process';

/**
 * Most fundamental first: what waiting cannot fix, then causes before their effects; STARTING is the least specific.
 */
export const GATE_REASONS = [
  'STOPPING',
  'LAYOUT_EXHAUSTED',
  'RESTORED',
  'CLUSTER_CHANGED',
  ...EJECTION_REASONS,
  ...CLOCK_OFF_REASONS,
  'ALL_CEILINGS_AHEAD',
  'POOL_EXHAUSTED',
  'LEASE_LOST',
  'PROCESS_PAUSED',
  'LEASE_SUSPENDED',
  'RESERVATION_EXHAUSTED',
  'NO_IDENTITY',
  'KAFKA_UNAVAILABLE',
  'STARTING',
] as const;
export type GateReason = (typeof GATE_REASONS)[number];

/**
 * Why no requests are served, or not those of every partition: with an open gate a ledger partition may be stopped or
 * restoring, the request group not joined yet, or the brokers may reject the login or deny access. With the last one
 * requests are served, and only a roll waits.
 */
export const UNREADY_REASONS = [
  ...GATE_REASONS,
  'KAFKA_REFUSED',
  'LEDGER_UNREADABLE',
  'LEDGER_COPIED',
  'INDEX_RESTORING',
  'GROUP_JOINING',
  'STANDBY_RESTORING',
] as const;
export type UnreadyReason = (typeof UNREADY_REASONS)[number];

/**
 * Whether the worker serves. Immutable; every change goes through `withReasons`.
 *
 *   closed (process: STARTING) -> open -> closed -> open -> ... -> closed (process: STOPPING, final)
 *
 * open:   no source has a reason; closedSince is absent.
 * closed: at least one has a reason; closedSince is when the gate was last open (or the process started). It stays
 * while
 *         reasons come and go, so that the grace time counts from the first of them.
 * STOPPING is final: a start or an identity that becomes ready late must not open the gate again.
 */
export interface Gate {
  readonly reasons: ReadonlyMap<GateSource, GateReason>;
  readonly closedSince?: MonoMs;
}

/** With these, neither the clock nor anything timed by it can be trusted. */
const CLOCK_REASONS: ReadonlySet<GateReason> = new Set([...EJECTION_REASONS, ...CLOCK_OFF_REASONS]);

const BY_KAFKA: ReadonlySet<GateReason> = new Set(['KAFKA_UNAVAILABLE', 'RESERVATION_EXHAUSTED', 'NO_IDENTITY']);

/** Whether a login or access denied by the brokers may be the whole cause of the reason. */
export function mayBeRefusal(reason: GateReason | undefined): boolean {
  return reason === undefined || BY_KAFKA.has(reason);
}

/** Whether the clock is wrong. */
export function isClockReason(reason: GateReason | undefined): boolean {
  return reason !== undefined && CLOCK_REASONS.has(reason);
}

/**
 * Whether clients should stop using this worker: it lost its identity for a cause in itself and is not just waiting.
 */
export function isEjection(reason: GateReason): boolean {
  return reason === 'LEASE_LOST' || isClockReason(reason);
}

/** The gate of a starting process: closed until the source `process` is cleared. */
export function closedGate(now: MonoMs): Gate {
  return { reasons: new Map([['process', 'STARTING']]), closedSince: now };
}

/** The gate with `reason` for `source`, replacing any earlier one. */
export function closeGate(gate: Gate, source: GateSource, reason: GateReason, now: MonoMs): Gate {
  return withReasons(gate, source, reason, now);
}

/** The gate without a reason for `source`; open when no other source has one. */
export function clearGate(gate: Gate, source: GateSource, now: MonoMs): Gate {
  return withReasons(gate, source, undefined, now);
}

/** Why the gate is closed: the most fundamental of its reasons; undefined when it is open. */
export function gateReason(gate: Gate): GateReason | undefined {
  const held = new Set(gate.reasons.values());
  return GATE_REASONS.find((reason) => held.has(reason));
}

/** Whether the gate has been closed for `graceMs` or longer, so that the worker should leave its group. */
export function graceExpired(gate: Gate, now: MonoMs, graceMs: number): boolean {
  return gate.closedSince !== undefined && now - gate.closedSince >= graceMs;
}

/** The only place that changes a gate; returns the same gate when nothing changes. */
function withReasons(gate: Gate, source: GateSource, reason: GateReason | undefined, now: MonoMs): Gate {
  const held = gate.reasons.get(source);
  if (held === reason || held === 'STOPPING') return gate;
  const reasons = new Map(gate.reasons);
  if (reason === undefined) reasons.delete(source);
  else reasons.set(source, reason);
  return reasons.size === 0 ? { reasons } : { reasons, closedSince: gate.closedSince ?? now };
}

import { type Layout, tickStartMs, toTicks } from './layout.ts';
import { elapsedMs, type Reading, type Ticks, ticks, type WallMs, wallMs } from './units.ts';

/** How a lease, its keep-alives and the ceiling above it hang together; all in milliseconds. */
export interface LeaseTiming {
  /** etcd's time to live; a whole number of seconds, because etcd counts in those. */
  readonly ttlMs: number;
  /** From one keep-alive to the next. */
  readonly heartbeatMs: number;
  /** Without a successful keep-alive for this long, allocation is refused. */
  readonly refuseAfterMs: number;
  /** A ceiling lies this far after the sending of the keep-alive that it rests on. */
  readonly reserveMs: number;
  /** Kept free before the lease's end: for clocks that disagree, and for rounding. */
  readonly marginMs: number;
}

export const DEFAULT_TIMING: LeaseTiming = Object.freeze({
  ttlMs: 30_000,
  heartbeatMs: 10_000,
  refuseAfterMs: 15_000,
  reserveMs: 25_000,
  marginMs: 5_000,
});

/** A ceiling further ahead of our clock than this is no wait but a sign that our clock is behind. */
export const MAX_CEILING_WAIT_MS = 35_000;

/** The ticks [from, to) that one worker has raised its ceiling over, and that nobody else ever uses. */
export interface Reservation {
  readonly from: Ticks;
  readonly to: Ticks;
}

/**
 * Every fault of a timing, in words that name the fields; empty when it is fine. With R(i) the sending of keep-alive i:
 *
 * - The heartbeat comes before the own deadline, else each beat would find allocation suspended.
 * - reserve <= ttl - margin: when a crashed worker's lease ends, at R(i) + ttl or later, its ceiling R(i) + reserve is
 *   in the past of any successor whose clock is at most `margin` behind, so that a successor never waits after a crash.
 * - reserve >= heartbeat + refuseAfter: while the extend that follows keep-alive i is under way or has failed, the ceiling
 *   is still R(i-1) + reserve, and R(i-1) is one heartbeat back. Only then does the ceiling last as long as the
 *   authority that keep-alive i gave, and one lost extend stops nothing. (Less is safe, but stops a worker that is well.)
 *   Together with the rule above this puts the own deadline before the margin.
 * - reserve + margin <= MAX_CEILING_WAIT_MS: an identity given back early leaves its ceiling that far ahead, and the
 *   next holder must take it for a wait, not for a fault of its own clock.
 */
export function checkTiming(timing: LeaseTiming): string[] {
  const { ttlMs, heartbeatMs, refuseAfterMs, reserveMs, marginMs } = timing;
  const faults = Object.entries(timing)
    .filter(([, value]) => !Number.isSafeInteger(value) || value <= 0)
    .map(([name, value]) => `${name} is ${value}, must be a whole number of milliseconds above 0`);
  if (faults.length > 0) return faults;
  const demand = (holds: boolean, fault: string): void => {
    if (!holds) faults.push(fault);
  };
  demand(ttlMs % 1000 === 0, `ttlMs is ${ttlMs}, must be whole seconds`);
  demand(heartbeatMs < refuseAfterMs, `heartbeatMs ${heartbeatMs} must be below refuseAfterMs ${refuseAfterMs}`);
  demand(refuseAfterMs < ttlMs, `refuseAfterMs ${refuseAfterMs} must be below ttlMs ${ttlMs}`);
  demand(reserveMs <= ttlMs - marginMs, `reserveMs ${reserveMs} must be at most ttlMs - marginMs`);
  demand(
    reserveMs >= heartbeatMs + refuseAfterMs,
    `reserveMs ${reserveMs} must be at least heartbeatMs + refuseAfterMs`,
  );
  demand(
    reserveMs + marginMs <= MAX_CEILING_WAIT_MS,
    `reserveMs + marginMs is ${reserveMs + marginMs}, must be at most ${MAX_CEILING_WAIT_MS}`,
  );
  return faults;
}

/**
 * The ceiling to store: `reserveMs` after the sending of the last successful keep-alive, never past the layout's end;
 * undefined when that is not above the stored one, because a ceiling only rises. Rounded down, so that every usable
 * tick has begun by then.
 */
export function nextCeiling(
  layout: Layout,
  keepAliveSent: WallMs,
  reserveMs: number,
  stored: Ticks,
): Ticks | undefined {
  const wanted = Math.min(toTicks(layout, wallMs(keepAliveSent + reserveMs)), layout.endTicks);
  return wanted > stored ? ticks(wanted) : undefined;
}

/**
 * Milliseconds until the own deadline; 0 or less: allocate nothing. Counted from the reading before the last successful
 * keep-alive was sent, because etcd's own count starts later, and by whichever clock saw more time pass.
 */
export function authorityMs(timing: LeaseTiming, keepAliveSent: Reading, now: Reading): number {
  return authoritySpanMs(timing) - elapsedMs(keepAliveSent, now);
}

/** How long one keep-alive allows allocation: until refusal is due, or the lease nears its end. */
function authoritySpanMs({ refuseAfterMs, ttlMs, marginMs }: LeaseTiming): number {
  return Math.min(refuseAfterMs, ttlMs - marginMs);
}

/** Milliseconds until the clock reaches a ceiling, at which a new holder starts; 0 when it already has. */
export function ceilingWaitMs(layout: Layout, ceiling: Ticks, now: WallMs): number {
  return Math.max(0, tickStartMs(layout, ceiling) - now);
}

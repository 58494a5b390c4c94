/**
 * Never a tick twice, first half: who may use a tick. (`generator` has the second half: how its holder uses it once.)
 *
 * Two workers with one worker ID would write the same IDs. A lease in etcd gives the ID to one of them, but a lease
 * only says who should hold it. A process that is paused for a minute does not know that its lease has ended; it wakes
 * up in the middle of an allocation, and has checked everything a minute ago.
 *
 * So what is given to a worker is not the worker ID, but a stretch of time under it. Beside each worker ID etcd has a
 * ceiling: the first tick that nobody may use yet. Whoever raises it from `a` to `b` by compare-and-swap owns the ticks
 * [a, b) for ever, and the next one can only raise it from `b`. The paused process may wake up whenever it wants: its
 * ticks are its own, and when they are used up it needs a swap, which fails.
 *
 * The rest is about not waiting. A ceiling must be far enough ahead to outlast the next heartbeats, and near enough
 * that it has passed when the worker crashes and its lease ends, so that a successor starts at once. It counts from the
 * moment at which the last successful keep-alive was sent, not answered: etcd starts to count later, so our estimate
 * errs on the safe side. `checkTiming` has the inequalities. None of them keeps IDs unique; the swap does.
 */
import { type Layout, tickStartMs, toTicks } from './layout.ts';
import { elapsedMs, type Reading, type Ticks, ticks, type WallMs, wallMs } from './units.ts';

/** The timing of a lease, its keep-alives and the ceiling above it; all in milliseconds. */
export interface LeaseTiming {
  /** etcd's time to live; a whole number of seconds, because etcd counts in those. */
  readonly ttlMs: number;
  /** From one keep-alive to the next. */
  readonly heartbeatMs: number;
  /** Without a successful keep-alive for this long, allocation is refused. */
  readonly refuseAfterMs: number;
  /** A ceiling lies this far after the moment at which its keep-alive was sent. */
  readonly reserveMs: number;
  /**
   * A ceiling passes at least this long before the lease can expire. A successor whose clock is behind by no more does
   * not wait for it; one whose clock is further behind waits for the difference. Ceilings keep IDs unique whatever it
   * is.
   */
  readonly marginMs: number;
}

/** A rule that a timing breaks. `problem` says what `field` must be. */
export interface TimingProblem {
  readonly field: keyof LeaseTiming;
  readonly problem: string;
}

/** A longer time to live changes nothing but how long a worker ID stays with a worker that has crashed. */
const DIVIDED_MS = 30_000;

/**
 * The timing that follows from a time to live of at least a second (ms), by the rules of `checkTiming`. A third of it
 * is from one keep-alive to the next, so that one may be lost; half of it may pass without one. A ceiling lasts for
 * both together, and the sixth that is left is the margin.
 */
export function timingFor(ttlMs: number): LeaseTiming {
  const dividedMs = Math.min(ttlMs, DIVIDED_MS);
  const [heartbeatMs, refuseAfterMs] = [Math.floor(dividedMs / 3), Math.floor(dividedMs / 2)];
  const marginMs = Math.floor(dividedMs / 6);
  return Object.freeze({ ttlMs, heartbeatMs, refuseAfterMs, reserveMs: heartbeatMs + refuseAfterMs, marginMs });
}

/** The timing by the defaults of the variables. */
export const DEFAULT_TIMING = timingFor(30_000);

/** A ceiling further ahead of our clock than this is not waited for: it means that our clock is behind. */
export const MAX_CEILING_WAIT_MS = 35_000;

/** The ticks [from, to) that one worker has reserved by raising its ceiling, and that no other worker ever uses. */
export interface Reservation {
  readonly from: Ticks;
  readonly to: Ticks;
}

/**
 * Every rule that a timing breaks; empty when it is valid. `named` is how messages name a field, with its value. With
 * R(i) the time at which keep-alive i was sent:
 *
 * - The heartbeat comes before the own deadline, or each one would find allocation suspended.
 * - reserve <= ttl - margin: when a crashed worker's lease ends, at R(i) + ttl or later, its ceiling R(i) + reserve is
 *   in the past of any successor whose clock is at most `margin` behind, so a successor never waits after a crash.
 * - reserve >= heartbeat + refuseAfter: while the raise that follows keep-alive i is in progress or has failed, the
 *   ceiling is still R(i-1) + reserve, and R(i-1) is one heartbeat back. With this rule the ceiling lasts as long as
 *   the authority from keep-alive i, and one lost raise stops nothing. (Less is safe, but would stop a healthy worker.)
 *   Together with the rule above this puts the own deadline before the margin.
 * - reserve + margin <= MAX_CEILING_WAIT_MS: an identity released early leaves its ceiling that far ahead; the next
 *   holder must wait for it instead of suspecting its own clock.
 */
export function checkTiming(
  timing: LeaseTiming,
  named: (field: keyof LeaseTiming) => string = (field) => `${field} (${timing[field]} ms)`,
): TimingProblem[] {
  const { ttlMs, heartbeatMs, refuseAfterMs, reserveMs, marginMs } = timing;
  const fields = Object.keys(timing) as (keyof LeaseTiming)[];
  const problems = fields
    .filter((field) => !Number.isSafeInteger(timing[field]) || timing[field] <= 0)
    .map((field) => ({ field, problem: `must be a whole number of milliseconds above 0, not ${timing[field]}` }));
  if (problems.length > 0) return problems;
  const demand = (holds: boolean, field: keyof LeaseTiming, what: string): void => {
    if (!holds) problems.push({ field, problem: `must be ${what}, not ${timing[field]} ms` });
  };
  demand(ttlMs % 1000 === 0, 'ttlMs', 'whole seconds');
  demand(heartbeatMs < refuseAfterMs, 'heartbeatMs', `below ${named('refuseAfterMs')}`);
  demand(refuseAfterMs < ttlMs, 'refuseAfterMs', `below ${named('ttlMs')}`);
  demand(reserveMs <= ttlMs - marginMs, 'reserveMs', `at most ${named('ttlMs')} minus ${named('marginMs')}`);
  demand(
    reserveMs >= heartbeatMs + refuseAfterMs,
    'reserveMs',
    `at least ${named('heartbeatMs')} plus ${named('refuseAfterMs')}`,
  );
  demand(
    reserveMs + marginMs <= MAX_CEILING_WAIT_MS,
    'reserveMs',
    `at most ${MAX_CEILING_WAIT_MS} ms minus ${named('marginMs')}`,
  );
  return problems;
}

/**
 * The ceiling to store: `reserveMs` after the last successful keep-alive was sent, never past the layout's end;
 * undefined when that is not above the stored one, because a ceiling only rises. Rounded down, so that every usable
 * tick has started by then.
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
 * Milliseconds until the own deadline; at 0 or less, allocate nothing. Counted from the reading before the last
 * successful keep-alive was sent, because etcd starts counting later, and by the clock that advanced more.
 */
export function authorityMs(timing: LeaseTiming, keepAliveSent: Reading, now: Reading): number {
  return authoritySpanMs(timing) - elapsedMs(keepAliveSent, now);
}

/** How long one keep-alive allows allocation: until refuseAfterMs, or until the lease nears its end. */
function authoritySpanMs({ refuseAfterMs, ttlMs, marginMs }: LeaseTiming): number {
  return Math.min(refuseAfterMs, ttlMs - marginMs);
}

/** Milliseconds until the clock reaches a ceiling, where a new holder starts; 0 when it has already. */
export function ceilingWaitMs(layout: Layout, ceiling: Ticks, now: WallMs): number {
  return Math.max(0, tickStartMs(layout, ceiling) - now);
}

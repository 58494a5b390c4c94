/**
 * Which clock to believe.
 *
 * An ID has the time in it, so a worker must know the time, thousands of times a second. The only clock that answers
 * that fast is its own machine's, and that one is wrong now and then. It is set by an administrator or by a time
 * service, it stands still while a virtual machine is moved, and it has gained hours when a laptop wakes up.
 *
 * No duplicate can come of that: a worker uses only ticks below its ceiling, and each tick once, whatever its clock
 * shows. Two other things can. IDs lose their order, which is what a wrong time in them means. And a ceiling never
 * falls: a clock that is a year ahead for a second would put the ceiling a year ahead, and nobody could use the worker
 * ID for that year. So each allocation and each raise of a ceiling passes here first.
 *
 * A machine has a second clock. The monotonic one says nothing of what time it is, but it never steps, so it shows how
 * far the wall clock should have moved between two readings. The trap is to compare each reading only with the one
 * before it:
 *
 * - A step back need not look like one. Read every 50 ms, a clock that steps back by 30 ms has still gained 20, and one
 *   that steps back by 50 has merely stood still. What counts is not whether it moved, but how much less than the
 *   monotonic clock.
 * - Steps forward add up. Each of a hundred may be harmless, and all of them together a second.
 * - Nobody can tell a clock that stands still from one that has just stepped back by the time that passed, until it is
 *   read once more.
 * - Both clocks can't be read at one moment. If the process is paused between them, that looks like a step.
 *
 * So a guard remembers four readings, and judges the next one by each: the first of the term, by which small steps add
 * up; the one before; the highest wall time; and the one at which the clock last moved. There are three verdicts. The
 * clock is steady. Or it went back by less than 10 ms, as a time service corrects it: then allocation waits until the
 * clock is where it was. Or it can't be trusted: the worker is ejected, which means that it gives its worker ID back.
 * An ejection is final for its guard, since by then the guard's own first reading may be what is wrong. The next term
 * begins with a fresh one.
 *
 * All this finds out that a clock moved wrongly, and not that it was wrong from the start. For that it takes other
 * clocks. Each append to Kafka brings a broker's time along, which says where our clock stands to within the duration
 * of the call: an interval, and no point. A worker is ejected only if the whole interval lies more than a second off,
 * and only by the median of the brokers, so that half of them alone can't do it. Before a term the limit is half a
 * second, so that nobody takes a worker ID who would lose it a moment later.
 *
 * A clock that drifts within a second is believed. That is the bound within which IDs of different workers are in
 * order.
 */
import { monoMs, type Reading, type WallMs, wallMs } from './units.ts';

export const EJECTION_REASONS = ['CLOCK_BACKWARD', 'CLOCK_FORWARD', 'CLOCK_FROZEN', 'CLOCK_DRIFT'] as const;
type EjectionReason = (typeof EJECTION_REASONS)[number];

export type Verdict =
  | { readonly kind: 'steady' }
  /** Allocate nothing until the wall clock shows this: it went back a little, or stopped for a moment. */
  | { readonly kind: 'wait'; readonly untilWall: WallMs }
  /** Release the identity; the clock can't be trusted. */
  | { readonly kind: 'eject'; readonly reason: EjectionReason; readonly detail: string };

type Ejection = Extract<Verdict, { kind: 'eject' }>;

/** Found before an identity is acquired: our clock disagrees with those of the brokers or other workers. */
export const CLOCK_OFF_REASONS = ['CLOCK_AHEAD', 'CLOCK_BEHIND'] as const;
type ClockOffReason = (typeof CLOCK_OFF_REASONS)[number];

/** A step back of this much or more ejects. */
const STEP_BACK_MS = 10;
/** A wall clock that gained more than this on the monotonic one since the anchor ejects. */
const FORWARD_MS = 1000;
/** A wall clock that has not moved while the monotonic one moved this much ejects, however often it was read. */
const FROZEN_MS = 1000;
/** A drift certainly beyond this, against the median of the brokers, ejects. */
const DRIFT_MS = 1000;
/** The limit at the start of a term: a clock close to DRIFT_MS would soon be ejected again. */
const DRIFT_AT_START_MS = 500;

/**
 * A process whose clocks were not read for this long was paused: the runner reads them every 50 ms, and garbage
 * collection or a busy machine delays that by some 100 ms, not by a second.
 */
export const MAX_PAUSE_MS = 1050;

/** So many brokers are remembered; the one heard from longest ago is dropped first. */
const MAX_BROKERS = 64;

/**
 * What is remembered of the clocks during one term. Immutable; only `observe` creates the next value.
 *
 *   steady  <-> waiting   wall below highWater by less than 10 ms; steady again once it is back at highWater
 *   either   -> doubting  the same wall time as 10 ms or more before
 *   doubting -> ejected   the next reading shows the reason
 *   any      -> ejected   for any reason; final
 *
 * anchor:    the term's first reading; forward steps are judged against it.
 * last:      the previous reading; a step back hidden by the time passed since is judged against it.
 * highWater: the highest wall time seen; a visible step back is judged against it.
 * moved:     the first reading with the current wall time; a frozen clock is judged against it.
 * doubt:     two consecutive readings, 10 ms or more apart, with the same wall time: the clock has stopped, or it went
 *            back by exactly the time between them.
 */
export interface ClockGuard {
  readonly anchor: Reading;
  readonly last: Reading;
  readonly highWater: WallMs;
  readonly moved: Reading;
  readonly doubt?: Doubt;
  readonly ejection?: Ejection;
}

interface Doubt {
  readonly first: Reading;
  readonly second: Reading;
}

const STEADY: Verdict = Object.freeze({ kind: 'steady' });

/** A guard that trusts `reading` and judges all later readings by it. */
export function anchorGuard(reading: Reading): ClockGuard {
  requireFinite(reading);
  return { anchor: reading, last: reading, highWater: reading.wall, moved: reading };
}

/**
 * Judges the next reading. Every allocation and every raise of a ceiling must pass here first.
 * Throws RangeError for a reading that is not finite, since that would compare as steady.
 */
export function observe(guard: ClockGuard, reading: Reading): { guard: ClockGuard; verdict: Verdict } {
  if (guard.ejection !== undefined) return { guard, verdict: guard.ejection };
  requireFinite(reading);
  const doubt = guard.doubt ?? doubtOf(guard.last, reading);
  const seen: ClockGuard = {
    anchor: guard.anchor,
    last: reading,
    highWater: wallMs(Math.max(reading.wall, guard.highWater)),
    moved: reading.wall === guard.moved.wall ? guard.moved : reading,
    ...(doubt === undefined ? {} : { doubt }),
  };
  const ejection = ejectionFor(guard, seen);
  if (ejection !== undefined) return { guard: { ...seen, ejection }, verdict: ejection };
  const untilWall = wallMs(Math.max(seen.highWater, doubt === undefined ? 0 : reading.wall + 1));
  if (reading.wall < untilWall) return { guard: seen, verdict: { kind: 'wait', untilWall } };
  return { guard: seen, verdict: STEADY };
}

/**
 * The ejection that a reading calls for, if any.
 *
 * After a hidden step back the wall clock has still advanced, but by at least 10 ms less than the monotonic one. Wall
 * readings are whole milliseconds and monotonic ones are not, so this difference is exact to 1 ms; `clockReader`
 * excludes pauses between the two. A visible step (below highWater) is judged exactly.
 *
 * A stopped wall clock also falls behind by that much. When it shows exactly the same time as before, the next reading
 * decides which it is; a clock that is read too often for that counts as frozen once it has stopped for a second.
 */
function ejectionFor(before: ClockGuard, seen: ClockGuard): Ejection | undefined {
  const { last: now, anchor, highWater, moved } = seen;
  if (seen.doubt !== undefined) return resolveDoubt(seen.doubt, now);
  const stoodMs = now.mono - moved.mono;
  if (stoodMs >= FROZEN_MS) return frozen(stoodMs);
  const backMs = highWater - now.wall;
  if (backMs >= STEP_BACK_MS) return eject('CLOCK_BACKWARD', `the wall clock went back by ${formatMs(backMs)} ms`);
  if (fallenBehindMs(before.last, now) >= STEP_BACK_MS) return hiddenStep(before.last, now);
  const gainedMs = now.wall - anchor.wall - (now.mono - anchor.mono);
  if (gainedMs > FORWARD_MS) {
    const cause = 'it was set, or this machine slept';
    return eject('CLOCK_FORWARD', `the wall clock gained ${formatMs(gainedMs)} ms on the monotonic one: ${cause}`);
  }
  return undefined;
}

function doubtOf(first: Reading, second: Reading): Doubt | undefined {
  const isSame = second.wall === first.wall && second.mono - first.mono >= STEP_BACK_MS;
  return isSame ? { first, second } : undefined;
}

/** A running clock shows another time 10 ms later, a frozen one does not; undefined until either is seen. */
function resolveDoubt({ first, second }: Doubt, now: Reading): Ejection | undefined {
  if (now.wall !== second.wall) return hiddenStep(first, second);
  return now.mono - second.mono >= STEP_BACK_MS ? frozen(now.mono - first.mono) : undefined;
}

/** How much less the wall clock moved than the monotonic one. */
function fallenBehindMs(from: Reading, to: Reading): number {
  return to.mono - from.mono - (to.wall - from.wall);
}

function hiddenStep(from: Reading, to: Reading): Ejection {
  const moves = `moved by ${formatMs(to.wall - from.wall)} ms while ${formatMs(to.mono - from.mono)} ms passed`;
  return eject('CLOCK_BACKWARD', `the wall clock ${moves}, which hides a step back`);
}

function frozen(stoodMs: number): Ejection {
  return eject('CLOCK_FROZEN', `the wall clock has stood still for ${formatMs(stoodMs)} ms`);
}

function eject(reason: EjectionReason, detail: string): Ejection {
  return { kind: 'eject', reason, detail };
}

function formatMs(ms: number): string {
  return ms.toFixed(1).replace(/\.0$/, '');
}

function requireFinite({ wall, mono }: Reading): void {
  if (Number.isFinite(wall) && Number.isFinite(mono)) return;
  throw new RangeError(`a clock reading must be finite, not wall ${wall}, mono ${mono}`);
}

/**
 * One produce response: the broker stamped the record (`appended`, LogAppendTime) between our `sent` and `received`, so
 * our clock is ahead of the broker's by something in [sent - appended, received - appended]; negative is behind.
 */
export interface DriftSample {
  readonly broker: string;
  readonly sent: WallMs;
  readonly received: WallMs;
  readonly appended: WallMs;
}

export interface DriftInterval {
  readonly lowMs: number;
  readonly highMs: number;
}

/** The last sample of each broker, oldest first; start each term with `noDrift`. */
export interface BrokerDrift {
  readonly brokers: ReadonlyMap<string, DriftInterval>;
}

export const noDrift: BrokerDrift = Object.freeze({ brokers: new Map<string, DriftInterval>() });

/**
 * The drift with one more sample. Ignores useless samples: those without an append time (brokers send -1 when the topic
 * keeps the sender's time), and those around a step of our own clock, which `observe` detects.
 */
export function recordDrift(state: BrokerDrift, sample: DriftSample): BrokerDrift {
  const { broker, sent, received, appended } = sample;
  const isUsable = appended >= 0 && received >= sent && Number.isFinite(received - appended);
  if (!isUsable) return state;
  const brokers = new Map(state.brokers);
  brokers.delete(broker);
  brokers.set(broker, { lowMs: sent - appended, highMs: received - appended });
  for (const oldest of brokers.keys()) {
    if (brokers.size <= MAX_BROKERS) break;
    brokers.delete(oldest);
  }
  return { brokers };
}

/**
 * The interval in which the median broker's drift lies; undefined before the first sample. With an even number of
 * brokers it spans both middle ones, so that half of them alone can't eject us.
 */
export function driftInterval(state: BrokerDrift): DriftInterval | undefined {
  return medianInterval([...state.brokers.values()]);
}

/** The interval of the median, spanning both middle ones of an even number; undefined for none. */
export function medianInterval(intervals: readonly DriftInterval[]): DriftInterval | undefined {
  const lows = intervals.map(({ lowMs }) => lowMs).sort((a, b) => a - b);
  const highs = intervals.map(({ highMs }) => highMs).sort((a, b) => a - b);
  const lowMs = lows[Math.floor((lows.length - 1) / 2)];
  const highMs = highs[Math.floor(highs.length / 2)];
  return lowMs === undefined || highMs === undefined ? undefined : { lowMs, highMs };
}

/** How far a broker's clock is certainly ahead of ours, or behind it if negative; 0 while they may agree. */
export function certainLeadMs({ lowMs, highMs }: DriftInterval): number {
  return Math.max(0, -highMs) - Math.max(0, lowMs);
}

/** Ejects when the whole interval lies more than a second to one side. */
export function driftVerdict(state: BrokerDrift): Verdict {
  const off = clockOffByBrokers(state, DRIFT_MS);
  return off === undefined ? STEADY : eject('CLOCK_DRIFT', off.detail);
}

/** Why our clock may not start a term, according to these samples; undefined when it may. */
export function driftAtStart(samples: readonly DriftSample[]): ClockOff | undefined {
  return clockOffByBrokers(samples.reduce(recordDrift, noDrift), DRIFT_AT_START_MS);
}

function clockOffByBrokers(state: BrokerDrift, limitMs: number): ClockOff | undefined {
  return clockOff(driftInterval(state), limitMs, "the brokers' median");
}

/** A clock that is certainly off. */
export interface ClockOff {
  readonly reason: ClockOffReason;
  readonly detail: string;
}

/** The side on which the whole interval lies by more than `limitMs`; undefined while our clock may be right. */
export function clockOff(interval: DriftInterval | undefined, limitMs: number, whose: string): ClockOff | undefined {
  if (interval === undefined) return undefined;
  const { lowMs, highMs } = interval;
  const detail = (ms: number, side: string) => `the wall clock is at least ${formatMs(ms)} ms ${side} ${whose}`;
  if (lowMs > limitMs) return { reason: 'CLOCK_AHEAD', detail: detail(lowMs, 'ahead of') };
  if (highMs < -limitMs) return { reason: 'CLOCK_BEHIND', detail: detail(-highMs, 'behind') };
  return undefined;
}

/** The two clocks must be read within this time, or a pause between the readings would look like a step. */
const TOGETHER_MS = 1;
const MAX_TRIES = 3;

/**
 * Returns a function that reads both clocks. The wall clock is read between two monotonic readings. If these are more
 * than 1 ms apart the process was paused in between, and the clocks are read again, up to 3 times; the closest pair is
 * used.
 */
export function clockReader(wall: () => number, mono: () => number): () => Reading {
  return () => {
    let best = { gapMs: Number.POSITIVE_INFINITY, wall: 0, mono: 0 };
    for (let tries = 0; tries < MAX_TRIES && best.gapMs > TOGETHER_MS; tries += 1) {
      const before = mono();
      const between = wall();
      const gapMs = mono() - before;
      if (gapMs < best.gapMs) best = { gapMs, wall: between, mono: before };
    }
    return { wall: wallMs(best.wall), mono: monoMs(best.mono) };
  };
}

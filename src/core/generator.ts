/**
 * Never a tick twice, second half: how the holder of a reservation uses it. (`reservation` has the first half.)
 *
 * A generator has one place in the ID space, a tick and a sequence number within it, and everything before that place
 * is used or skipped. Taking IDs moves the place up, and nothing ever moves it down. That is all of uniqueness here,
 * and it needs no clock: after a step back the clock is behind the place, and there is nothing to take until it has
 * caught up.
 *
 * The clock says how far the place may go: no further than now, since an ID must not be of the future. It may stay
 * behind, and it is tempting to let it: a tick has 4,096 IDs, and a process whose timers fire every few milliseconds
 * would throw most ticks away if it used the current one alone. But an ID of a tick that is long past sorts before IDs
 * that others have seen already. So ticks of the last 10 ms count as well, and what is older is skipped.
 *
 * What does not fit is not waited for here. The caller is told how many IDs are missing and which tick to wait for, or
 * that no waiting helps: at the end of the reservation, or of the layout.
 */
import { fixedFields, joinHalves, type Layout, requireIdentity } from './layout.ts';
import { type Random, type Ticks, ticks } from './units.ts';

/** How far back ticks may still be used, so that a late timer does not waste their IDs. */
export const BACKFILL_MS = 10;

/** The IDs first, first + step, ... (count of them), all of one tick; `step` is the layout's. */
export interface IdRange {
  readonly first: bigint;
  readonly count: number;
}

/**
 * One worker's place in the ID space; immutable, `take` returns the next one.
 *
 * Everything before (nextTicks, nextSequence) is used or skipped. nextSequence is 0 exactly while nothing of nextTicks
 * is used: only then is a sequence start drawn, so each tick gets one draw, however it is split into batches.
 */
export interface Generator {
  readonly layout: Layout;
  readonly datacenter: number;
  readonly worker: number;
  readonly nextTicks: Ticks;
  readonly nextSequence: number;
  /** The datacenter and worker fields at their places, summed once. */
  readonly fixed: number;
}

const NO_RANGES: readonly IdRange[] = Object.freeze([]);

/** The clock, and the reservation [from, to) that the worker holds. */
export interface Window {
  readonly nowTicks: Ticks;
  readonly from: Ticks;
  readonly to: Ticks;
}

export interface Take {
  readonly generator: Generator;
  readonly ranges: readonly IdRange[];
  /** How many of the wanted IDs the window did not have. */
  readonly missing: number;
  /** With missing > 0: the tick to wait for before taking more. */
  readonly waitUntilTicks?: Ticks;
  /** With missing > 0: waiting does not help until the reservation is extended or, for the layout, ever. */
  readonly exhausted?: 'reservation' | 'layout';
}

/**
 * A generator whose first tick is `from`, the start of the worker's reservation.
 * Throws RangeError when a field or the tick is outside the layout.
 */
export function startGenerator(layout: Layout, datacenter: number, worker: number, from: Ticks): Generator {
  requireIdentity(layout, datacenter, worker);
  if (!Number.isSafeInteger(from) || from < 0) throw new RangeError(`a generator can't start at tick ${from}`);
  return {
    layout,
    datacenter,
    worker,
    nextTicks: from,
    nextSequence: 0,
    fixed: fixedFields(layout, datacenter, worker),
  };
}

/**
 * Takes up to `count` IDs without waiting; take the missing ones later, with a later clock.
 *
 * For every window, whatever the clock did:
 * - the IDs rise, and are above every ID that this generator has allocated before;
 * - no tick is after nowTicks, outside [from, to), or at the layout's end or beyond;
 * - no unused tick older than the back-fill window is used (one tick at least: the current one);
 * - taking a and then b in one window gives the IDs of taking a + b.
 *
 * The work is bounded by the window, 10 ticks at most. Throws RangeError when count or window are not whole numbers.
 */
export function take(generator: Generator, count: number, window: Window, random: Random): Take {
  requireWhole(count, window);
  const { layout, fixed } = generator;
  const { sequencesPerTick, positions } = layout;
  const last = Math.min(window.nowTicks, window.to - 1, layout.endTicks - 1);
  let ranges: readonly IdRange[] = NO_RANGES;
  let { nextTicks, nextSequence } = generator;
  let missing = count;
  for (let at = firstTicks(generator, window); at <= last && missing > 0; at = ticks(at + 1)) {
    const entered = at === nextTicks && nextSequence > 0;
    const sequence = entered ? nextSequence : drawStart(layout, random);
    const size = Math.min(missing, sequencesPerTick - sequence);
    const range = { first: joinHalves(layout, at, fixed + sequence * positions.sequence.unit), count: size };
    // Usually there is only one range, for which a growing array would be much too large.
    ranges = ranges.length === 0 ? [range] : [...ranges, range];
    missing -= size;
    const full = sequence + size === sequencesPerTick;
    nextTicks = full ? ticks(at + 1) : at;
    nextSequence = full ? 0 : sequence + size;
  }
  const next = ranges.length === 0 ? generator : { ...generator, nextTicks, nextSequence };
  if (missing === 0) return { generator: next, ranges, missing };
  return { generator: next, ranges, missing, ...explainShortfall(next, window) };
}

/**
 * The ranges of each of several counts, in order, out of those of their sum. RangeError if these hold fewer IDs.
 */
export function cutRanges(ranges: readonly IdRange[], counts: readonly number[], step: bigint): IdRange[][] {
  let at = 0;
  let first = ranges[0]?.first ?? 0n;
  let left = ranges[0]?.count ?? 0;
  return counts.map((count) => {
    const own: IdRange[] = [];
    for (let missing = count; missing > 0; ) {
      if (left === 0) {
        at += 1;
        const next = ranges[at];
        if (next === undefined) throw new RangeError(`${missing} of ${count} IDs are missing`);
        ({ first, count: left } = next);
      }
      const size = Math.min(missing, left);
      own.push({ first, count: size });
      first += step * BigInt(size);
      missing -= size;
      left -= size;
    }
    return own;
  });
}

/**
 * For an exhausted window: the first tick that could serve, or why none will. A tick inside reservation and layout that
 * did not serve can only be in the future.
 */
function explainShortfall(generator: Generator, window: Window): Pick<Take, 'waitUntilTicks' | 'exhausted'> {
  const first = firstTicks(generator, window);
  if (first >= generator.layout.endTicks) return { exhausted: 'layout' };
  if (first >= window.to) return { exhausted: 'reservation' };
  return { waitUntilTicks: first };
}

/** The first tick that is not used, not too old and not before the reservation. */
function firstTicks({ layout, nextTicks }: Generator, { nowTicks, from }: Window): Ticks {
  return ticks(Math.max(nextTicks, from, nowTicks - backfillTicks(layout) + 1));
}

/** How many ticks, the current one included, are certainly younger than BACKFILL_MS. */
function backfillTicks(layout: Layout): number {
  return Math.max(1, Math.floor(BACKFILL_MS / layout.tickMs));
}

function drawStart({ sequenceStartBelow }: Layout, random: Random): number {
  if (sequenceStartBelow === 1) return 0;
  // Stays in range even if `random` returns 1.
  return Math.min(Math.floor(random() * sequenceStartBelow), sequenceStartBelow - 1);
}

/** NaN compares false with everything, which would pass for "later": reject anything but whole numbers. */
function requireWhole(count: number, { nowTicks, from, to }: Window): void {
  if (!Number.isSafeInteger(count) || count < 1) throw new RangeError(`count must be at least 1, not ${count}`);
  if (Number.isSafeInteger(nowTicks) && Number.isSafeInteger(from) && Number.isSafeInteger(to)) return;
  throw new RangeError(`a window must have whole ticks, not now ${nowTicks}, from ${from}, to ${to}`);
}

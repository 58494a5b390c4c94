import {
  BACKFILL_MS,
  cutRanges,
  type Generator,
  type IdRange,
  startGenerator,
  type Take,
  take,
  type Window,
} from '../core/generator.ts';
import { type Layout, tickStartMs, toTicks } from '../core/layout.ts';
import { type Random, type Reading, type Ticks, ticks } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import type { Authority, GuardedReading } from '../identity/state.ts';
import type { Allocation, Allocator } from '../pipeline/ports.ts';

export interface AllocatorOptions {
  readonly layout: Layout;
  readonly datacenterId: number;
  readonly readClock: () => GuardedReading;
  /** Checks the own deadline each time: a timer that did not fire must not lengthen a term. */
  readonly authority: (now: Reading) => Authority;
  readonly random: Random;
  readonly sleep: (delayMs: number) => Promise<void>;
  /** Gets the ranges of each turn in that turn, in the order in which they are taken. */
  readonly onTaken?: (ranges: readonly IdRange[]) => void;
}

/** A batch that gets no ID for this long fails: the clock stands still, or ceiling raises are failing. */
const MAX_WAIT_MS = 5_000;
/** The part of all IDs that the oldest large request gets, however many IDs smaller requests take. */
const LARGE_SHARE = 1 / 8;

/**
 * Allocates under one rule: every range is taken in the same turn of the event loop in which clock, deadline and
 * reservation were checked, and no batch mixes ranges of two terms.
 *
 * A request for more IDs than a tick has leaves the current tick to smaller requests, so that they never wait behind a
 * large one, however many ticks it needs. No IDs are lost: the rest of a tick is taken once it is over.
 *
 * When smaller requests use up every tick, the oldest large request still gets an eighth of the IDs: as each tick
 * passes it earns a credit, which is paid to it before a smaller request takes anything. (Deficit round robin with two
 * classes, Shreedhar and Varghese, 1995.) So the wait of a large request has a bound, and smaller ones notice it only
 * when they ask for more than seven eighths of what the layout has.
 */
export class LeasedAllocator implements Allocator {
  readonly #options: AllocatorOptions;
  #term: { readonly workerId: number; readonly fence: bigint; generator: Generator } | undefined;
  /** The large batches that wait for ticks, the oldest first. */
  readonly #large: LargeBatch[] = [];

  constructor(options: AllocatorOptions) {
    this.#options = options;
  }

  async allocate(counts: readonly number[]): Promise<readonly Allocation[]> {
    const allocations: Allocation[] = [];
    const total = counts.reduce((sum, count) => sum + count, 0);
    const isLarge = this.#isLarge(total);
    let turn: Turn | undefined;
    if (!isLarge && counts.length > 1) {
      turn = this.#check();
      this.#creditOldest(turn);
      this.#payOldest(turn);
      const together = this.#tryTogether(turn, counts, total);
      if (together !== undefined) return together;
    }
    for (const count of counts) {
      turn ??= this.#check();
      this.#creditOldest(turn);
      this.#payOldest(turn);
      const allocation = this.#tryTake(turn, count, isLarge);
      if ('waitMs' in allocation) {
        turn = undefined;
        allocations.push(await (isLarge ? this.#takeLarge(allocation) : this.#takeWaiting(allocation, false)));
      } else allocations.push(allocation);
    }
    return allocations;
  }

  /** Whether an allocation is of the current term: its IDs may still be handed out. */
  holds({ workerId, fence }: Allocation): boolean {
    const granted = this.#options.authority(this.#options.readClock().reading);
    return granted.ok && sameTerm({ workerId, fence }, granted);
  }

  /** Keeps a large batch where it earns its share until it is complete. */
  async #takeLarge(first: PartialTake): Promise<Allocation> {
    const batch: LargeBatch = { ...first, credit: 0, creditedTo: undefined };
    this.#large.push(batch);
    try {
      return await this.#takeWaiting(batch, true);
    } finally {
      this.#large.splice(this.#large.indexOf(batch), 1);
    }
  }

  /** Continues a batch that needs future ticks; each wake-up takes all that have passed by then. */
  async #takeWaiting(batch: PartialTake, isLarge: boolean): Promise<Allocation> {
    for (let waitedMs = 0; waitedMs < MAX_WAIT_MS; ) {
      const { missing, waitMs } = batch;
      await this.#options.sleep(waitMs);
      const turn = this.#check();
      if (!sameTerm(batch, turn.granted)) {
        throw new IdallocError('LEASE_LOST', 'the identity changed while a batch waited for its ticks');
      }
      // A batch that is to be paid itself first takes the rest of the ticks before: that counts.
      const isPaidLast = batch === this.#large[0];
      this.#creditOldest(turn);
      if (!isPaidLast) this.#payOldest(turn);
      if (batch.missing > 0) {
        const next = this.#tryTake(turn, batch.missing, isLarge);
        if (!('waitMs' in next)) return { ...next, ranges: [...batch.ranges, ...next.ranges] };
        add(batch, next);
        batch.waitMs = next.waitMs;
        if (isPaidLast) this.#payOldest(turn);
      }
      if (batch.missing === 0) return { ...evidenceOf(turn), ranges: batch.ranges };
      waitedMs = batch.missing < missing ? 0 : waitedMs + waitMs;
    }
    const message = `no ID could be allocated for ${MAX_WAIT_MS} ms: the clock is not advancing`;
    throw new IdallocError('RESERVATION_EXHAUSTED', message);
  }

  /** Credits the oldest large batch with its share of the ticks that have passed since the last time. */
  #creditOldest({ reading }: Turn): void {
    const batch = this.#large[0];
    if (batch === undefined) return;
    const { layout } = this.#options;
    const nowTicks = toTicks(layout, reading.wall);
    const usable = BACKFILL_MS / layout.tickMs; // older ticks can't be used, so nothing is earned for them
    const passed = Math.min(usable, Math.max(0, nowTicks - (batch.creditedTo ?? nowTicks)));
    batch.credit += passed * layout.sequencesPerTick * LARGE_SHARE;
    batch.creditedTo = ticks(Math.max(nowTicks, batch.creditedTo ?? nowTicks));
  }

  /** Pays the oldest large batch its credit, from the ticks of this turn. */
  #payOldest({ reading, verdict, granted }: Turn): void {
    const batch = this.#large[0];
    if (batch === undefined || verdict.kind === 'wait' || !sameTerm(batch, granted)) return;
    const { layout } = this.#options;
    const due = Math.min(batch.missing, Math.floor(batch.credit));
    if (due < 1) return;
    const window = { nowTicks: toTicks(layout, reading.wall), ...granted.reservation };
    const { ranges, missing } = this.#take(granted, due, window);
    add(batch, { ranges, missing: batch.missing - due + missing });
  }

  /** Reads clock and authority for this turn of the event loop; throws when either refuses. */
  #check(): Turn {
    const { authority, readClock } = this.#options;
    const { reading, verdict } = readClock();
    if (verdict.kind === 'eject') throw new IdallocError(verdict.reason, verdict.detail);
    const granted = authority(reading);
    if (!granted.ok) throw new IdallocError(granted.code, granted.message);
    return { reading, verdict, granted };
  }

  /** Takes the IDs available now. Only in the turn that was checked: no promise may be awaited in between. */
  #tryTake(turn: Turn, count: number, isLarge: boolean): Allocation | PartialTake {
    const { reading, verdict, granted } = turn;
    const { layout } = this.#options;
    const evidence = evidenceOf(turn);
    if (verdict.kind === 'wait') {
      return { ...evidence, ranges: [], missing: count, waitMs: Math.max(1, verdict.untilWall - reading.wall) };
    }
    const { from, to } = granted.reservation;
    const nowTicks = toTicks(layout, reading.wall);
    const end = isLarge && nowTicks > from && nowTicks < to ? nowTicks : to;
    const { ranges, missing, ...shortfall } = this.#take(granted, count, { nowTicks, from, to: end });
    if (missing === 0) return { ...evidence, ranges };
    const isHeldBack = end < to && shortfall.exhausted === 'reservation';
    const until = isHeldBack ? ticks(nowTicks + 1) : shortfall.waitUntilTicks;
    if (until === undefined) throw exhausted(shortfall.exhausted, layout);
    return { ...evidence, ranges, missing, waitMs: waitUntil(layout, until, reading) };
  }

  /**
   * The IDs of several small requests in one take, which gives them what a take for each would: nearly always there are
   * enough at once. Undefined, and nothing is taken, where some would have to wait.
   */
  #tryTogether(turn: Turn, counts: readonly number[], total: number): readonly Allocation[] | undefined {
    const { reading, verdict, granted } = turn;
    const { layout, random } = this.#options;
    if (verdict.kind === 'wait') return undefined;
    const window = { nowTicks: toTicks(layout, reading.wall), ...granted.reservation };
    const taken = take(this.#termOf(granted).generator, total, window, random);
    if (taken.missing > 0) return undefined;
    this.#keep(granted, taken);
    const evidence = evidenceOf(turn);
    return cutRanges(taken.ranges, counts, layout.step).map((ranges) => ({ ...evidence, ranges }));
  }

  #take(granted: Granted, count: number, window: Window): Take {
    const taken = take(this.#termOf(granted).generator, count, window, this.#options.random);
    this.#keep(granted, taken);
    return taken;
  }

  /** What was taken is used up, whoever gets it. */
  #keep(granted: Granted, taken: Take): void {
    this.#termOf(granted).generator = taken.generator;
    this.#options.onTaken?.(taken.ranges);
  }

  /** Always false for layouts whose ticks can't be used once they are over. */
  #isLarge(total: number): boolean {
    const { tickMs, sequencesPerTick } = this.#options.layout;
    return BACKFILL_MS >= 2 * tickMs && total > sequencesPerTick;
  }

  #termOf(granted: Granted): { generator: Generator } {
    if (this.#term === undefined || !sameTerm(this.#term, granted)) {
      const { layout, datacenterId } = this.#options;
      const generator = startGenerator(layout, datacenterId, granted.workerId, granted.reservation.from);
      this.#term = { workerId: granted.workerId, fence: granted.fence, generator };
    }
    return this.#term;
  }
}

type Granted = Authority & { readonly ok: true };

/** Clock, deadline and reservation, as read in one turn of the event loop. */
interface Turn {
  readonly reading: Reading;
  readonly verdict: Exclude<GuardedReading['verdict'], { readonly kind: 'eject' }>;
  readonly granted: Granted;
}

/**
 * A wiped etcd restarts its revisions, so two terms of one process may have the same fence, for different worker IDs.
 */
interface HeldTerm {
  readonly workerId: number;
  readonly fence: bigint;
}

function sameTerm(a: HeldTerm, b: HeldTerm): boolean {
  return a.workerId === b.workerId && a.fence === b.fence;
}

/** A batch of which only a part could be taken. */
interface PartialTake extends HeldTerm {
  ranges: readonly IdRange[];
  missing: number;
  waitMs: number;
}

/** A batch that leaves the current tick to smaller ones. */
interface LargeBatch extends PartialTake {
  /** The IDs that it has earned and did not get. */
  credit: number;
  /** The tick up to which the credit counts; undefined before the first time. */
  creditedTo: Ticks | undefined;
}

/** Adds IDs, which count as paid, from whatever turn they are. */
function add(batch: PartialTake & Partial<LargeBatch>, next: Pick<PartialTake, 'ranges' | 'missing'>): void {
  if (batch.credit !== undefined) batch.credit = Math.max(0, batch.credit - (batch.missing - next.missing));
  batch.ranges = [...batch.ranges, ...next.ranges];
  batch.missing = next.missing;
}

function evidenceOf({ reading, granted }: Turn): Omit<Allocation, 'ranges'> {
  return { workerId: granted.workerId, fence: granted.fence, generatedAt: reading.wall };
}

function waitUntil(layout: Layout, until: Ticks, now: Reading): number {
  return Math.max(1, tickStartMs(layout, until) - now.wall);
}

function exhausted(what: 'reservation' | 'layout' | undefined, layout: Layout): IdallocError {
  return what === 'layout'
    ? new IdallocError('LAYOUT_EXHAUSTED', `the layout ${layout.name} has no ticks left: move to one with a later end`)
    : new IdallocError('RESERVATION_EXHAUSTED', 'the reservation has no ticks left and was not extended in time');
}

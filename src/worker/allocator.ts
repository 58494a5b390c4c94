import { BACKFILL_MS, type Generator, type IdRange, startGenerator, take } from '../core/generator.ts';
import { type Layout, tickStartMs, toTicks } from '../core/layout.ts';
import { type Random, type Reading, type Ticks, ticks } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import type { GuardedReading } from '../identity/settings.ts';
import type { Authority } from '../identity/state.ts';
import type { Allocation, Allocator } from '../pipeline/ports.ts';

export interface AllocatorOptions {
  readonly layout: Layout;
  readonly datacenterId: number;
  readonly readClock: () => GuardedReading;
  /** Checks the own deadline each time: a timer that did not fire must not lengthen a term. */
  readonly authority: (now: Reading) => Authority;
  readonly random: Random;
  readonly sleep: (delayMs: number) => Promise<void>;
}

/** A batch that does not get its ticks within this time fails: the clock or the raises of the ceiling are in trouble. */
const MAX_WAIT_MS = 5_000;

/**
 * Allocates under one rule: every range is taken in the same turn of the event loop in which clock, deadline and
 * reservation were checked, and no batch mixes ranges of two terms.
 *
 * A request for more IDs than a tick has leaves the current tick to smaller requests, so that they never wait behind a
 * large one, however many ticks it needs. No IDs are lost: the rest of a tick is taken once it is over.
 */
export class LeasedAllocator implements Allocator {
  readonly #options: AllocatorOptions;
  #term: { readonly workerId: number; readonly fence: bigint; generator: Generator } | undefined;

  constructor(options: AllocatorOptions) {
    this.#options = options;
  }

  async allocate(counts: readonly number[]): Promise<readonly Allocation[]> {
    const allocations: Allocation[] = [];
    const isLarge = this.#isLarge(counts);
    let turn: Turn | undefined;
    for (const count of counts) {
      turn ??= this.#check();
      const allocation = this.#tryTake(turn, count, isLarge);
      if ('waitMs' in allocation) {
        turn = undefined;
        allocations.push(await this.#takeWaiting(count, allocation, isLarge));
      } else allocations.push(allocation);
    }
    return allocations;
  }

  /** Continues a batch that needs future ticks; each wake-up takes all that have passed by then. */
  async #takeWaiting(count: number, begun: Begun, isLarge: boolean): Promise<Allocation> {
    let part = begun;
    for (let waitedMs = 0; waitedMs < MAX_WAIT_MS; waitedMs += part.waitMs) {
      await this.#options.sleep(part.waitMs);
      const turn = this.#check();
      if (!sameTerm(part, turn.granted)) {
        throw new IdallocError('LEASE_LOST', 'the identity changed while a batch waited for its ticks');
      }
      const next = this.#tryTake(turn, count - part.taken, isLarge);
      if (!('waitMs' in next)) return { ...next, ranges: [...part.ranges, ...next.ranges] };
      part = { ...next, ranges: [...part.ranges, ...next.ranges], taken: part.taken + next.taken };
    }
    const message = `${count} IDs could not be allocated within ${MAX_WAIT_MS} ms: the clock is not advancing`;
    throw new IdallocError('RESERVATION_EXHAUSTED', message);
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
  #tryTake({ reading, verdict, granted }: Turn, count: number, isLarge: boolean): Allocation | Begun {
    const { layout, random } = this.#options;
    if (verdict.kind === 'wait') {
      const { workerId, fence } = granted;
      return { ranges: [], taken: 0, waitMs: Math.max(1, verdict.untilWall - reading.wall), workerId, fence };
    }
    const term = this.#termOf(granted);
    const { from, to } = granted.reservation;
    const nowTicks = toTicks(layout, reading.wall);
    const end = isLarge && nowTicks > from && nowTicks < to ? nowTicks : to;
    const taken = take(term.generator, count, { nowTicks, from, to: end }, random);
    term.generator = taken.generator;
    const evidence = { workerId: granted.workerId, fence: granted.fence, generatedAt: reading.wall };
    if (taken.missing === 0) return { ranges: taken.ranges, ...evidence };
    const isHeldBack = end < to && taken.exhausted === 'reservation';
    const until = isHeldBack ? ticks(nowTicks + 1) : taken.waitUntilTicks;
    if (until === undefined) throw exhausted(taken.exhausted, layout);
    return {
      ranges: taken.ranges,
      taken: count - taken.missing,
      waitMs: waitUntil(layout, until, reading),
      workerId: granted.workerId,
      fence: granted.fence,
    };
  }

  /** Always false for layouts whose ticks can't be used once they are over. */
  #isLarge(counts: readonly number[]): boolean {
    const { tickMs, sequencesPerTick } = this.#options.layout;
    return BACKFILL_MS >= 2 * tickMs && counts.reduce((sum, count) => sum + count, 0) > sequencesPerTick;
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

/** A wiped etcd restarts its revisions, so two terms of one process may have the same fence, for different worker IDs. */
interface TermName {
  readonly workerId: number;
  readonly fence: bigint;
}

function sameTerm(a: TermName, b: TermName): boolean {
  return a.workerId === b.workerId && a.fence === b.fence;
}

/** A batch of which only a part could be taken. */
interface Begun extends TermName {
  readonly ranges: readonly IdRange[];
  readonly taken: number;
  readonly waitMs: number;
}

function waitUntil(layout: Layout, until: Ticks, now: Reading): number {
  return Math.max(1, tickStartMs(layout, until) - now.wall);
}

function exhausted(what: 'reservation' | 'layout' | undefined, layout: Layout): IdallocError {
  return what === 'layout'
    ? new IdallocError('LAYOUT_EXHAUSTED', `the layout ${layout.name} has no ticks left: move to one with a later end`)
    : new IdallocError('RESERVATION_EXHAUSTED', 'the reservation has no ticks left and was not extended in time');
}

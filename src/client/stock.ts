import type { IdRange } from '../core/generator.ts';
import { IdallocError } from '../errors.ts';

export interface DemandOptions {
  /** How long the buffer must last when no IDs arrive. */
  readonly coverSeconds: number;
  /** The minimum rate to be ready for, in IDs per second. */
  readonly idsPerSecond: number;
  /** The minimum rate to be ready for while nobody takes IDs; at most `idsPerSecond`. */
  readonly idleIdsPerSecond: number;
  readonly maxBuffered: number;
}

/** The window over which use is measured has this many slices. */
const SLICES = 10;
/** A peak decays with this half-life. */
const HALF_LIFE_MS = 60_000;
/** Without a call for IDs in this time, the buffer is idle. */
const IDLE_MS = 60_000;
/** Longer waits for a reply count as outages, which coverSeconds covers. */
const MAX_LEAD_MS = 2_000;
const LEAD_DECAY = 0.9;

interface TimeSlice {
  readonly startMs: number;
  taken: number;
  /** IDs of its largest call. */
  largest: number;
}

/**
 * How many IDs the buffer should hold, from how fast they are used. It rises with the rate immediately and falls
 * slowly.
 *
 *   rate           = (IDs taken within coverSeconds - those of the largest call among them) / coverSeconds
 *   low-water mark = rate x (coverSeconds + usual latency of a reply);  a refill fills up to twice that
 *
 * The mark is about what the last coverSeconds took, so a burst is covered if it comes again. One call is no rate: an
 * import that takes 100,000 IDs once a night leaves the buffer as it was.
 *
 * An age limit makes an idle buffer cost as much as a busy one, since its IDs are thrown away in time. So its minimum
 * is lower, though not below the largest burst, until the next call.
 */
export class Demand {
  readonly #options: DemandOptions;
  /** The last one is still being filled. */
  readonly #slices: TimeSlice[];
  #rate: number;
  #leadMs = 0;
  #notedMs: number;
  #taken = 0;
  #largest = 0;
  /** When IDs were last taken, or lacking. */
  #usedMs: number;
  /** The most IDs that were taken between two notes, or that a call lacked. */
  #burst = 0;
  #hasFailed = false;

  constructor(options: DemandOptions, nowMs: number) {
    this.#options = options;
    this.#rate = options.idsPerSecond;
    this.#notedMs = nowMs;
    this.#usedMs = nowMs;
    this.#slices = [{ startMs: nowMs, taken: 0, largest: 0 }];
  }

  /** IDs per second to be ready for. */
  get rate(): number {
    return this.#rate;
  }

  /** A call took this many IDs. Calls for a single one need not be told. */
  took(count: number): void {
    this.#largest = Math.max(this.#largest, count);
  }

  /** A call for this many IDs failed, as the buffer had too few. */
  lacked(count: number): void {
    this.#burst = Math.max(this.#burst, count);
    this.#hasFailed = true;
  }

  /** Whether nobody has called for IDs in the last minute before the last note. */
  get isIdle(): boolean {
    return this.#notedMs - this.#usedMs >= IDLE_MS;
  }

  /** Updates the rate; `taken` is the total number of IDs taken so far. */
  note(nowMs: number, taken: number): void {
    this.#burst = Math.max(this.#burst, taken - this.#taken);
    if (taken > this.#taken || this.#hasFailed) this.#usedMs = nowMs;
    this.#hasFailed = false;
    const measured = this.#measured(nowMs, taken);
    const decayed = this.#rate * 0.5 ** ((nowMs - this.#notedMs) / HALF_LIFE_MS);
    this.#notedMs = nowMs;
    this.#rate = Math.max(measured, decayed, this.#least);
  }

  /** Updates the usual latency of a reply. */
  replied(latencyMs: number): void {
    this.#leadMs = Math.min(MAX_LEAD_MS, Math.max(latencyMs, this.#leadMs * LEAD_DECAY));
  }

  /** The low-water mark: at this many IDs or fewer, more are requested. */
  get low(): number {
    const { coverSeconds, maxBuffered } = this.#options;
    const wanted = Math.ceil(this.#rate * (coverSeconds + this.#leadMs / 1_000));
    return Math.max(1, Math.min(wanted, Math.floor(maxBuffered / 2)));
  }

  /** As many as a refill brings: the second buffer behind the first. */
  get full(): number {
    return 2 * this.low;
  }

  get #least(): number {
    const { idsPerSecond, idleIdsPerSecond, coverSeconds } = this.#options;
    if (!this.isIdle) return idsPerSecond;
    return Math.min(idsPerSecond, Math.max(idleIdsPerSecond, this.#burst / coverSeconds));
  }

  #measured(nowMs: number, taken: number): number {
    const coverMs = 1_000 * this.#options.coverSeconds;
    const slices = this.#slices;
    const last = slices.at(-1) as TimeSlice; // there is always one
    last.taken += taken - this.#taken;
    last.largest = Math.max(last.largest, this.#largest);
    this.#taken = taken;
    this.#largest = 0;
    while (slices[1] !== undefined && slices[1].startMs <= nowMs - coverMs) slices.shift();
    const [{ startMs: sinceMs }] = slices as [TimeSlice];
    if (nowMs - last.startMs >= coverMs / SLICES) slices.push({ startMs: nowMs, taken: 0, largest: 0 });
    const total = slices.reduce((sum, slice) => sum + slice.taken, 0);
    const largest = slices.reduce((most, slice) => Math.max(most, slice.largest), 0);
    return (1_000 * (total - largest)) / Math.max(coverMs, nowMs - sinceMs);
  }
}

/** The IDs of one reply, as ranges. */
export interface SuppliedBatch {
  readonly ranges: readonly IdRange[];
  readonly step: bigint;
  /** Monotonic time of the request, before which none of the IDs existed. */
  readonly requestedAtMs: number;
}

export interface StockOptions {
  /** Called when a take leaves the stock at or below the low-water mark. */
  readonly onLow: () => void;
  readonly monotonicMs: () => number;
  /** Older IDs are dropped instead of returned. */
  readonly maxAgeMs: number;
  /** Of more IDs, those that are next in turn are dropped. */
  readonly maxIds: number;
  /** Called with the count of each call of take(). */
  readonly onTake?: (count: number) => void;
  /** Called with each error that next() and take() throw. */
  readonly onFailure?: (error: IdallocError) => void;
}

/**
 * IDs that are granted at a time. The age is checked for each grant, as reading the clock takes longer than next(): so
 * all but the first of a grant can be too old by as long as the event loop stood still since.
 */
const GRANT = 256;

interface Batch extends SuppliedBatch {
  /** Next range to open. */
  at: number;
  /** IDs in the ranges from `at` on. */
  left: number;
}

/**
 * Prefetched IDs.
 *
 * next() is called for each ID that a service creates, so it is to cost an addition and a comparison, nothing more. But
 * three things have to be seen to: a range ends, the stock falls to its low-water mark, and IDs grow too old. So these
 * are checked for many IDs at once. A check grants as many IDs as can be taken before the next one is due: up to the
 * end of the range, up to the mark, and at most GRANT, for their age. What changes the mark, or adds or removes IDs,
 * revokes the grant, and the next call checks again.
 *
 *   open range: #granted + #behind IDs from #next on;  #batches: complete ranges after it
 */
export class IdStock {
  readonly #options: StockOptions;
  /** One ID. A field with a BigInt would be a new object for each, and one that the garbage collector has to note. */
  readonly #next = new BigUint64Array(1);
  #step = 1n;
  #granted = 0;
  #behind = 0;
  #requestedAtMs = 0;
  /** Lower bound of requestedAtMs over all IDs here. */
  #oldestMs = Number.POSITIVE_INFINITY;
  #batches: Batch[] = [];
  /** IDs in #batches. */
  #stored = 0;
  #received = 0;
  #dropped = 0;
  #low = 0;
  #refusal: ((count: number) => IdallocError) | undefined;

  constructor(options: StockOptions) {
    this.#options = options;
  }

  /** Number of IDs, including expired ones that were not dropped yet. */
  get size(): number {
    return this.#granted + this.#behind + this.#stored;
  }

  /** Monotonic time of the oldest IDs' request; Infinity when there are none. */
  get oldestMs(): number {
    return this.#batches.reduce(
      (oldest, { requestedAtMs }) => Math.min(oldest, requestedAtMs),
      this.#granted + this.#behind > 0 ? this.#requestedAtMs : Number.POSITIVE_INFINITY,
    );
  }

  /** Number of IDs that were requested at this time (monotonic) or later. */
  sizeSince(requestedFromMs: number): number {
    if (this.#oldestMs >= requestedFromMs) return this.size;
    return this.#batches.reduce(
      (sum, { requestedAtMs, left }) => sum + (requestedAtMs < requestedFromMs ? 0 : left),
      this.#requestedAtMs < requestedFromMs ? 0 : this.#granted + this.#behind,
    );
  }

  /** Total number of IDs taken so far. */
  get taken(): number {
    return this.#received - this.#dropped - this.size;
  }

  /** Total number of IDs dropped so far. */
  get dropped(): number {
    return this.#dropped;
  }

  /** The next ID. Throws IdallocError BUFFER_EMPTY, or the error given to withhold(). */
  next(): bigint {
    if (this.#granted === 0) this.#grant();
    this.#granted -= 1;
    const cell = this.#next;
    const id = cell[0] as bigint;
    cell[0] = id + this.#step;
    return id;
  }

  /** The next `count` IDs, all or none. Throws as next(). */
  take(count: number): bigint[] {
    const ids = this.tryTake(count);
    if (ids === undefined) throw this.#failure(this.#refusal?.(count) ?? emptied(count));
    return ids;
  }

  /** The next `count` IDs; undefined if fewer than `least` would be left. */
  tryTake(count: number, least = 0): bigint[] | undefined {
    if (this.#refusal !== undefined) return undefined;
    this.dropOld();
    if (this.size < count + least) return undefined;
    const ids = new Array<bigint>(count);
    for (let at = 0; at < count; ) {
      if (this.#granted + this.#behind === 0) this.#open();
      const run = Math.min(count - at, this.#granted + this.#behind);
      let id = this.#next[0] as bigint;
      for (const end = at + run; at < end; at += 1) {
        ids[at] = id;
        id += this.#step;
      }
      this.#next[0] = id;
      this.#behind += this.#granted - run;
      this.#granted = 0;
    }
    this.#options.onTake?.(count);
    if (this.size <= this.#low) this.#options.onLow();
    return ids;
  }

  add(supply: SuppliedBatch): void {
    const left = supply.ranges.reduce((sum, { count }) => sum + count, 0);
    this.#batches.push({ ...supply, at: 0, left });
    this.#stored += left;
    this.#received += left;
    this.#oldestMs = Math.min(this.#oldestMs, supply.requestedAtMs);
    this.#revoke();
    for (let over = this.size - this.#options.maxIds; over > 0; ) {
      if (this.#behind === 0) this.#open();
      const run = Math.min(over, this.#behind);
      this.#next[0] = (this.#next[0] as bigint) + BigInt(run) * this.#step;
      this.#behind -= run;
      this.#dropped += run;
      over -= run;
    }
  }

  /** Removes all IDs, which count as if they had never been here. */
  removeAll(): SuppliedBatch[] {
    this.#revoke();
    const ranges = [{ first: this.#next[0] as bigint, count: this.#behind }];
    const open = { ranges, step: this.#step, requestedAtMs: this.#requestedAtMs };
    const rest = this.#batches.map(({ at, ...batch }) => ({ ...batch, ranges: batch.ranges.slice(at) }));
    const all = this.#behind > 0 ? [open, ...rest] : rest;
    this.#received -= this.#remove(Number.POSITIVE_INFINITY);
    return all;
  }

  setLow(low: number): void {
    this.#low = low;
    this.#revoke();
  }

  /** Makes next() and take() throw this error from now on. */
  withhold(refusal: (count: number) => IdallocError): void {
    this.#refusal = refusal;
    this.#revoke();
  }

  /** Drops IDs older than maxAgeMs. */
  dropOld(): void {
    const { maxAgeMs, monotonicMs } = this.#options;
    const requestedFromMs = monotonicMs() - maxAgeMs;
    if (this.#oldestMs < requestedFromMs) this.#dropped += this.#remove(requestedFromMs);
  }

  /** Drops all IDs. */
  dropAll(): void {
    this.#dropped += this.#remove(Number.POSITIVE_INFINITY);
  }

  /** Removes what was requested before this time (monotonic). Returns how many IDs that was. */
  #remove(requestedFromMs: number): number {
    const before = this.size;
    if (this.#requestedAtMs < requestedFromMs) {
      this.#granted = 0;
      this.#behind = 0;
    }
    this.#batches = this.#batches.filter(({ requestedAtMs }) => requestedAtMs >= requestedFromMs);
    this.#stored = this.#batches.reduce((sum, { left }) => sum + left, 0);
    this.#oldestMs = this.oldestMs;
    return before - this.size;
  }

  #failure(error: IdallocError): IdallocError {
    this.#options.onFailure?.(error);
    return error;
  }

  #revoke(): void {
    this.#behind += this.#granted;
    this.#granted = 0;
  }

  /** Leaves at least one ID granted, or throws. */
  #grant(): void {
    if (this.#refusal !== undefined) throw this.#failure(this.#refusal(1));
    this.dropOld();
    if (this.#behind === 0 && this.#stored > 0) this.#open();
    const { size } = this;
    if (size <= this.#low) this.#options.onLow();
    if (this.#behind === 0) throw this.#failure(emptied(1));
    const most = size > this.#low ? Math.min(GRANT, size - this.#low) : GRANT;
    this.#granted = Math.min(this.#behind, most);
    this.#behind -= this.#granted;
  }

  /** Opens the first stored range after the last one was used up. */
  #open(): void {
    const [batch] = this.#batches;
    const range = batch?.ranges[batch.at];
    if (batch === undefined || range === undefined) throw new RangeError('there is no range to open');
    this.#next[0] = range.first;
    this.#step = batch.step;
    this.#requestedAtMs = batch.requestedAtMs;
    this.#behind = range.count;
    this.#stored -= range.count;
    batch.left -= range.count;
    batch.at += 1;
    if (batch.at === batch.ranges.length) this.#batches.shift();
  }
}

function emptied(count: number): IdallocError {
  const what = count === 1 ? 'no ID is' : `fewer than ${count} IDs are`;
  return new IdallocError(
    'BUFFER_EMPTY',
    `${what} in the buffer: wait with takeAsync, or increase coverSeconds or idsPerSecond`,
    { count },
  );
}

import type { IdRange } from '../core/generator.ts';
import { IdallocError } from '../errors.ts';

/** IDs as a reply lists them: never one by one. */
export interface Supply {
  readonly ranges: readonly IdRange[];
  readonly step: bigint;
  /** Monotonic time before which none of them existed. */
  readonly bornMs: number;
}

export interface StockOptions {
  /** Called when IDs are taken and no more are left than the low-water mark. */
  readonly onLow: () => void;
  readonly monotonicMs: () => number;
  /** Older IDs are dropped in place of being given out. */
  readonly maxAgeMs?: number | undefined;
}

interface Batch extends Supply {
  /** Next range to open. */
  at: number;
  /** IDs in the ranges from `at` on. */
  left: number;
}

/**
 * IDs that were fetched and not given out. Giving one out costs an addition and a comparison: `#granted` of them may go
 * before anything else has to be looked at, which is the end of a range, the low-water mark, or the age.
 *
 *   open range:  #next, and #granted + #behind IDs from there on;  #batches: whole ranges behind it
 */
export class IdStock {
  readonly #options: StockOptions;
  #next = 0n;
  #step = 1n;
  #granted = 0;
  #behind = 0;
  #bornMs = 0;
  /** No ID here was born before. */
  #oldestMs = Number.POSITIVE_INFINITY;
  #batches: Batch[] = [];
  /** IDs in #batches. */
  #stored = 0;
  #received = 0;
  #dropped = 0;
  #low = 0;
  #refusal: (() => IdallocError) | undefined;

  constructor(options: StockOptions) {
    this.#options = options;
  }

  /** How many IDs are there, with those that are too old but were not looked at since. */
  get size(): number {
    return this.#granted + this.#behind + this.#stored;
  }

  /** How many IDs were ever given out. */
  get taken(): number {
    return this.#received - this.#dropped - this.size;
  }

  /** The next ID. Throws IdallocError BUFFER_EMPTY, or why the stock is withheld. */
  next(): bigint {
    if (this.#granted === 0) this.#grant();
    this.#granted -= 1;
    const id = this.#next;
    this.#next = id + this.#step;
    return id;
  }

  /** The next `count` IDs, or none: throws as next(). */
  take(count: number): bigint[] {
    if (this.#refusal !== undefined) throw this.#refusal();
    return this.takeReserved(count);
  }

  /** The same, also while the stock is withheld from others. */
  takeReserved(count: number): bigint[] {
    this.dropOld();
    if (this.size < count) throw emptied(count);
    const ids = new Array<bigint>(count);
    for (let at = 0; at < count; ) {
      if (this.#granted + this.#behind === 0) this.#open();
      const run = Math.min(count - at, this.#granted + this.#behind);
      let id = this.#next;
      for (const end = at + run; at < end; at += 1) {
        ids[at] = id;
        id += this.#step;
      }
      this.#next = id;
      this.#behind += this.#granted - run;
      this.#granted = 0;
    }
    if (this.size <= this.#low) this.#options.onLow();
    return ids;
  }

  add(supply: Supply): void {
    const left = supply.ranges.reduce((sum, { count }) => sum + count, 0);
    this.#batches.push({ ...supply, at: 0, left });
    this.#stored += left;
    this.#received += left;
    this.#oldestMs = Math.min(this.#oldestMs, supply.bornMs);
    this.#revoke();
  }

  setLow(low: number): void {
    this.#low = low;
    this.#revoke();
  }

  /** Keeps next() and take() from giving anything, for this reason; undefined ends that. */
  withhold(refusal: (() => IdallocError) | undefined): void {
    this.#refusal = refusal;
    this.#revoke();
  }

  /** Drops what is older than maxAgeMs. */
  dropOld(): void {
    const { maxAgeMs, monotonicMs } = this.#options;
    if (maxAgeMs === undefined) return;
    const bornFrom = monotonicMs() - maxAgeMs;
    if (this.#oldestMs >= bornFrom) return;
    if (this.#bornMs < bornFrom) this.#dropOpen();
    const old = this.#batches.filter(({ bornMs }) => bornMs < bornFrom).reduce((sum, { left }) => sum + left, 0);
    this.#batches = this.#batches.filter(({ bornMs }) => bornMs >= bornFrom);
    this.#stored -= old;
    this.#dropped += old;
    this.#oldestMs = this.#batches.reduce((oldest, { bornMs }) => Math.min(oldest, bornMs), this.#openBornMs());
  }

  #dropOpen(): void {
    this.#dropped += this.#granted + this.#behind;
    this.#granted = 0;
    this.#behind = 0;
  }

  #openBornMs(): number {
    return this.#granted + this.#behind > 0 ? this.#bornMs : Number.POSITIVE_INFINITY;
  }

  #revoke(): void {
    this.#behind += this.#granted;
    this.#granted = 0;
  }

  /** Leaves at least one ID granted, or throws. */
  #grant(): void {
    if (this.#refusal !== undefined) throw this.#refusal();
    this.dropOld();
    if (this.#behind === 0 && this.#stored > 0) this.#open();
    const { size } = this;
    if (size <= this.#low) this.#options.onLow();
    if (this.#behind === 0) throw emptied(1);
    this.#granted = this.#grantable(size);
    this.#behind -= this.#granted;
  }

  #grantable(size: number): number {
    if (this.#options.maxAgeMs !== undefined) return 1;
    return size > this.#low ? Math.min(this.#behind, size - this.#low) : this.#behind;
  }

  /** Makes the first stored range the open one, in place of one that is used up. */
  #open(): void {
    const [batch] = this.#batches;
    const range = batch?.ranges[batch.at];
    if (batch === undefined || range === undefined) throw new RangeError('there is no range to open');
    this.#next = range.first;
    this.#step = batch.step;
    this.#bornMs = batch.bornMs;
    this.#behind = range.count;
    this.#stored -= range.count;
    batch.left -= range.count;
    batch.at += 1;
    if (batch.at === batch.ranges.length) this.#batches.shift();
  }
}

function emptied(count: number): IdallocError {
  const what = count === 1 ? 'there is no ID' : `there are fewer than ${count} IDs`;
  return new IdallocError(
    'BUFFER_EMPTY',
    `${what} in the buffer: wait for them with takeAsync, or give the buffer more coverSeconds or idsPerSecond`,
  );
}

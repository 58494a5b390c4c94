import { MAX_PLACES } from './items.ts';

/** How many runs of a level are merged into one of the next. */
export const FAN_IN = 8;
/** Runs of the last level are not merged. */
export const LEVELS = 4;
/** In production: the last level is as large as the place in an item allows. */
export const RUN_ENTRIES = MAX_PLACES / FAN_IN ** (LEVELS - 1);
/** The average number of items in a row of a run, 1 KiB. */
const ROW_PLACES = 128;

/**
 * Bits of a run's filter per place, by level. With 10 bits one look-up in a hundred reads a run in vain, with 16 one in
 * a thousand. Small runs get more: they are many of the runs to check, and hold few of the entries.
 */
const FILTER_BITS = [16, 14, 10, 10] as const;

/** The size of the runs of each level, in places and in rows. */
export class RunShape {
  readonly #entries: number;

  /** `entries`: the size of a run of the first level, a power of two up to RUN_ENTRIES. */
  constructor(entries: number) {
    if (!Number.isInteger(Math.log2(entries)) || entries > RUN_ENTRIES) {
      throw new RangeError(`the entries of a run must be a power of two up to ${RUN_ENTRIES}, not ${entries}`);
    }
    this.#entries = entries;
  }

  placesAt(level: number): number {
    return this.#entries * FAN_IN ** level;
  }

  filterBitsAt(level: number): number {
    return this.placesAt(level) * (FILTER_BITS[level] as number);
  }

  /** Each row has an equal part of all hashes; a row of one level covers a whole number of rows of the next. */
  rowsAt(level: number): number {
    return Math.max(1, this.placesAt(level) / ROW_PLACES);
  }
}

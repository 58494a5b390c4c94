import { MAX_PLACES } from './items.ts';

/** So many runs of a level become one of the next. */
export const FAN_IN = 8;
/** Runs of the last level are not merged any more. */
export const LEVELS = 4;
/** What ships: the last level is as large as the place in an item allows. */
export const RUN_ENTRIES = MAX_PLACES / FAN_IN ** (LEVELS - 1);
/** A row of a run has about so many items, 1 KiB. */
const ROW_PLACES = 128;

/**
 * Bits of a run's filter for each place, by level. With 10 of them one look-up in a hundred meets a run for nothing, with
 * 16 one in a thousand. The small runs are many of those that are asked, and hold few of the entries.
 */
const FILTER_BITS = [16, 14, 10, 10] as const;

/** How large the runs of each level are, in places and in rows. */
export class RunShape {
  readonly #entries: number;

  /** `entries` make a run of the first level: a power of two, RUN_ENTRIES at the most. */
  constructor(entries: number) {
    if (!Number.isInteger(Math.log2(entries)) || entries > RUN_ENTRIES) {
      throw new RangeError(`a run has a power of two of entries up to ${RUN_ENTRIES}, not ${entries}`);
    }
    this.#entries = entries;
  }

  placesAt(level: number): number {
    return this.#entries * FAN_IN ** level;
  }

  filterBitsAt(level: number): number {
    return this.placesAt(level) * (FILTER_BITS[level] as number);
  }

  /** Each row has an equal part of all hashes; those of one level are whole numbers of those of the next. */
  rowsAt(level: number): number {
    return Math.max(1, this.placesAt(level) / ROW_PLACES);
  }
}

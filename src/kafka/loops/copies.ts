/** How complete a member's copy of one partition is, in offsets of its log. */
export interface Copy {
  /** The offset after the last entry of the copy. */
  readonly end: number;
  /** The end of the log when the member last looked. */
  readonly logEnd: number;
}

/** By partition. */
export type CopyReport = ReadonlyMap<number, Copy>;

interface Holder {
  readonly copies: CopyReport;
}

/** Entries that may be appended to a partition between the reports of the first and the last member that joins. */
const WHILE_JOINING = 100_000;

/**
 * How many entries the members' copies lack. The end of a log is the highest that a member reports. A member without a
 * copy lacks the whole log, so of a short log every member is caught up.
 */
export class Lags {
  readonly #acceptableLag: number;
  readonly #logEnds = new Map<number, number>();

  constructor(holders: readonly Holder[], acceptableLag: number) {
    this.#acceptableLag = acceptableLag;
    for (const [partition, { logEnd }] of holders.flatMap(({ copies }) => [...copies])) {
      this.#logEnds.set(partition, Math.max(logEnd, this.#logEnds.get(partition) ?? 0));
    }
  }

  of({ copies }: Holder, partition: number): number {
    return (this.#logEnds.get(partition) ?? 0) - (copies.get(partition)?.end ?? 0);
  }

  /**
   * Members don't report at the same moment: of a growing log, one that joined earlier saw less. So a copy that was
   * complete when its member reported may lack what was appended while the others joined.
   */
  isCaughtUp(holder: Holder, partition: number): boolean {
    const lag = this.of(holder, partition);
    if (lag <= this.#acceptableLag) return true;
    const copy = holder.copies.get(partition);
    return copy !== undefined && copy.logEnd - copy.end <= this.#acceptableLag && lag <= WHILE_JOINING;
  }
}

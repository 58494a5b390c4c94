/** How far a member's copy of the state of one partition reaches, in offsets of the log that it is made from. */
export interface Copy {
  /** Behind the last entry that it holds. */
  readonly end: number;
  /** Where the log ended when the member looked. */
  readonly logEnd: number;
}

/** By partition. */
export type Copies = ReadonlyMap<number, Copy>;

interface Holder {
  /** Undefined when nothing is known of them. */
  readonly copies?: Copies | undefined;
}

/** Entries that may be appended to a partition from the first member's telling of its copies to the last one's. */
const WHILE_JOINING = 100_000;

/**
 * How many entries the members' copies lack. A log ends where the member that has seen most of it says, and who has no
 * copy lacks all of it, so that of a short log everybody is caught up.
 *
 * Who says nothing of its copies is taken to have them all: members of earlier releases do, and waiting for their copies
 * would never end.
 */
export class Lags {
  readonly #acceptableLag: number;
  readonly #logEnds = new Map<number, number>();

  constructor(holders: readonly Holder[], acceptableLag: number) {
    this.#acceptableLag = acceptableLag;
    for (const [partition, { logEnd }] of holders.flatMap(({ copies }) => [...(copies ?? [])])) {
      this.#logEnds.set(partition, Math.max(logEnd, this.#logEnds.get(partition) ?? 0));
    }
  }

  of({ copies }: Holder, partition: number): number {
    if (copies === undefined) return 0;
    return (this.#logEnds.get(partition) ?? 0) - (copies.get(partition)?.end ?? 0);
  }

  /**
   * Members don't tell of their copies at the same moment: of a log that grows, one that joined earlier knows less. So a
   * copy that had all of the log as its member saw it may lack what came while the others joined.
   */
  isCaughtUp(holder: Holder, partition: number): boolean {
    const lag = this.of(holder, partition);
    if (lag <= this.#acceptableLag) return true;
    const copy = holder.copies?.get(partition);
    return copy !== undefined && copy.logEnd - copy.end <= this.#acceptableLag && lag <= WHILE_JOINING;
  }
}

import { comparedWith, gapIn, type Held, lastRead, type Objection, type ReadEntry } from './log-checks.ts';
import type { LedgerRecord, LogBounds } from './ports.ts';

/**
 * How far a log was read, and whether it is the log that the copy was read from.
 *
 * Reading starts at an entry that is known: the last one that was read, or else that the index applied last. Own
 * entries are applied as soon as they are appended. Alone they would show nothing, since they may stand behind others
 * than those that were read. So the log is recognised once both are found.
 */
export class ReadPosition {
  /** Offset of the next record that the reader must deliver. */
  #expected = 0;
  #isRecognised = false;
  /** Entries below were already in the log when an empty copy started reading: a loss that they reveal is not new. */
  #acceptedBelow = 0;
  /** The last entry that was read, not only applied; undefined before the first. */
  #read: ReadEntry | undefined;

  get expected(): number {
    return this.#expected;
  }

  get isRecognised(): boolean {
    return this.#isRecognised;
  }

  get last(): ReadEntry | undefined {
    return this.#read;
  }

  get acceptedBelow(): number {
    return this.#acceptedBelow;
  }

  /** The log may have lost its tail and grown again. */
  doubt(): void {
    this.#isRecognised = false;
  }

  /** The copy was wiped or dropped. */
  forget(): void {
    this.doubt();
    this.#read = undefined;
  }

  /** Returns the offset to read from, given the bounds of the log. */
  begin({ low, high }: LogBounds, held: Held): number {
    this.#isRecognised = held.last === undefined || held.end === low;
    this.#acceptedBelow = held.last === undefined ? high : 0;
    this.#expected = Math.max(low, this.neededFrom(held));
    return this.#expected;
  }

  /** The lowest offset that must be read: that of an entry by which the log is recognised. */
  neededFrom({ end, last }: Held): number {
    const applied = last?.offset ?? end;
    return this.#isRecognised ? applied : Math.min(applied, this.#read?.offset ?? applied);
  }

  /** Compares records with what is known; those below `from` were not needed. Returns what speaks against the copy. */
  compare(records: readonly LedgerRecord[], from: number, { last }: Held): Objection | undefined {
    this.#expected = Math.max(this.#expected, from);
    const gap = gapIn(records, this.#expected, this.#acceptedBelow);
    if (gap !== undefined) return gap;
    for (const known of [this.#read, last]) {
      const found = comparedWith(known, records, this.#expected);
      if (typeof found === 'object') return found;
      if (found === 'same' && known === last) this.#isRecognised = true;
    }
    return undefined;
  }

  /** The records were applied. */
  passed(records: readonly LedgerRecord[], { last }: Held): void {
    this.#expected += records.length;
    this.#read = lastRead(records, last);
  }
}

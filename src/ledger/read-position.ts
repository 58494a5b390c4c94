import { digestEntry } from '../codec/ledger-key.ts';
import { describeError, type ErrorCode, IdallocError } from '../errors.ts';
import type { LedgerIndex, LedgerRecord, LogBounds } from './ledger-ports.ts';

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

/** Something in the log that can't be read, up to this offset. */
export interface Unreadable {
  readonly offset: number;
  readonly why: string;
  readonly cause?: unknown;
}

/** What speaks against a copy. */
export type Objection = { readonly loss: string } | { readonly unreadable: Unreadable };

/** The codes of an index whose store, not an entry, is unusable. */
const STORE_ERRORS: ReadonlySet<ErrorCode> = new Set(['INDEX_RESTORING', 'INDEX_UNUSABLE', 'STOPPING']);

/** What the bounds of a log show to be lost of a copy, when reading starts at its last entry. */
export function lossAtStart({ low, high }: LogBounds, { end, last }: Held): string | undefined {
  // Retention may have removed everything that the index has read; it is still complete if the log starts at its end.
  const isReadable = (last?.offset ?? end) >= low || end === low;
  if (end <= high && end >= low && isReadable) return undefined;
  return `the log spans ${low} to ${high} now, but was read up to ${end}`;
}

/**
 * What the bounds of a log show to be lost of what is still to be read: from `due` on, and up to `target`. Of a
 * partition that is stopped, how the log has lost what was unreadable at this offset.
 */
export function lossLater(
  { low, high }: LogBounds,
  {
    due,
    target,
    unreadable,
  }: { readonly due: number; readonly target: number; readonly unreadable: number | undefined },
): string | undefined {
  if (unreadable !== undefined) {
    if (unreadable < low) return `the log now starts at offset ${low}, after what could not be read`;
    return unreadable < high ? undefined : `the log now ends at offset ${high}, before what could not be read`;
  }
  if (due < low) return `the log now starts at offset ${low}, but ${due} was expected`;
  return target > high ? `the log now ends at offset ${high}, but ended at ${target} before` : undefined;
}

/**
 * An offset that does not continue from the one before it. Gaps below `acceptedBelow` that are no loss can't be read.
 */
function gapIn(records: readonly LedgerRecord[], expected: number, acceptedBelow: number): Objection | undefined {
  const at = records.findIndex(({ offset }, i) => offset !== expected + i);
  if (at === -1) return undefined;
  const found = records[at]?.offset ?? 0;
  const loss = `reading continued at offset ${found}, but ${expected + at} was expected`;
  // Between deliveries retention may have overtaken the reader; within one the log itself has the gap.
  if (at === 0 || expected + at >= acceptedBelow) return { loss };
  const why = `${loss}: the ledger topic was compacted, or another program wrote to it in transactions`;
  return { unreadable: { offset: found - 1, why } };
}

/** An entry by which a log is recognised. */
type KnownEntry = NonNullable<ReturnType<LedgerIndex['last']>>;

/** An entry that was read from the log. */
export type ReadEntry = KnownEntry & { readonly appendedAtMs: number };

/** What the index holds of a partition. */
export interface Held {
  readonly end: number;
  /** The last applied entry; undefined if none was applied since a wipe. */
  readonly last: KnownEntry | undefined;
}

/** Whether the log still has an entry; undefined if these records don't include its offset. */
function comparedWith(
  known: KnownEntry | undefined,
  records: readonly LedgerRecord[],
  expected: number,
): Objection | 'same' | undefined {
  const found = records[(known?.offset ?? -1) - expected];
  if (known === undefined || found === undefined) return undefined;
  if (digestEntry(found).equals(known.digest)) return 'same';
  return { loss: `the entry at offset ${found.offset} differs from the one that was applied before` };
}

/** The last of these records, to recognise the log by; `applied` is what the index applied last. */
function lastRead(records: readonly LedgerRecord[], applied: KnownEntry | undefined): ReadEntry | undefined {
  const last = records.at(-1);
  if (last === undefined) return undefined;
  const { offset, appendedAtMs } = last;
  const digest = offset === applied?.offset ? applied.digest : digestEntry(last);
  return { offset, digest, appendedAtMs };
}

/**
 * Applies records to the index. An entry that can't be applied stops its partition: deciding without it could allocate
 * a second batch. Bisection finds the entry. A failed store has reported itself, and has been replaced or has ended the
 * worker.
 */
export function applied(
  index: LedgerIndex,
  partition: number,
  records: readonly LedgerRecord[],
  acceptedBelow: number,
): Objection | undefined {
  try {
    const { lossAt } = index.apply(partition, records);
    if (lossAt === undefined || lossAt < acceptedBelow) return undefined;
    return { loss: `the writer of the entry at offset ${lossAt} had read a longer log` };
  } catch (cause) {
    if (cause instanceof IdallocError && STORE_ERRORS.has(cause.code)) return undefined;
    const half = Math.floor(records.length / 2);
    if (half === 0) return { unreadable: { offset: records[0]?.offset ?? 0, why: describeError(cause), cause } };
    return (
      applied(index, partition, records.slice(0, half), acceptedBelow) ??
      applied(index, partition, records.slice(half), acceptedBelow)
    );
  }
}

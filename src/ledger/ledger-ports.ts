import type { LedgerEntry } from '../codec/ledger-entry.ts';
import type { EntryKey } from '../codec/ledger-key.ts';
import type { RecordHeaders } from '../codec/request-headers.ts';
import type { SequenceRow } from '../core/sequence-row.ts';

/** The ports of the ledger. Offsets are whole numbers below 2^53; the adapters reject larger ones. */

/** One entry of a ledger partition. */
export interface LedgerRecord {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  /** The headers of a statement are part of it. */
  readonly headers?: RecordHeaders | undefined;
  /** The broker's clock when it appended the entry (LogAppendTime). */
  readonly appendedAtMs: number;
  /** The decoded value, if the writer is this process; saves decoding. */
  readonly entry?: LedgerEntry;
  /** The index's hash of the key, if the writer has looked it up; saves hashing. */
  readonly hash?: number | undefined;
}

/** The broker's response to an append. */
export interface Appended {
  readonly baseOffset: number;
  readonly appendedAtMs: number;
}

/** An entry to append, as bytes. */
export interface NewEntry {
  readonly key: Buffer | null;
  readonly value: Buffer;
  readonly headers?: RecordHeaders;
}

/** An entry to append, with what its value says. */
export interface Draft extends NewEntry {
  readonly entry: LedgerEntry;
  /** The index's hash of the key, if the writer has looked it up. */
  readonly hash?: number | undefined;
}

/** The writing side of the ledger topic. */
export interface LedgerLog {
  /**
   * Appends entries to one partition as one record batch, durably.
   * Rejects with APPEND_UNANSWERED for anything but exactly one good answer: the entries may or may not be in the log.
   */
  append(partition: number, entries: readonly NewEntry[]): Promise<Appended>;
  /**
   * The offset after the last entry of the partition, as the broker reports it now. If it is below `known`, it is
   * requested again for a while, since a deposed leader may report an old end.
   */
  endOffset(partition: number, known?: number): Promise<number>;
  /**
   * The offset after the last request of the partition, as the broker reports it now. If it is not above `known`, it is
   * requested again for a while, since a deposed leader may report an old end.
   */
  requestEnd(partition: number, known: number): Promise<number>;
}

/** The current bounds of a ledger partition: [low, high). */
export interface LogBounds {
  readonly low: number;
  readonly high: number;
}

/**
 * Reads entries back from the ledger, at the offsets that the index holds.
 */
export interface LedgerEntries {
  /**
   * The entries at these offsets, which are in rising order; offsets that retention has removed are missing in the
   * result. Rejects with LEDGER_UNANSWERED when the brokers don't answer in time, LEDGER_TRUNCATED when the log ends
   * before an offset and its leader confirms that, LEDGER_UNREADABLE when an entry can't be decoded.
   */
  read(partition: number, offsets: readonly number[]): Promise<ReadonlyMap<number, LedgerRecord>>;
}

/** Entries that are kept for a moment after they were read. */
export interface KeptEntries extends LedgerEntries {
  /** The log of the partition may have been replaced: drops what was read of it. */
  forget(partition: number): void;
}

/** The result of applying entries to an index. */
export interface Applied {
  /**
   * The last of them whose writer had read the log beyond the entry's own offset: the log was longer then, and the
   * entries in between are lost.
   */
  readonly lossAt?: number;
}

/**
 * Maps the hash of each key to the offsets of its entries, for each ledger partition from its origin to its end. The
 * entries themselves are read from the ledger.
 *
 * Retention removes the head of the log, and the index forgets it later, so neither knows everything. Two rules prevent
 * a second batch:
 *
 * - An entry records the `end` at which its writer looked up the key: below that, the key had no entry. If that end is
 *   below the origin, the key's first entry may be among the unknown ones, and the key is forgotten.
 * - Requests up to the horizon may have been decided by unknown entries and are never decided again. After a restore
 *   the horizon is the `through` of the first entry whose offset equals its own `end`: its writer had read everything
 *   that was trimmed. The horizon rises to the highest request offset among forgotten entries, and to the `through` of
 *   an entry whose writer had read what the log has since lost, and of a loss. A wipe never lowers it, because the log
 *   may have lost what was known before; only `disown` and an adoption do. Behind an adoption the offsets are those of
 *   the request topic that there is now: what earlier entries say of theirs no longer holds.
 *
 * A failed store throws INDEX_RESTORING or INDEX_UNUSABLE; it never returns a wrong answer.
 */
export interface LedgerIndex {
  /** The offset after the last entry applied. */
  end(partition: number): number;
  /** The start of the known part of the log; `placesOf` returns nothing below it. */
  origin(partition: number): number;
  /** The highest request offset in applied entries since an adoption, those before a wipe included; -1 for none. */
  through(partition: number): number;
  /**
   * Requests up to this offset may have been decided by unknown entries; -1 when there are none, undefined while
   * nothing in the log shows it.
   */
  horizon(partition: number): number | undefined;
  /** The offset of the last adoption of the log that was not read again after a wipe; -1 for none. */
  adoptedAt(partition: number): number;
  /**
   * What the last statement of a replay says: every request below this offset had been answered before, so an unknown
   * one was refused, or its decision is forgotten. 0 without a statement. A wipe does not lower it; only a later
   * statement, an adoption and `disown` do.
   */
  answeredBelow(partition: number): number;
  /**
   * The offsets of all entries whose key has the hash of this one, in rising order. So an empty result means that no
   * known entry has this key. An entry that is found nearly always has it; its key in the ledger must be compared.
   */
  placesOf(partition: number, key: Buffer): readonly number[];
  /** The hash of a key, for `placesAt`: the same until the store is replaced, which restores all copies. */
  hashOf(key: EntryKey): number;
  /** `placesOf` the keys with this hash. */
  placesAt(partition: number, hash: number): readonly number[];
  /**
   * Applies entries in log order; those below the end are skipped. All or nothing. Rejects with LEDGER_UNREADABLE for
   * an entry that is not a valid ledger entry, and with LEDGER_TRUNCATED for a gap.
   *
   * `firsts` gets the offsets of those that are known without reading the ledger to hold the first entry of their key:
   * no earlier entry has the key's hash, and the entry's writer had read up to the origin.
   */
  apply(partition: number, records: readonly LedgerRecord[], firsts?: Set<number>): Applied;
  /** Forgets all entries of a partition, but not its horizon, to restore it from a log that starts at `from`. */
  wipe(partition: number, from: number): void;
  /** Forgets the requests that were decided before the wipe that follows: they were those of another topic. */
  disown(partition: number): void;
  /**
   * Forgets some of the entries below `low`, the current start of the log; returns true while there is more to do. Some
   * may stay known. Nothing is forgotten while the horizon is unknown.
   */
  expire(partition: number, low: number): boolean;
  /**
   * The time since which all decisions are known, by the brokers' clocks in milliseconds; 0 for always, undefined while
   * no applied entry shows it.
   */
  since(partition: number): number | undefined;
  /** Everything that the index does not know was appended before this time: `since` is no later from now on. */
  missedBefore(partition: number, timeMs: number): void;
  /**
   * What the entries applied since the last wipe say of a sequence; undefined if they don't mention it, or only in
   * numbers.
   */
  sequence(partition: number, name: string): SequenceRow | undefined;
  /** All such sequences of the partition. */
  sequences(partition: number): Iterable<readonly [name: string, row: SequenceRow]>;
  /** The last applied entry, by which the log is recognised; undefined when none was applied since the wipe. */
  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined;
}

/** The index on disk: a copy for each partition that this worker owns or stands by for. */
export interface LedgerCopies extends LedgerIndex, Disposable {
  /** The partitions of which the disk holds a copy, loaded or not, in rising order. */
  held(): readonly number[];
  /**
   * Does some of the work of opening the copy of a partition, or of creating an empty one; returns true while there is
   * more to do. Until then the partition may not be queried. Does nothing for a loaded copy.
   */
  load(partition: number): boolean;
  /**
   * Does some of the work of deleting the copy of a partition, its horizon included; returns true while there is more
   * to do. The first call unloads it.
   */
  drop(partition: number): boolean;
  /**
   * Writes to disk what was applied to a partition and is in memory alone; returns whether there was anything. A crash
   * loses that, and it is read from the ledger again.
   */
  save(partition: number): boolean;
  /**
   * Resolves when all that was written before survives a power failure, too. The index is used meanwhile, and may be
   * closed.
   */
  sync(): Promise<void>;
}

/** Does a step of a part and measures how long it takes, whether or not it succeeds. */
export type TimeStep = <T>(
  step: 'swap' | 'append' | 'settle' | 'reply' | 'forward' | 'dead_letter',
  work: () => Promise<T>,
) => Promise<T>;

/** The progress of the copy of a ledger partition. */
export interface CopyProgress {
  readonly state: 'restoring' | 'following' | 'stopped';
  /** The copy is known to belong to this log; until then it may belong to another one. */
  readonly isRecognised: boolean;
  /** The start of the log when reading began. */
  readonly low: number;
  /** The offset after the last entry that it has. */
  readonly end: number;
  /** The last known end of the log. */
  readonly logEnd: number;
}

import type { LedgerEntry } from '../codec/ledger-entry.ts';
import type { RecordHeaders } from '../codec/request-headers.ts';
import type { IdRange } from '../core/generator.ts';
import type { WallMs } from '../core/units.ts';
import type { IdallocError } from '../errors.ts';

/**
 * What the pipeline needs from outside: batches come in through its entry point, and everything else goes through these
 * ports. Offsets are whole numbers below 2^53; the adapters refuse larger ones.
 */

/** One record of the request topic, nothing of it trusted yet. */
export interface RequestRecord {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: RecordHeaders;
  readonly timestampMs: number;
}

/** What a schema registry has told so far about the ids that stand for schemas in Confluent framing. */
export interface SchemaIds {
  /**
   * Looks up those of the ids that are not known, and the reply's. Rejects with SCHEMA_REGISTRY_UNAVAILABLE while it is
   * worth waiting; resolves without knowing them when the registry has been silent for too long.
   */
  learn(ids: ReadonlySet<number>): Promise<void>;
  /** Whether an id stands for a schema of requests; undefined when that is not known. */
  isRequest(id: number): boolean | undefined;
  /** The id of the replies' schema. */
  replyId(): number | undefined;
}

/** One entry as it stands in a ledger partition. */
export interface LedgerRecord {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  /** The broker's clock when it appended the entry (LogAppendTime). */
  readonly appendedAtMs: number;
  /** What the value says, where whoever wrote it is at hand: it need not be decoded then. */
  readonly entry?: LedgerEntry;
}

/** The broker's answer to an append. */
export interface Appended {
  readonly baseOffset: number;
  readonly appendedAtMs: number;
}

/** The writing side of the ledger topic. */
export interface LedgerLog {
  /**
   * Appends entries to one partition as one record batch, durably.
   * Rejects with APPEND_UNANSWERED for anything but exactly one good answer: the entries may or may not be in the log.
   */
  append(partition: number, entries: readonly { key: Buffer | null; value: Buffer }[]): Promise<Appended>;
  /** The offset after the last entry of the partition, as the broker tells it now. */
  endOffset(partition: number): Promise<number>;
  /**
   * The offset after the last request of the request topic's partition, as the broker tells it now; asked for once more,
   * and for a while, where it is not above `known`, since a leader that was deposed may not know it yet.
   */
  requestEnd(partition: number, known: number): Promise<number>;
}

/** How far a ledger partition reaches now: [low, high). */
export interface LogBounds {
  readonly low: number;
  readonly high: number;
}

/**
 * Reads entries back from the ledger, which is the store: the index says where they lie.
 */
export interface LedgerEntries {
  /**
   * The entries at these offsets, which rise; an offset is missing in the answer when the log no longer reaches there.
   * Rejects with LEDGER_UNANSWERED when the brokers don't answer in time, LEDGER_TRUNCATED when the log ends before an
   * offset and its leader goes on to say so, LEDGER_UNREADABLE when an entry can't be decoded.
   */
  read(partition: number, offsets: readonly number[]): Promise<ReadonlyMap<number, LedgerRecord>>;
}

/** What an index found in the entries that it applied. */
export interface Applied {
  /**
   * The last of them whose writer had read the log beyond the entry's own place: the log was longer then, and what lay
   * between is lost.
   */
  readonly lossAt?: number;
}

/**
 * Where the entries of each ledger partition lie, from its origin to its end, by the hash of their keys. What they say is
 * read from the ledger.
 *
 * The head of the log goes by retention, and the index forgets it as well, in its own time; so it knows less than all.
 * Two rules keep it from giving a second batch:
 *
 * - An entry tells at which `end` its writer looked its key up: below that, there was no entry for the key. If that end
 *   lies below the origin, the key's first entry may be among what is not known, and the key is forgotten.
 * - Requests up to the horizon may have been decided by entries that are not known, and are never decided again. After
 *   a restore the horizon is the `through` of the first entry that lies at its own `end`: its writer had read all that
 *   was trimmed. It rises to the highest request offset among the entries that are forgotten, and to the `through` of
 *   an entry whose writer had read what the log has lost since. After a wipe it is no less than what was known before:
 *   the log may have lost it.
 *
 * A store that fails refuses with INDEX_RESTORING or INDEX_UNUSABLE, never with an answer.
 */
export interface LedgerIndex {
  /** The offset after the last entry applied. */
  end(partition: number): number;
  /** Where the part of the log begins that is known. Nothing below is ever named by `placesOf`. */
  origin(partition: number): number;
  /** The highest request offset that the applied entries tell of, those from before a wipe included; -1 for none. */
  through(partition: number): number;
  /**
   * Requests up to this offset may have been decided by entries that are not known: -1 when there are none. Undefined while
   * nothing in the log tells.
   */
  horizon(partition: number): number | undefined;
  /**
   * The offsets of all entries whose key has the hash of this one, in rising order. So none means that no entry that is
   * known has this key; one that is named has it nearly always, which its key in the ledger tells.
   */
  placesOf(partition: number, key: Buffer): readonly number[];
  /**
   * Applies entries in log order; those below the end are skipped. All or nothing. Rejects with LEDGER_UNREADABLE for an
   * entry that is none of ours, and with LEDGER_TRUNCATED for a hole.
   */
  apply(partition: number, records: readonly LedgerRecord[]): Applied;
  /**
   * Which offsets, of entries that were applied, hold the first entry of their key as far as can be told without reading
   * the ledger: no earlier entry has the key's hash, and the entry's writer had read up to the origin.
   */
  firsts(partition: number, records: readonly LedgerRecord[]): ReadonlySet<number>;
  /** Forgets all entries of a partition, to be restored from a log that starts at `from`; not how far it was decided. */
  wipe(partition: number, from: number): void;
  /**
   * Does some of the work of forgetting what lies below `low`, where the log starts now; true while there is more to do.
   * Some of it may stay known. Nothing is forgotten while there is no horizon to tell of it.
   */
  expire(partition: number, low: number): boolean;
  /**
   * Since when all decisions are known, by the brokers' clocks in milliseconds: 0 for ever. Undefined while no entry was
   * applied that tells.
   */
  since(partition: number): number | undefined;
  /** The last applied entry, by which the log is recognised; absent when nothing was applied since the wipe. */
  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined;
}

/** The index as it lies on a disk: a copy for each partition that this worker owns or stands by for. */
export interface LedgerCopies extends LedgerIndex, Disposable {
  /** The partitions of which the disk holds a copy, loaded or not, in rising order. */
  held(): readonly number[];
  /**
   * Does some of the work of opening the copy of a partition, an empty one where there is none; true while there is more
   * to do. Before that is done, nothing else may be asked of the partition. A copy that is loaded stays so.
   */
  load(partition: number): boolean;
  /**
   * Does some of the work of deleting the copy of a partition, all that was known of it included; true while there is more
   * to do. It is not loaded any more from the first call on.
   */
  drop(partition: number): boolean;
}

/** The reading side of the ledger, which keeps the index growing. */
export interface LedgerFollower {
  /** Resolves once the index has applied everything of the partition below `offset`; rejects when it can't in time. */
  reached(partition: number, offset: number): Promise<void>;
  /** Why the index can't be asked about the partition now; undefined when it can. */
  refusal(partition: number): IdallocError | undefined;
  /** Rises whenever the partition is to be restored: what was looked up before is of another state of the log. */
  epoch(partition: number): number;
  /**
   * Reads nothing more of the partition until the returned function is called, which may be called more than once: an
   * append is under way, and what it wrote is known better from its answer than from the log.
   */
  hold(partition: number): () => void;
  /** The log contradicts the index: forget the partition and restore it from the log. */
  invalidate(partition: number, cause: string): void;
}

/** A record to be published. Without a partition it goes where its key's hash says. */
export interface OutgoingRecord {
  readonly topic: string;
  readonly partition?: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: RecordHeaders;
  readonly timestampMs?: number;
}

/** What became of one record: delivered, or why not, and whether that is the record's fault or its topic's. */
export type Delivery =
  | { readonly ok: true }
  | { readonly ok: false; readonly reason: string; readonly fault: 'record' | 'topic' };

/** The writing side of reply topics and of the dead-letter topic. */
export interface Publisher {
  /**
   * Publishes durably; answers for each record, in order. A topic's own fault (missing, too large, not allowed) fails
   * that topic's records alone; a passing fault rejects, and nothing is known of any of them.
   */
  publish(records: readonly OutgoingRecord[]): Promise<readonly Delivery[]>;
}

/** IDs for one request, and the evidence of who gave them. */
export interface Allocation {
  readonly ranges: readonly IdRange[];
  readonly workerId: number;
  readonly fence: bigint;
  readonly generatedAt: WallMs;
}

/** The only way to new IDs: clock, lease and ceiling are checked inside. */
export interface Allocator {
  /**
   * One allocation for each count, in order. Waits for ticks where the clock must move on first.
   * Rejects with the code of the refusal; whatever was taken until then is a gap.
   */
  allocate(counts: readonly number[]): Promise<readonly Allocation[]>;
}

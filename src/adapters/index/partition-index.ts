import type { DatabaseSync } from 'node:sqlite';
import { changesSequence, countsAt, type LedgerPosition, readLedgerPosition } from '../../codec/ledger-entry.ts';
import { digestEntry, EntryKey, readLedgerKey } from '../../codec/ledger-key.ts';
import { isAdoption, readReplay } from '../../codec/request-position.ts';
import { afterRecord, hidesDecisions } from '../../core/sequence-row.ts';
import { IdallocError } from '../../errors.ts';
import type { Applied, LedgerRecord } from '../../ledger/ledger-ports.ts';
import { type HashSeed, hashKey } from './items.ts';
import type { OpenRun } from './open-run.ts';
import { EMPTY_STATE, type SavedState, type State } from './partition-state.ts';
import { highestRequest, type SealedRuns } from './sealed-runs.ts';
import type { SequenceTable } from './sequence-table.ts';
import { inTransaction, keptWhole } from './store.ts';

/** The loaded parts of a partition. */
export interface PartitionParts {
  readonly state: State;
  readonly saved: SavedState;
  /** From the end of the last sealed run to the end of the partition. */
  readonly open: OpenRun;
  /** From the origin on. */
  readonly runs: SealedRuns;
  readonly sequences: SequenceTable;
}

/** Records that follow each other, and what the index takes from each. */
interface Readings {
  readonly records: readonly LedgerRecord[];
  readonly positions: readonly LedgerPosition[];
  /** What is known of sequences changes with these records; by offset. */
  readonly changes: ReadonlyMap<number, SequenceChange>;
  /** The statements of replays among them; by offset. */
  readonly replays: ReadonlyMap<number, number>;
  /** The offsets of the adoptions among them. */
  readonly adoptions: ReadonlySet<number>;
}

/** A record that changes what is known of a sequence. */
interface SequenceChange {
  readonly name: string;
  readonly position: Extract<LedgerPosition, { readonly kind: 'numbers' | 'statement' }>;
  readonly place: { readonly offset: number; readonly appendedAtMs: number };
}

/** IDs are allocated so shortly before their entry is appended: the clocks of the worker and of the broker agreed. */
const AGREED_MS = 5_000;

/**
 * The index of one loaded partition. It maps the hash of a key to offsets: OpenRun for the run that is being filled,
 * SealedRuns for the runs before. Only whole runs are dropped, so the origin is always the start of a run.
 */
export class PartitionIndex {
  /** Records alone change it. */
  readonly sequences: SequenceTable;
  readonly #db: DatabaseSync;
  readonly #partition: number;
  readonly #seed: HashSeed;
  readonly #saved: SavedState;
  readonly #open: OpenRun;
  readonly #runs: SealedRuns;
  readonly #misses = new Misses();
  #state: State;
  /**
   * Set by a wipe: when the last entry before it was appended. Nothing that was lost then is newer than this or the
   * log.
   */
  #floorMs: number | undefined;
  /** The `since` that was compared with a trusted clock. */
  #judged: number | undefined;

  constructor(db: DatabaseSync, partition: number, parts: PartitionParts, seed: HashSeed) {
    const { state, saved, open, runs, sequences } = parts;
    this.#db = db;
    this.#partition = partition;
    this.#seed = seed;
    this.#state = state;
    this.#saved = saved;
    this.#open = open;
    this.#runs = runs;
    this.sequences = sequences;
  }

  get end(): number {
    return this.#state.end;
  }

  get state(): State {
    return this.#state;
  }

  get horizon(): number | undefined {
    return this.#state.anchored ? this.#state.horizon : undefined;
  }

  get last(): { readonly offset: number; readonly digest: Buffer } | undefined {
    const { end, digest } = this.#state;
    return digest === undefined ? undefined : { offset: end - 1, digest };
  }

  placesAt(hash: number): readonly number[] {
    const found: number[] = [];
    this.#runs.find(hash, this.#misses.endOf(hash), found);
    this.#open.find(hash, found);
    if (found.length === 0) this.#misses.add(hash, this.end);
    return found;
  }

  /**
   * Reads all records before it adds any: an unreadable entry leaves the index unchanged. A transaction costs as much
   * as 15 entries, so these are in memory until it pays.
   */
  apply(records: readonly LedgerRecord[], firsts?: Set<number>): Applied {
    const fresh = records.filter((record) => record.offset >= this.end);
    const last = fresh.at(-1);
    if (last === undefined) return {};
    const { records: _, positions, ...statements } = readRecords(this.#partition, fresh);
    this.#requireWhole(fresh);
    const add = () => {
      for (let at = 0; at < fresh.length; ) {
        const left = this.#open.limit - this.end;
        const some = {
          records: fresh.slice(at, at + left),
          positions: positions.slice(at, at + left),
          ...statements,
        };
        this.#fill(some, firsts);
        at += left;
      }
      const appended = shownMs(positions.at(-1) as LedgerPosition, last);
      this.#state = { ...this.#state, digest: digestEntry(last), appended };
    };
    if (this.#open.isDue(this.end + fresh.length)) this.#commit(add);
    else keptWhole(add);
    const lost = fresh.findLast(({ offset }, i) => (positions[i] as LedgerPosition).end > offset);
    return lost === undefined ? {} : { lossAt: lost.offset };
  }

  #requireWhole(fresh: readonly LedgerRecord[]): void {
    const hole = fresh.findIndex(({ offset }, i) => offset !== this.end + i);
    if (hole === -1) return;
    const message = `ledger partition ${this.#partition} continues at offset ${fresh[hole]?.offset}, but ${this.end + hole} was expected`;
    throw new IdallocError('LEDGER_TRUNCATED', message);
  }

  /** Adds records to the open run, which has room for them, and seals it when it is full. */
  #fill(some: Readings, firsts: Set<number> | undefined): void {
    this.#read(some, firsts);
    if (this.end === this.#open.limit) this.#seal();
  }

  /** Updates the state in memory from these entries. */
  #read({ records, positions, changes, replays, adoptions }: Readings, firsts: Set<number> | undefined): void {
    const { origin } = this.#state;
    let { end, through, horizon, answeredBelow, anchored, since, recent, opened, adopted } = this.#state;
    for (const [i, record] of records.entries()) {
      const position = positions[i] as LedgerPosition;
      // A void record of a sequence decides nothing; its writer's knowledge holds all the same.
      const isDecision = position.requestOffset !== undefined && countsAt(position, record.offset);
      const requestOffset = isDecision ? position.requestOffset : -1;
      // Read again after a wipe, it is a marker like any other: what the copy knows from after it holds.
      if (adoptions.has(record.offset) && record.offset > adopted) {
        [through, horizon, answeredBelow, recent, adopted] = [-1, -1, 0, -1, record.offset];
        this.#runs.forgetRequests();
      }
      const change = changes.get(record.offset);
      const isHiding = change !== undefined && this.#change(change);
      const isCovered = coversLoss(position, record.offset, anchored);
      if (isHiding || isCovered) horizon = Math.max(horizon, position.through);
      anchored ||= isCovered;
      // Lost entries were appended before this one, and after the last known one at the latest.
      const timeMs = shownMs(position, record);
      if (since === undefined || isHiding || position.end > record.offset)
        since = Math.max(since ?? this.#state.appended, timeMs);
      else since = this.#lowered(since, position, record);
      through = Math.max(through, position.through, requestOffset);
      recent = Math.max(recent, requestOffset);
      answeredBelow = replays.get(record.offset) ?? answeredBelow;
      end += 1;
      if (!isDecision || record.key === null) continue;
      opened ??= timeMs;
      const hash = record.hash ?? hashKey(EntryKey.of(record.key), this.#seed);
      // Before it is sealed: a run on disk is read for every key that it holds.
      if (firsts !== undefined && position.end >= origin && this.placesAt(hash).length === 0) firsts.add(record.offset);
      this.#open.add(hash, record.offset);
    }
    this.#state = { ...this.#state, end, through, horizon, answeredBelow, anchored, since, recent, opened, adopted };
  }

  /**
   * The time since which all is known, given an entry of the log that is being restored. What is gone was appended
   * before the entry, too, and before its IDs were allocated, if its writer had read all that is before it. So one
   * broker whose clock was ahead does not decide this time.
   *
   * Only if both times of the entry agree: a renewal has the IDs of long ago, so that nothing but a broker shows its
   * time.
   */
  #lowered(since: number, { end, batch }: LedgerPosition, { offset, appendedAtMs }: LedgerRecord): number {
    if (this.#floorMs === undefined || batch === undefined || end !== offset) return since;
    if (Math.abs(appendedAtMs - batch.generatedAtMs) > AGREED_MS) return since;
    return Math.min(since, Math.max(appendedAtMs, batch.generatedAtMs, this.#floorMs));
  }

  /**
   * Everything that is not known was appended before this time. Saved at once: after a restart the time would be a
   * later one. Each `since` is compared once: clocks that all go back later must not lower it.
   */
  missedBefore(timeMs: number): void {
    const { since } = this.#state;
    if (since === undefined || since === this.#judged) return;
    this.#judged = Math.min(since, timeMs);
    if (since <= timeMs) return;
    this.#commit(() => {
      this.#state = { ...this.#state, since: timeMs };
    });
  }

  #seal(): void {
    const { end, recent, opened } = this.#state;
    const unsaved = this.#open.unsaved(end);
    this.#runs.seal(this.#open.sorted(), { first: this.#open.first, end, requests: recent, appended: opened });
    this.#open.restart(end);
    this.#state = { ...this.#state, recent: -1, opened: undefined };
    this.#runs.merge(unsaved);
  }

  /** Returns whether earlier decisions may be gone. */
  #change({ name, position, place }: SequenceChange): boolean {
    const row = this.sequences.rows.get(name);
    this.sequences.set(name, afterRecord(row, position, place));
    return hidesDecisions(row, position, position.through);
  }

  /** Writes what is in memory alone; returns whether there was anything. */
  save(): boolean {
    if (this.#open.unsaved(this.end) === 0) return false;
    this.#commit(() => undefined);
    return true;
  }

  wipe(from: number): void {
    const { through, answeredBelow, appended, adopted } = this.#state;
    this.#floorMs = appended;
    this.#commit(() => {
      this.#runs.forgetBelow(Number.POSITIVE_INFINITY);
      this.#open.restart(from);
      this.#misses.clear();
      this.sequences.clear();
      const since = from === 0 && through === -1 ? 0 : undefined;
      const known = { through, horizon: through, answeredBelow, anchored: from === 0, since, appended, adopted };
      this.#state = { ...EMPTY_STATE, ...known, end: from, origin: from };
    });
  }

  disown(): void {
    this.#commit(() => {
      this.#state = { ...this.#state, through: -1, horizon: -1, answeredBelow: 0, anchored: false, adopted: -1 };
    });
  }

  /** Drops whole runs below an offset, then deletes some of what was dropped. True while there is more to delete. */
  expire(low: number): boolean {
    const forgotten = this.#runs.below(low);
    const origin = forgotten.at(-1)?.end;
    if (origin !== undefined && this.#state.anchored) {
      const { opened, appended } = this.#state;
      const horizon = Math.max(this.#state.horizon, highestRequest(forgotten));
      const oldest = this.#runs.appendedFrom(origin) ?? opened ?? appended;
      const since = Math.max(this.#state.since ?? 0, oldest);
      this.#commit(() => {
        this.#runs.forgetBelow(origin);
        this.#state = { ...this.#state, origin, horizon, since };
      });
    }
    let hasMore = false;
    inTransaction(this.#db, () => {
      hasMore = this.#runs.sweep();
    });
    return hasMore;
  }

  /** Entries and state change in one transaction: an end without its entries would make the index lie. */
  #commit(change: () => void): void {
    inTransaction(this.#db, () => {
      change();
      const unsaved = this.#open.unsaved(this.end);
      this.#open.save(this.end);
      this.#runs.merge(unsaved);
      this.sequences.save();
      this.#state = { ...this.#state, sequences: this.sequences.rows.size };
      this.#saved.save(this.#state);
    });
  }
}

/**
 * When an entry was appended: by the broker's clock, or by its writer's, which allocated its IDs before. The later one,
 * since a broker whose clock is behind must not make what is gone look older than it was.
 */
function shownMs({ batch }: LedgerPosition, { appendedAtMs }: LedgerRecord): number {
  return Math.max(appendedAtMs, batch?.generatedAtMs ?? 0);
}

/**
 * Whether the `through` of an entry covers everything that may be missing from the log. Its writer had read the log up
 * to `end`: if that is the entry's own offset, it had read what was trimmed; if that is above, the entries between are
 * lost.
 */
function coversLoss({ end }: LedgerPosition, offset: number, anchored: boolean): boolean {
  return end > offset || (end === offset && !anchored);
}

/** Throws LEDGER_UNREADABLE for a record that is no entry of a ledger. */
function readRecords(partition: number, records: readonly LedgerRecord[]): Readings {
  const changes = new Map<number, SequenceChange>();
  const replays = new Map<number, number>();
  const adoptions = new Set<number>();
  const positions = records.map((record) => {
    const position = positionOf(partition, record);
    const change = changeBy(partition, position, record);
    if (change !== undefined) changes.set(record.offset, change);
    const below = readReplay(record);
    if (below !== undefined) replays.set(record.offset, below);
    if (isAdoption(record)) adoptions.add(record.offset);
    return position;
  });
  return { records, positions, changes, replays, adoptions };
}

function positionOf(partition: number, record: LedgerRecord): LedgerPosition {
  if (record.value === null) throw foreign(partition, record, 'no value');
  const position: LedgerPosition = record.entry ?? readLedgerPosition(record.value, record.headers);
  if (position.requestOffset !== undefined && record.key === null) throw foreign(partition, record, 'no key');
  return position;
}

/** Undefined for entries of IDs, void records and renewals. */
function changeBy(partition: number, position: LedgerPosition, record: LedgerRecord): SequenceChange | undefined {
  if (position.kind !== 'numbers' && position.kind !== 'statement') return undefined;
  const { key, offset, appendedAtMs } = record;
  const read = key === null ? undefined : readLedgerKey(key);
  if (read?.kind !== position.kind)
    throw foreign(partition, record, `${position.kind} of a sequence under another key`);
  if (!changesSequence(position, offset)) return undefined;
  return { name: read.sequence, position, place: { offset, appendedAtMs } };
}

function foreign(partition: number, record: LedgerRecord, what: string): IdallocError {
  return new IdallocError(
    'LEDGER_UNREADABLE',
    `ledger partition ${partition} has an entry with ${what} at offset ${record.offset}: another program writes to the ledger topic`,
  );
}

const MISSES = 4_096;
/** A hash is a natural number, so no slot is mistaken for one. */
const NONE = -1;

/**
 * The hashes that were not found lately, each with the end that the index had then.
 *
 * A new request is looked up when it is read, and again when its entry is applied. The second time only what was added
 * meanwhile can hold it. A hash shares its slot with others, and the last one stays: a forgotten one costs a search.
 */
class Misses {
  /** By slot. A copy that only follows the log is never asked, and has none. */
  #slots: { readonly hashes: Float64Array; readonly ends: Float64Array } | undefined;

  /** No entry below this offset has the hash. */
  endOf(hash: number): number {
    const slot = hash % MISSES;
    return this.#slots?.hashes[slot] === hash ? (this.#slots.ends[slot] as number) : 0;
  }

  add(hash: number, end: number): void {
    this.#slots ??= { hashes: new Float64Array(MISSES).fill(NONE), ends: new Float64Array(MISSES) };
    const slot = hash % MISSES;
    this.#slots.hashes[slot] = hash;
    this.#slots.ends[slot] = end;
  }

  clear(): void {
    this.#slots = undefined;
  }
}

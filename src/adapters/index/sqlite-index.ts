import { EntryKey } from '../../codec/ledger-key.ts';
import type { SequenceRow } from '../../core/sequence-row.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { Applied, LedgerCopies, LedgerRecord } from '../../ledger/ledger-ports.ts';
import { type HashSeed, hashKey, randomSeed } from './items.ts';
import { openOrReplace } from './kept-stores.ts';
import { dropPartition, loadPartition } from './partition-copy.ts';
import type { PartitionIndex } from './partition-index.ts';
import { partitionsIn } from './partition-state.ts';
import { RUN_ENTRIES, RunShape } from './runs.ts';
import {
  isStoreError,
  lockDirectory,
  openError,
  replaceStore,
  type Store,
  type StoreOptions,
  type SyncFile,
  sqliteResult,
  syncData,
} from './store.ts';

/**
 * The index of the ledger.
 *
 * Every request asks the same question first: was its key decided before, and where? The answer is in the ledger, but
 * a log is found by offset and not by key. So for each partition that a worker serves or stands by for, it keeps a map
 * from keys to offsets. A day at 10,000 requests a second makes a billion entries, so the map must be on disk, take
 * hardly any memory, and be faster than the requests arrive.
 *
 * The trap is that keys are random. Whatever keeps them in their order on disk, as a B-tree does, changes another page
 * for each key: SQLite's and LMDB's own tables took some 40,000 keys a second. Whatever keeps them in memory takes
 * dozens of bytes for each. And nearly all keys are new: most look-ups are for something that is nowhere, which is
 * what a map answers last, after it has looked everywhere.
 *
 * Three ideas avoid that.
 *
 * First, the map holds no keys. It has 43 bits of a keyed hash and 21 bits that say where in its run the entry is: 8
 * bytes. Two keys may share a hash, so whoever finds an offset reads the entry from the ledger and compares the key.
 * An empty answer needs no comparison: it is certain. (`items`)
 *
 * Second, nothing is written in the order of keys until there is much of it. The newest 4,096 entries are in memory
 * (`open-run`). When they are full they become a run: sorted by hash, written once, never changed. Eight runs become
 * one of the next level, a few rows at a time, while new entries come in, and there are four levels. So each entry is
 * written five times, always one after another, and a partition has at most some 30 small runs. Runs of the last
 * level, of two million entries each, stay as they are until the ledger's retention removes what they point to.
 * (`sealed-runs`, `runs`)
 *
 * Third, a key that is nowhere is recognised in memory, by a fingerprint for each entry, which says 'not here' for all
 * but one key in 16,000 (`fingerprints`). Only then a row of the run, one kilobyte, is read and searched. The
 * fingerprints are nearly all the memory that the index takes: 2.3 to 3 bytes for each entry. The last level has a run
 * more for every two million entries, so those of up to 64 runs of a level lie together, and a look-up reads two places
 * for all of them (`level-filter`). So a look-up costs about a microsecond in a partition of two million entries, and
 * less than twice that in one of a hundred million, since no processor's cache holds so many.
 *
 * What a crash leaves: the index of a little while ago. Entries are added in memory, and written together with the
 * offset after them in one transaction: when a quarter of a run is unwritten, by `save` (each second), and when the
 * index is closed. So the file is always in a state in which the index once was, and the reader goes on from there. A
 * merge that was not finished counts for nothing, and starts again. After a power failure it is the state of the last
 * `sync`, or a later one. Nothing in it is the only copy of anything: a file that is missing or damaged is replaced by
 * an empty one, and the ledger is read again.
 *
 * That leaves one danger, a file that lies. SQLite notices damage to the structure of its pages, but not to their
 * content. A key that is no longer found would be decided a second time, and its second entry would then be the first
 * one that this index knows. So every row has a checksum which is compared when the row is read, over its number and
 * table as well, so that missing and exchanged rows are noticed: the items, the filters and the descriptions of runs,
 * the state of a partition, the open run, and the seed of the hash.
 */

/** Raised when the tables change: an index of another format is wiped, since it can be restored from the ledger. */
const FORMAT = 16;

/** The ledger that an index belongs to; any difference makes its content worthless. */
export interface IndexBinding {
  readonly clusterId: string;
  readonly ledgerTopic: string;
  readonly partitions: number;
}

export interface IndexEvents {
  /** The whole store was wiped, for this reason: all partitions have to be restored. */
  onWiped(cause: string): void;
  /** The index can't be used or replaced any more: an operator is needed. Every call fails from now on. */
  onUnusable(error: IdallocError): void;
}

/** What a worker leaves as it is; tests choose it. */
export interface IndexOptions {
  /** Entries of a run of the first level. */
  readonly runEntries?: number;
  /** Makes the seed of the keys' hashes for each new store. */
  readonly newSeed?: () => HashSeed;
  /** Writes a file through to its disk. */
  readonly syncFile?: SyncFile;
}

/**
 * The ledger index: one SQLite file in a directory that one process locks.
 *
 * A failure of the store (damaged, full, deleted) never becomes a wrong answer: the call fails with INDEX_RESTORING. By
 * then the store has been replaced by an empty one with the same partitions loaded, and `onWiped` was called. After a
 * second failure in the same process calls fail with INDEX_UNUSABLE.
 */
export class SqliteIndex implements LedgerCopies {
  readonly #directory: string;
  readonly #binding: IndexBinding;
  readonly #events: IndexEvents;
  readonly #shape: RunShape;
  readonly #storeOptions: StoreOptions;
  readonly #lock: Disposable;
  #store!: Store;
  readonly #loaded = new Map<number, PartitionIndex>();
  /** Loads in progress; each call does one more step. */
  readonly #loads = new Map<number, Generator<void, PartitionIndex>>();
  readonly #drops = new Map<number, Generator<void, void>>();
  #replaced = false;
  #refusal: IdallocError | undefined;

  /**
   * An index that is unreadable is wiped. One of another ledger is kept aside; the last two of these are. Throws
   * INDEX_LOCKED if another process has locked the directory, INDEX_UNUSABLE if it can't be read and written.
   */
  constructor(directory: string, binding: IndexBinding, events: IndexEvents, options: IndexOptions = {}) {
    this.#directory = directory;
    this.#binding = binding;
    this.#events = events;
    this.#shape = new RunShape(options.runEntries ?? RUN_ENTRIES);
    this.#storeOptions = { newSeed: options.newSeed ?? randomSeed, syncFile: options.syncFile ?? syncData };
    this.#lock = lockDirectory(directory);
    try {
      this.#openOrReplace();
    } catch (error) {
      this[Symbol.dispose]();
      throw openError(directory, error);
    }
  }

  held(): readonly number[] {
    return this.#guarded(() => partitionsIn(this.#store.db));
  }

  load(partition: number): boolean {
    return this.#guarded(() => {
      if (this.#loaded.has(this.#requireKnown(partition))) return false;
      this.#drops.delete(partition);
      const load = this.#loads.get(partition) ?? this.#newLoad(partition);
      this.#loads.set(partition, load);
      const step = load.next();
      if (step.done !== true) return true;
      this.#loads.delete(partition);
      this.#loaded.set(partition, step.value);
      return false;
    });
  }

  drop(partition: number): boolean {
    return this.#guarded(() => {
      this.#loaded.delete(this.#requireKnown(partition));
      this.#loads.delete(partition);
      const drop = this.#drops.get(partition) ?? dropPartition(this.#store.db, partition);
      this.#drops.set(partition, drop);
      if (drop.next().done !== true) return true;
      this.#drops.delete(partition);
      return false;
    });
  }

  end(partition: number): number {
    return this.#of(partition).end;
  }

  origin(partition: number): number {
    return this.#of(partition).state.origin;
  }

  through(partition: number): number {
    return this.#of(partition).state.through;
  }

  horizon(partition: number): number | undefined {
    return this.#of(partition).horizon;
  }

  adoptedAt(partition: number): number {
    return this.#of(partition).state.adopted;
  }

  answeredBelow(partition: number): number {
    return this.#of(partition).state.answeredBelow;
  }

  since(partition: number): number | undefined {
    return this.#of(partition).state.since;
  }

  missedBefore(partition: number, timeMs: number): void {
    this.#guarded(() => this.#of(partition).missedBefore(timeMs));
  }

  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined {
    return this.#of(partition).last;
  }

  sequence(partition: number, name: string): SequenceRow | undefined {
    return this.#of(partition).sequences.rows.get(name);
  }

  sequences(partition: number): Iterable<readonly [string, SequenceRow]> {
    return this.#of(partition).sequences.rows;
  }

  hashOf(key: EntryKey): number {
    return hashKey(key, this.#store.seed);
  }

  placesAt(partition: number, hash: number): readonly number[] {
    return this.#guarded(() => this.#of(partition).placesAt(hash));
  }

  placesOf(partition: number, key: Buffer): readonly number[] {
    return this.placesAt(partition, this.hashOf(EntryKey.of(key)));
  }

  apply(partition: number, records: readonly LedgerRecord[], firsts?: Set<number>): Applied {
    return this.#guarded(() => this.#of(partition).apply(records, firsts));
  }

  save(partition: number): boolean {
    return this.#guarded(() => this.#of(partition).save());
  }

  async sync(): Promise<void> {
    if (this.#refusal?.code === 'STOPPING') return;
    const store = this.#guarded(() => this.#store);
    try {
      await store.sync();
    } catch (error) {
      if (store.db.isOpen) throw this.#replaceStore(error); // else it was closed or replaced meanwhile
    }
  }

  wipe(partition: number, from: number): void {
    this.#guarded(() => this.#of(partition).wipe(from));
  }

  disown(partition: number): void {
    this.#guarded(() => this.#of(partition).disown());
  }

  expire(partition: number, low: number): boolean {
    return this.#guarded(() => this.#of(partition).expire(low));
  }

  /** Later calls fail with STOPPING, so that a closed file is not taken for a damaged one. */
  [Symbol.dispose](): void {
    this.#saveAtLast();
    this.#refusal ??= new IdallocError('STOPPING', 'the ledger index is closed');
    this.#close();
    this.#lock[Symbol.dispose]();
  }

  /** What can't be saved any more will be read from the ledger again. */
  #saveAtLast(): void {
    try {
      for (const partition of this.#loaded.keys()) this.save(partition);
    } catch (error) {
      if (!(error instanceof IdallocError)) throw error; // else an event has reported it, or the index is closed
    }
  }

  #openOrReplace(): void {
    const { store, wiped } = openOrReplace(this.#directory, this.#identity, this.#storeOptions);
    this.#store = store;
    if (wiped !== undefined) this.#events.onWiped(wiped);
  }

  get #identity(): string {
    const { partitions, ...ledger } = this.#binding;
    return JSON.stringify({ format: FORMAT, runEntries: this.#shape.placesAt(0), partitions, ...ledger });
  }

  #close(): void {
    if (this.#store?.db.isOpen) this.#store.close();
  }

  #guarded<T>(operation: () => T): T {
    if (this.#refusal !== undefined) throw this.#refusal;
    try {
      return operation();
    } catch (error) {
      if (sqliteResult(error) === undefined && !isStoreError(error)) throw error;
      throw this.#replaceStore(error);
    }
  }

  /** Replaces the failed store by an empty one, once; returns the error to fail the call with. */
  #replaceStore(error: unknown): IdallocError {
    this.#close();
    if (this.#replaced || !isStoreError(error)) return this.#giveUp(error);
    this.#replaced = true;
    try {
      this.#openEmpty();
    } catch (again) {
      return this.#giveUp(again);
    }
    const cause = describeError(error);
    this.#events.onWiped(cause);
    return new IdallocError(
      'INDEX_RESTORING',
      `the ledger index failed (${cause}) and is being restored from the ledger`,
    );
  }

  #openEmpty(): void {
    this.#store = replaceStore(this.#directory, this.#identity, this.#storeOptions);
    this.#loads.clear();
    this.#drops.clear();
    for (const partition of this.#loaded.keys()) {
      const load = this.#newLoad(partition);
      let step = load.next();
      while (step.done !== true) step = load.next();
      this.#loaded.set(partition, step.value);
    }
  }

  #newLoad(partition: number): Generator<void, PartitionIndex> {
    const { db, seed } = this.#store;
    return loadPartition(db, partition, { shape: this.#shape, seed });
  }

  #giveUp(error: unknown): IdallocError {
    this.#refusal = openError(this.#directory, error);
    this.#events.onUnusable(this.#refusal);
    return this.#refusal;
  }

  #of(partition: number): PartitionIndex {
    const loaded = this.#loaded.get(partition);
    if (loaded === undefined) throw new RangeError(`ledger partition ${partition} is not loaded in the index`);
    return loaded;
  }

  #requireKnown(partition: number): number {
    if (Number.isInteger(partition) && partition >= 0 && partition < this.#binding.partitions) return partition;
    throw new RangeError(`ledger partition ${partition} is not in the index`);
  }
}

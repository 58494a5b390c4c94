import { describeError, IdallocError } from '../../errors.ts';
import type { Applied, LedgerCopies, LedgerRecord } from '../../pipeline/ports.ts';
import { dropPartition, loadPartition } from './partition-copy.ts';
import type { PartitionIndex } from './partition-index.ts';
import { partitionsIn } from './partition-state.ts';
import { RUN_ENTRIES, RunShape } from './run-shape.ts';
import { isStoreFault, lockDirectory, openStore, refusalOf, replaceStore, type Store, sqliteResult } from './store.ts';

/** Bumped when the tables change: an index of another format is wiped, since the ledger can restore it. */
const FORMAT = 9;

/** Which ledger an index belongs to; any difference makes what is stored worthless. */
export interface IndexBinding {
  readonly clusterId: string;
  readonly ledgerTopic: string;
  readonly partitions: number;
}

export interface IndexEvents {
  /** What the disk held was thrown away, all of it, with the reason: all partitions are to be restored. */
  onWiped(cause: string): void;
  /** The index can't be used any more, nor made anew; a human is needed. Every call is refused from now on. */
  onUnusable(error: IdallocError): void;
}

/**
 * The ledger index on local disk, in one SQLite file in a directory that one process locks. It has hashes and offsets; the
 * entries are in the ledger.
 *
 * What is known of entries and the end offset change in one transaction, so after a crash the index is an older, whole
 * state of itself, and the reader goes on from there.
 *
 * A fault of the store (damaged, full, deleted) never shows as an answer: the call is refused with INDEX_RESTORING, the
 * store has been replaced by an empty one by then, in which the partitions that were loaded are loaded, and `onWiped` was
 * told. A second fault in one process is not mended: INDEX_UNUSABLE.
 *
 * SQLite notices damage to the shape of its pages, not to what is in them. Nothing else would notice it either: a key
 * that is not found any more is decided anew, and the entry of that is the first one of its key that this index knows.
 * So everything has checksums, which are compared when it is read, and rows that have to be there must be: items and
 * filters of runs, what is said of runs and of a partition, the open run, and the hash seed.
 */
export class SqliteIndex implements LedgerCopies {
  readonly #directory: string;
  readonly #binding: IndexBinding;
  readonly #events: IndexEvents;
  readonly #shape: RunShape;
  readonly #lock: Disposable;
  #store!: Store;
  readonly #loaded = new Map<number, PartitionIndex>();
  /** Under way, and to be taken up again with the next call. */
  readonly #loads = new Map<number, Generator<void, PartitionIndex>>();
  readonly #drops = new Map<number, Generator<void, void>>();
  #replaced = false;
  #refusal: IdallocError | undefined;

  /**
   * What is there and can't be read, or is of another ledger, is wiped. Throws INDEX_LOCKED when another process has
   * the directory, INDEX_UNUSABLE when it can't be read and written.
   */
  constructor(directory: string, binding: IndexBinding, events: IndexEvents, runEntries = RUN_ENTRIES) {
    this.#directory = directory;
    this.#binding = binding;
    this.#events = events;
    this.#shape = new RunShape(runEntries);
    try {
      this.#lock = lockDirectory(directory);
    } catch (error) {
      throw refusalOf(directory, error);
    }
    try {
      this.#openOrReplace();
    } catch (error) {
      this[Symbol.dispose]();
      throw refusalOf(directory, error);
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
    return this.#of(partition).origin;
  }

  through(partition: number): number {
    return this.#of(partition).through;
  }

  horizon(partition: number): number | undefined {
    return this.#of(partition).horizon;
  }

  since(partition: number): number | undefined {
    return this.#of(partition).since;
  }

  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined {
    return this.#of(partition).last;
  }

  placesOf(partition: number, key: Buffer): readonly number[] {
    return this.#guarded(() => this.#of(partition).placesOf(key));
  }

  apply(partition: number, records: readonly LedgerRecord[]): Applied {
    return this.#guarded(() => this.#of(partition).apply(records));
  }

  firsts(partition: number, records: readonly LedgerRecord[]): ReadonlySet<number> {
    return this.#guarded(() => this.#of(partition).firsts(records));
  }

  wipe(partition: number, from: number): void {
    this.#guarded(() => this.#of(partition).wipe(from));
  }

  expire(partition: number, low: number): boolean {
    return this.#guarded(() => {
      this.#store.requirePresent();
      return this.#of(partition).expire(low);
    });
  }

  /** Whoever comes later, as with what was under way, is refused: a file that is closed is not a damaged one. */
  [Symbol.dispose](): void {
    this.#refusal ??= new IdallocError('STOPPING', 'the ledger index is closed');
    this.#close();
    this.#lock[Symbol.dispose]();
  }

  #openOrReplace(): void {
    try {
      this.#open(openStore);
    } catch (error) {
      if (!isStoreFault(error)) throw error;
      this.#close();
      this.#open(replaceStore);
      this.#events.onWiped(describeError(error));
    }
  }

  #open(openIt: typeof openStore): void {
    const { partitions, ...ledger } = this.#binding;
    const identity = JSON.stringify({ format: FORMAT, runEntries: this.#shape.placesAt(0), partitions, ...ledger });
    this.#store = openIt(this.#directory, identity);
  }

  #close(): void {
    if (this.#store?.db.isOpen) this.#store.db.close();
  }

  #guarded<T>(operation: () => T): T {
    if (this.#refusal !== undefined) throw this.#refusal;
    try {
      return operation();
    } catch (error) {
      if (sqliteResult(error) === undefined && !isStoreFault(error)) throw error;
      throw this.#replaceStore(error);
    }
  }

  /** Puts an empty store in the place of the one that failed, once; tells what to refuse the call with. */
  #replaceStore(error: unknown): IdallocError {
    this.#close();
    if (this.#replaced || !isStoreFault(error)) return this.#giveUp(error);
    this.#replaced = true;
    try {
      this.#openEmpty();
    } catch (again) {
      return this.#giveUp(again);
    }
    const cause = describeError(error);
    this.#events.onWiped(cause);
    return new IdallocError('INDEX_RESTORING', `the ledger index failed (${cause}) and is restored from the log`);
  }

  #openEmpty(): void {
    this.#open(replaceStore);
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
    this.#refusal = refusalOf(this.#directory, error);
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

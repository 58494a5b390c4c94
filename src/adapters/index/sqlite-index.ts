import { describeError, IdallocError } from '../../errors.ts';
import type { Applied, FORGOTTEN, IndexedEntry, LedgerIndex, LedgerRecord } from '../../pipeline/ports.ts';
import { PartitionTables } from './partition-tables.ts';
import { MAX_RUN_ENTRIES } from './recent-keys.ts';
import { isStoreFault, lockDirectory, openStore, refusalOf, replaceStore, type Store, sqliteResult } from './store.ts';

/** Bumped when the tables change: an index of another format is wiped, since the ledger can restore it. */
const FORMAT = 8;

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
 * The ledger index on local disk, in one SQLite file in a directory that one process locks.
 *
 * Entries and end offset change in one transaction, so after a crash the index is an older, whole state of itself, and
 * the reader goes on from there.
 *
 * A fault of the store (damaged, full, deleted) never shows as an answer: the call is refused with INDEX_RESTORING, the
 * store has been replaced by an empty one by then, and `onWiped` was told. A second fault in one process is not
 * mended: INDEX_UNUSABLE.
 *
 * SQLite notices damage to the shape of its pages, not to what is in them. Nothing else would notice it either: a key
 * that is not found any more is decided anew, and the entry of that is the first one of its key that this index knows.
 * So everything has checksums, which are compared when it is read, and rows that have to be there must be: blocks of
 * entries, sealed runs, what is said of them and of a partition, and the hash seed.
 */
export class SqliteIndex implements LedgerIndex {
  readonly #directory: string;
  readonly #binding: IndexBinding;
  readonly #events: IndexEvents;
  readonly #runEntries: number;
  readonly #lock: Disposable;
  #store!: Store;
  #partitions!: readonly PartitionTables[];
  #mended = false;
  #refusal: IdallocError | undefined;

  /**
   * What is there and can't be read, or is of another ledger, is wiped. Throws INDEX_LOCKED when another process has
   * the directory, INDEX_UNUSABLE when it can't be read and written.
   */
  constructor(directory: string, binding: IndexBinding, events: IndexEvents, runEntries = MAX_RUN_ENTRIES) {
    this.#directory = directory;
    this.#binding = binding;
    this.#events = events;
    this.#runEntries = runEntries;
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

  end(partition: number): number {
    return this.#tables(partition).end;
  }

  through(partition: number): number {
    return this.#tables(partition).through;
  }

  horizon(partition: number): number | undefined {
    return this.#tables(partition).horizon;
  }

  since(partition: number): number | undefined {
    return this.#tables(partition).since;
  }

  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined {
    return this.#tables(partition).last;
  }

  lookUp(partition: number, key: Buffer): IndexedEntry | typeof FORGOTTEN | undefined {
    return this.#guarded(() => this.#tables(partition).lookUp(key));
  }

  apply(partition: number, records: readonly LedgerRecord[]): Applied {
    return this.#guarded(() => this.#tables(partition).apply(records));
  }

  firsts(partition: number, records: readonly LedgerRecord[]): ReadonlySet<number> {
    return this.#guarded(() => this.#tables(partition).firsts(records));
  }

  wipe(partition: number, from: number): void {
    this.#guarded(() => this.#tables(partition).wipe(from));
  }

  expire(partition: number, low: number): boolean {
    return this.#guarded(() => {
      this.#store.requirePresent();
      return this.#tables(partition).expire(low);
    });
  }

  [Symbol.dispose](): void {
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
    const identity = JSON.stringify({ format: FORMAT, runEntries: this.#runEntries, partitions, ...ledger });
    const store = openIt(this.#directory, identity);
    this.#store = store;
    const options = { runEntries: this.#runEntries, seed: store.seed };
    store.db.exec('BEGIN');
    this.#partitions = Array.from({ length: partitions }, (_, p) => new PartitionTables(store.db, p, options));
    store.db.exec('COMMIT');
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
      throw this.#mend(error);
    }
  }

  /** Puts an empty store in the place of the one that failed, once; tells what to refuse the call with. */
  #mend(error: unknown): IdallocError {
    this.#close();
    if (this.#mended || !isStoreFault(error)) return this.#giveUp(error);
    this.#mended = true;
    try {
      this.#open(replaceStore);
    } catch (again) {
      return this.#giveUp(again);
    }
    const cause = describeError(error);
    this.#events.onWiped(cause);
    return new IdallocError('INDEX_RESTORING', `the ledger index failed (${cause}) and is restored from the log`);
  }

  #giveUp(error: unknown): IdallocError {
    this.#refusal = refusalOf(this.#directory, error);
    this.#events.onUnusable(this.#refusal);
    return this.#refusal;
  }

  #tables(partition: number): PartitionTables {
    const tables = this.#partitions[partition];
    if (tables === undefined) throw new RangeError(`ledger partition ${partition} is not in the index`);
    return tables;
  }
}

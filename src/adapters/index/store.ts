import {
  closeSync,
  fdatasync,
  lstatSync,
  mkdirSync,
  openSync,
  rmSync,
  statfsSync,
  statSync,
  truncateSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import { describeError, IdallocError } from '../../errors.ts';
import { decodeSeed, encodeSeed, type HashSeed } from './items.ts';

/** Resolves when what was written to an open file is on its disk. */
export type SyncFile = (descriptor: number) => Promise<void>;

export const syncData: SyncFile = promisify(fdatasync);

/** The open database of an index. */
export interface Store {
  readonly db: DatabaseSync;
  readonly seed: HashSeed;
  /**
   * Resolves when what was committed before survives a power failure. Rejects with StoreError if a file was deleted or
   * replaced, or if the disk fails: then nobody knows what it holds, and a second sync would report success.
   */
  sync(): Promise<void>;
  close(): void;
}

export interface StoreOptions {
  /** Makes the seed of a new file. */
  readonly newSeed: () => HashSeed;
  readonly syncFile: SyncFile;
}

/** The store can't be trusted or used any more; it can be restored from the ledger. */
class StoreError extends Error {}

/** The store is that of another ledger, or of another format. */
export class ForeignStore extends StoreError {
  readonly identity: string;

  constructor(identity: string, wanted: string) {
    super(`it belongs to ${identity}, not to ${wanted}`);
    this.identity = identity;
  }
}

/** The checksum of a row, for rows other than blobs. */
export function checksumOf(...fields: readonly unknown[]): number {
  return crc32(JSON.stringify(fields.map((field) => (field instanceof Uint8Array ? [...field] : field))));
}

/** Throws StoreError unless `intact`. */
export function requireIntact(intact: boolean, what: string): asserts intact {
  if (!intact) throw new StoreError(`${what} is corrupted: check the disk`);
}

export interface TableShape {
  readonly name: string;
  readonly columns: string;
}

/** Creates a table, unless there is one of this name. */
export function createTable(db: DatabaseSync, { name, columns }: TableShape): void {
  db.exec(`CREATE TABLE IF NOT EXISTS ${name} (${columns})`);
}

/** Runs changes in a transaction. */
export function inTransaction(db: DatabaseSync, change: () => void): void {
  keptWhole(() => {
    db.exec('BEGIN');
    change();
    db.exec('COMMIT');
  });
}

/**
 * Runs changes to objects in memory. A failure may leave them half changed, or ahead of the disk, so it becomes a
 * StoreError.
 */
export function keptWhole(change: () => void): void {
  try {
    change();
  } catch (error) {
    throw sqliteResult(error) === undefined ? new StoreError(describeError(error), { cause: error }) : error;
  }
}

/** SQLite's result codes that a new file does not fix: it is locked; or permissions, memory, a missing directory. */
const LOCKED = new Set([5, 6]);
const HOPELESS = new Set([3, 7, 8, 14, 22, 23]);
/** The file is malformed, or no database. */
const DAMAGED = new Set([11, 26]);

const FILE = 'ledger-index.sqlite';
/** All files that a store may have. */
export const STORE_FILES = ['', '-wal', '-shm', '-journal'].map((suffix) => FILE + suffix);
const LOCK_FILE = 'ledger-index.lock';

/** Only for this user, since entries show who requested what. */
const OWN_DIRECTORY = 0o700;
const OWN_FILE = 0o600;

/**
 * The size of the disk that has the directory, and what of it is free for this process; undefined if it can't be
 * asked.
 */
export function diskOf(directory: string): { readonly bytes: number; readonly freeBytes: number } | undefined {
  try {
    const { bsize, blocks, bavail } = statfsSync(directory);
    return { bytes: bsize * blocks, freeBytes: bsize * bavail };
  } catch {
    return undefined; // an index that can't be read is reported where it is used
  }
}

/**
 * Throws INDEX_LOCKED or INDEX_UNUSABLE unless an index can be kept in the directory, which is created if it is
 * missing. `onReplaced` is called with the cause if the lock's file was damaged and has been replaced.
 */
export function requireIndexDirectory(directory: string, onReplaced?: (cause: string) => void): void {
  lockDirectory(directory, onReplaced)[Symbol.dispose]();
}

/**
 * Locks a directory for this process until disposed, and creates it if it is missing. The lock has its own file, so
 * that the index can be replaced while it is locked. Throws INDEX_LOCKED if another process has locked it, else
 * INDEX_UNUSABLE.
 */
export function lockDirectory(directory: string, onReplaced: (cause: string) => void = () => undefined): Disposable {
  try {
    return lockedDirectory(directory, onReplaced);
  } catch (error) {
    throw openError(directory, error);
  }
}

function lockedDirectory(directory: string, onReplaced: (cause: string) => void): Disposable {
  mkdirSync(directory, { recursive: true, mode: OWN_DIRECTORY });
  const file = join(directory, LOCK_FILE);
  requireNoLink(file);
  try {
    return lockedFile(file);
  } catch (error) {
    if (!DAMAGED.has(sqliteResult(error) ?? 0)) throw error;
    emptyLock(file);
    const lock = lockedFile(file);
    onReplaced(describeError(error));
    return lock;
  }
}

function lockedFile(file: string): Disposable {
  const db = new DatabaseSync(file);
  try {
    db.exec('BEGIN EXCLUSIVE');
    return { [Symbol.dispose]: () => db.close() };
  } catch (error) {
    db.close();
    throw error;
  }
}

/**
 * Makes a damaged lock the empty file that a new lock is. It stays the same file, on which a process that has locked it
 * meanwhile keeps its lock: two files of this name would have two holders. This process has no lock on it that opening
 * and closing would release, since SQLite reads a file, and so notices damage, only when nobody has locked it.
 */
function emptyLock(file: string): void {
  const { nlink } = lstatSync(file);
  if (nlink > 1) throw new Error(`${file} is damaged, and is not emptied because it has other names: delete it`);
  truncateSync(file);
}

/**
 * Creates the file if it is missing, and throws if it is a symbolic link, which SQLite would follow and write to. An
 * existing file is not opened, since closing it would release this process' locks on it.
 */
function requireNoLink(file: string): void {
  try {
    closeSync(openSync(file, 'wx', OWN_FILE));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    if (lstatSync(file).isSymbolicLink()) throw new Error(`${file} is a symbolic link, which is not followed`);
  }
}

/** Replaces the content of a locked directory by an empty store. Throws as openStore does. */
export function replaceStore(directory: string, identity: string, options: StoreOptions): Store {
  for (const file of STORE_FILES) rmSync(join(directory, file), { force: true });
  return openStore(directory, identity, options);
}

/** Whether an empty store may fix the error. */
export function isStoreError(error: unknown): boolean {
  if (error instanceof StoreError || isOutOfRange(error)) return true;
  const result = sqliteResult(error);
  return result !== undefined && !LOCKED.has(result) && !HOPELESS.has(result);
}

/** An integer beyond the safe range: none was written, so the file is damaged. */
function isOutOfRange(error: unknown): boolean {
  return error instanceof RangeError && 'code' in error && error.code === 'ERR_OUT_OF_RANGE';
}

/** The error for the operator when the index can't be opened: INDEX_LOCKED or INDEX_UNUSABLE. */
export function openError(directory: string, error: unknown): IdallocError {
  if (LOCKED.has(sqliteResult(error) ?? 0)) {
    const message = `the ledger index in ${directory} is in use by another process: give each worker its own INDEX_DIR`;
    return new IdallocError('INDEX_LOCKED', message, { cause: error });
  }
  const message = `the ledger index in ${directory} can't be used (${describeError(error)}): set INDEX_DIR to a directory that this process can write, on a healthy disk with free space; its content is restored from the ledger`;
  return new IdallocError('INDEX_UNUSABLE', message, { cause: error });
}

/** SQLite's primary result code; undefined when SQLite did not throw this. */
export function sqliteResult(error: unknown): number | undefined {
  if (!(error instanceof Error) || !('errcode' in error)) return undefined;
  return Number(error.errcode) & 0xff;
}

/**
 * Opens the store in a locked directory. Throws StoreError if the stored identity is not `identity`, and any error of
 * SQLite and the file system.
 */
export function openStore(directory: string, identity: string, { newSeed, syncFile }: StoreOptions): Store {
  const file = join(directory, FILE);
  const db = new DatabaseSync(file);
  try {
    // The write-ahead log makes commits cheap: none waits for the disk, which confirms them in `sync`. A checkpoint
    // moves one megabyte at a time, since it blocks the process until the disk confirms it.
    db.exec(`
      PRAGMA locking_mode = EXCLUSIVE;
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = NORMAL;
      PRAGMA cache_size = -16384;
      PRAGMA wal_autocheckpoint = 250;
      CREATE TABLE IF NOT EXISTS binding (id INTEGER PRIMARY KEY CHECK (id = 1), text TEXT, seed BLOB, sum INTEGER)`);
    const seed = readSeed(db, identity) ?? create(db, identity, newSeed());
    const log = new WriteAheadLog(db, `${file}-wal`, syncFile);
    const { ino } = statSync(file);
    const sync = async (): Promise<void> => {
      requirePresent(file, ino);
      requirePresent(`${file}-wal`, log.inode);
      await log.sync().catch((error: unknown) => failSync(error));
    };
    const close = (): void => {
      log.close();
      db.close();
    };
    return { db, seed, sync, close };
  } catch (error) {
    db.close();
    throw error;
  }
}

/** Undefined for a new file. */
function readSeed(db: DatabaseSync, identity: string): HashSeed | undefined {
  const stored = db.prepare('SELECT text, seed, sum FROM binding WHERE id = 1').get();
  if (stored === undefined) return undefined;
  requireIntact(stored.sum === checksumOf(stored.text, stored.seed), 'the binding of the index');
  if (stored.text !== identity) throw new ForeignStore(String(stored.text), identity);
  return decodeSeed(stored.seed as Uint8Array);
}

function create(db: DatabaseSync, identity: string, seed: HashSeed): HashSeed {
  const stored = encodeSeed(seed);
  db.exec(`BEGIN;
    CREATE TABLE state (id INTEGER PRIMARY KEY, "end" INTEGER, through INTEGER, digest BLOB, origin INTEGER,
      horizon INTEGER, answered_below INTEGER, anchored INTEGER, since REAL, appended REAL, recent INTEGER, opened REAL, sequences INTEGER, adopted INTEGER,
      dropped INTEGER, sum INTEGER)`);
  db.prepare('INSERT INTO binding VALUES (1, ?, ?, ?)').run(identity, stored, checksumOf(identity, stored));
  db.exec('COMMIT');
  return seed;
}

/**
 * Syncs what a database has committed to its write-ahead log, which SQLite itself syncs at checkpoints only. The sync
 * takes place in another thread: SQLite's own, at each commit, would block the process while the disk works.
 *
 * It needs a descriptor of its own. One of the database file would be wrong: closing it would release the locks that
 * SQLite has on that file. SQLite has no locks on the log. While the database is open the log stays one file: SQLite
 * writes it from the start again after a checkpoint, which has synced everything before, and deletes it when the
 * database is closed.
 */
class WriteAheadLog {
  readonly inode: number;
  readonly #descriptor: number;
  readonly #sync: SyncFile;
  readonly #countChanges: StatementSync;
  /** What was committed by then is on disk. Below zero at first: what a killed process has left may not be. */
  #syncedChanges = -1;
  #running = 0;
  #isClosed = false;

  constructor(db: DatabaseSync, file: string, sync: SyncFile) {
    this.#countChanges = db.prepare('SELECT total_changes() AS n');
    this.inode = statSync(file).ino;
    this.#descriptor = openSync(file, 'r+'); // Windows syncs writable files only
    this.#sync = sync;
  }

  /** Resolves when everything committed before the call is on disk. */
  async sync(): Promise<void> {
    const changes = Number(this.#countChanges.get()?.n);
    if (changes === this.#syncedChanges) return;
    this.#running += 1;
    try {
      await this.#sync(this.#descriptor);
      this.#syncedChanges = changes;
    } finally {
      this.#running -= 1;
      this.#closeIfUnused();
    }
  }

  /** Before the database is closed. A sync in progress keeps the descriptor, whose number another file would get. */
  close(): void {
    this.#isClosed = true;
    this.#closeIfUnused();
  }

  #closeIfUnused(): void {
    if (this.#isClosed && this.#running === 0) closeSync(this.#descriptor);
  }
}

function requirePresent(file: string, inode: number): void {
  if (statSync(file, { throwIfNoEntry: false })?.ino === inode) return;
  throw new StoreError('its file was deleted or replaced while it was in use');
}

function failSync(error: unknown): never {
  throw new StoreError(`its disk did not confirm what was written: ${describeError(error)}`, { cause: error });
}

/**
 * The values of a row, without their checksum. They are known by their places: the names of columns are in the file
 * too, and a damaged name would hide a value.
 */
export function requireSum(stored: unknown, what: string): readonly unknown[] {
  const values = stored as readonly unknown[];
  const fields = values.slice(0, -1);
  requireIntact(values.at(-1) === checksumOf(...fields), what);
  return fields;
}

/** A view of a blob. Throws StoreError if the value is not a blob. */
export function asBuffer(blob: unknown): Buffer<ArrayBuffer> {
  if (!(blob instanceof Uint8Array && blob.buffer instanceof ArrayBuffer))
    throw new StoreError('a stored value is not a blob');
  return Buffer.from(blob.buffer, blob.byteOffset, blob.byteLength);
}

import { randomBytes } from 'node:crypto';
import { closeSync, lstatSync, mkdirSync, openSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { describeError, IdallocError } from '../../errors.ts';
import type { HashSeed } from './key-hash.ts';

/** The database of an index, as long as nothing goes wrong with it. */
export interface Store {
  readonly db: DatabaseSync;
  readonly seed: HashSeed;
  /** Throws StoreFault when the file is not at its place any more. */
  requirePresent(): void;
}

/** The store can't be believed or used any more; the ledger can restore it. */
class StoreFault extends Error {}

/** What a row's checksum is taken over, where it is not the bytes of a blob. */
export function sumOf(...fields: readonly unknown[]): number {
  return crc32(JSON.stringify(fields.map((field) => (field instanceof Uint8Array ? [...field] : field))));
}

/** Throws StoreFault when something was not read as it was written. */
export function requireIntact(intact: boolean, what: string): asserts intact {
  if (!intact) throw new StoreFault(`${what} is not as it was written: the disk, or what is between, damaged it`);
}

/**
 * Changes all of something or nothing. What fails in here may leave objects in memory ahead of the disk, so it is the end
 * of the store, whatever it is.
 */
export function inTransaction(db: DatabaseSync, change: () => void): void {
  try {
    db.exec('BEGIN');
    change();
    db.exec('COMMIT');
  } catch (error) {
    throw sqliteResult(error) === undefined ? new StoreFault(describeError(error), { cause: error }) : error;
  }
}

/** SQLite's results that a new file does not mend: somebody has it; or permissions, memory, no such directory. */
const LOCKED = new Set([5, 6]);
const HOPELESS = new Set([3, 7, 8, 14, 22, 23]);

const FILE = 'ledger-index.sqlite';
const LOCK_FILE = 'ledger-index.lock';

/** Entries tell who asked for what: a directory that is made here is for this user alone. */
const OWN_DIRECTORY = 0o700;
const OWN_FILE = 0o600;

/**
 * Holds a directory for this process alone until it is disposed. The lock has a file of its own, so that the index can
 * be thrown away under it. Throws what `refusalOf` explains.
 */
export function lockDirectory(directory: string): Disposable {
  mkdirSync(directory, { recursive: true, mode: OWN_DIRECTORY });
  const file = join(directory, LOCK_FILE);
  requireNoLink(file);
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
 * Makes a file that is not there, and throws where a symbolic link stands: SQLite would follow it, to write where it leads.
 * A file that is there is not opened, for to close it again would end this process' locks on it.
 */
function requireNoLink(file: string): void {
  try {
    closeSync(openSync(file, 'wx', OWN_FILE));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    if (lstatSync(file).isSymbolicLink()) throw new Error(`${file} is a symbolic link, which is not followed`);
  }
}

/** An empty store in the place of whatever is in a locked directory. Throws as openStore. */
export function replaceStore(directory: string, identity: string): Store {
  for (const suffix of ['', '-wal', '-shm', '-journal']) rmSync(join(directory, FILE + suffix), { force: true });
  return openStore(directory, identity);
}

/** Whether an empty store may do what this one could not. */
export function isStoreFault(error: unknown): boolean {
  if (error instanceof StoreFault || isOutOfRange(error)) return true;
  const result = sqliteResult(error);
  return result !== undefined && !LOCKED.has(result) && !HOPELESS.has(result);
}

/** SQLite holds integers that a number can't: none was written. */
function isOutOfRange(error: unknown): boolean {
  return error instanceof RangeError && 'code' in error && error.code === 'ERR_OUT_OF_RANGE';
}

/** What the operator is told when the index can't be had: INDEX_LOCKED or INDEX_UNUSABLE. */
export function refusalOf(directory: string, error: unknown): IdallocError {
  if (LOCKED.has(sqliteResult(error) ?? 0)) {
    const message = `the ledger index in ${directory} is in use by another process: give each worker its own INDEX_DIR`;
    return new IdallocError('INDEX_LOCKED', message, { cause: error });
  }
  const message = `the ledger index in ${directory} can't be used (${describeError(error)}): give INDEX_DIR a directory that this process can write, on a disk that works and has space; the ledger restores what was in it`;
  return new IdallocError('INDEX_UNUSABLE', message, { cause: error });
}

/** SQLite's primary result code; undefined when SQLite did not throw this. */
export function sqliteResult(error: unknown): number | undefined {
  if (!(error instanceof Error) || !('errcode' in error)) return undefined;
  return Number(error.errcode) & 0xff;
}

/**
 * Opens the store in a locked directory. Throws a StoreFault when the file says something else of itself than
 * `identity`, and whatever SQLite and the file system throw.
 */
export function openStore(directory: string, identity: string): Store {
  const file = join(directory, FILE);
  const db = new DatabaseSync(file);
  try {
    // The write-ahead log makes a commit cheap; what a power failure takes back, the ledger gives again. It is carried
    // over a megabyte at a time, since nothing else runs while the disk confirms it.
    db.exec(`
      PRAGMA locking_mode = EXCLUSIVE;
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = NORMAL;
      PRAGMA cache_size = -16384;
      PRAGMA wal_autocheckpoint = 250;
      CREATE TABLE IF NOT EXISTS binding (id INTEGER PRIMARY KEY CHECK (id = 1), text TEXT, seed BLOB, sum INTEGER)`);
    const seed = readSeed(db, identity) ?? create(db, identity);
    const { ino } = statSync(file);
    return { db, seed, requirePresent: () => requirePresent(file, ino) };
  } catch (error) {
    db.close();
    throw error;
  }
}

/** Undefined for a new file. */
function readSeed(db: DatabaseSync, identity: string): HashSeed | undefined {
  const stored = db.prepare('SELECT text, seed, sum FROM binding WHERE id = 1').get();
  if (stored === undefined) return undefined;
  if (stored.text !== identity) throw new StoreFault(`it is of ${stored.text}, not of ${identity}`);
  requireIntact(stored.sum === sumOf(stored.text, stored.seed), 'what the store says of itself');
  return toSeed(stored.seed as Uint8Array);
}

function create(db: DatabaseSync, identity: string): HashSeed {
  const seed = randomBytes(8);
  db.exec(`BEGIN;
    CREATE TABLE state (id INTEGER PRIMARY KEY, "end" INTEGER, through INTEGER, digest BLOB, origin INTEGER,
      horizon INTEGER, anchored INTEGER, since REAL, appended REAL, recent INTEGER, opened REAL, dropped INTEGER,
      sum INTEGER)`);
  db.prepare('INSERT INTO binding VALUES (1, ?, ?, ?)').run(identity, seed, sumOf(identity, seed));
  db.exec('COMMIT');
  return toSeed(seed);
}

function toSeed(bytes: Uint8Array): HashSeed {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { low: view.getInt32(0), high: view.getInt32(4) };
}

function requirePresent(file: string, inode: number): void {
  if (statSync(file, { throwIfNoEntry: false })?.ino === inode) return;
  throw new StoreFault('its file was deleted or replaced while it was in use');
}

/** A view of a blob. Throws StoreFault when it is none. */
export function asBuffer(blob: unknown): Buffer<ArrayBuffer> {
  if (!(blob instanceof Uint8Array && blob.buffer instanceof ArrayBuffer)) throw new StoreFault('a blob is none');
  return Buffer.from(blob.buffer, blob.byteOffset, blob.byteLength);
}

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { digestEntry } from '../../codec/ledger-digest.ts';
import { decodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { IdallocError } from '../../errors.ts';
import { FORGOTTEN, type IndexedEntry, type LedgerIndex, type LedgerRecord } from '../../pipeline/ports.ts';

/** Bumped when the tables change: an index of another format is wiped, since the ledger can restore it. */
const FORMAT = 2;

/** Which ledger an index belongs to; any difference makes what is stored worthless. */
export interface IndexBinding {
  readonly clusterId: string;
  readonly ledgerTopic: string;
  readonly partitions: number;
}

/**
 * The ledger index on local disk, in one SQLite file that one process locks.
 *
 * Entries lie in log order, and a compact table leads from a key's hash to offsets: appending stays sequential, and only
 * about 20 bytes an entry are written at random. Entries and end offset change in one transaction, so after a crash the
 * index is an older, whole state of itself, and the reader goes on from there.
 */
export class SqliteIndex implements LedgerIndex {
  readonly #db: DatabaseSync;
  readonly #partitions: readonly PartitionTables[];

  /** Throws INDEX_LOCKED when another process has the directory open. */
  constructor(directory: string, binding: IndexBinding) {
    mkdirSync(directory, { recursive: true });
    const file = join(directory, 'ledger-index.sqlite');
    this.#db = openLocked(file);
    bind(this.#db, binding);
    this.#partitions = Array.from({ length: binding.partitions }, (_, p) => new PartitionTables(this.#db, p));
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

  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined {
    const { end, digest } = this.#tables(partition);
    return digest === undefined ? undefined : { offset: end - 1, digest };
  }

  lookUp(partition: number, key: Buffer): IndexedEntry | typeof FORGOTTEN | undefined {
    return this.#tables(partition).lookUp(key);
  }

  apply(partition: number, records: readonly LedgerRecord[]): ReadonlySet<number> {
    return this.#tables(partition).apply(records);
  }

  wipe(partition: number, from: number): void {
    this.#tables(partition).wipe(from);
  }

  [Symbol.dispose](): void {
    this.#db.close();
  }

  #tables(partition: number): PartitionTables {
    const tables = this.#partitions[partition];
    if (tables === undefined) throw new RangeError(`ledger partition ${partition} is not in the index`);
    return tables;
  }
}

class PartitionTables {
  readonly #db: DatabaseSync;
  readonly #partition: number;
  #insertEntry!: StatementSync;
  #insertLookup!: StatementSync;
  #find!: StatementSync;
  readonly #saveState: StatementSync;
  end = 0;
  through = -1;
  digest: Buffer | undefined;
  /** Where the log started when this was restored from it. */
  origin = 0;
  horizon: number | undefined = -1;

  constructor(db: DatabaseSync, partition: number) {
    this.#db = db;
    this.#partition = partition;
    this.#createTables();
    this.#saveState = db.prepare('INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?)');
    const stored = db.prepare('SELECT * FROM state WHERE id = ?').get(partition);
    if (stored === undefined) return;
    this.end = Number(stored.end);
    this.through = Number(stored.through);
    this.digest = stored.digest === null ? undefined : Buffer.from(stored.digest as Uint8Array);
    this.origin = Number(stored.origin);
    this.horizon = stored.horizon === null ? undefined : Number(stored.horizon);
  }

  lookUp(key: Buffer): IndexedEntry | typeof FORGOTTEN | undefined {
    const row = this.#find.get(hashKey(key), key);
    if (row === undefined) return undefined;
    if (row.value === null) return FORGOTTEN;
    return {
      offset: Number(row.offset),
      value: Buffer.from(row.value as Uint8Array),
      appendedAtMs: Number(row.appended),
    };
  }

  apply(records: readonly LedgerRecord[]): ReadonlySet<number> {
    const firsts = new Set<number>();
    const fresh = records.filter((record) => record.offset >= this.end);
    const lastFresh = fresh.at(-1);
    if (lastFresh === undefined) return firsts;
    this.#inTransaction(() => {
      for (const record of fresh) if (this.#applyOne(record)) firsts.add(record.offset);
      this.digest = digestEntry(lastFresh);
    });
    return firsts;
  }

  /** The first entry of a key wins, so a later one is only passed over. Tells whether this is a first. */
  #applyOne(record: LedgerRecord): boolean {
    if (record.value === null) throw this.#foreign(record, 'no value');
    const entry = record.entry ?? decodeLedgerEntry(record.value);
    this.end = record.offset + 1;
    this.through = Math.max(this.through, entry.through, entry.kind === 'batch' ? entry.requestOffset : -1);
    if (record.offset === entry.end) this.horizon ??= entry.through;
    if (entry.kind === 'marker') return false;
    if (record.key === null) throw this.#foreign(record, 'no key');
    const keyHash = hashKey(record.key);
    if (this.#find.get(keyHash, record.key) !== undefined) return false;
    const known = entry.end >= this.origin;
    this.#insertEntry.run(record.offset, record.key, known ? record.value : null, record.appendedAtMs);
    this.#insertLookup.run(keyHash, record.offset);
    return known;
  }

  #foreign(record: LedgerRecord, what: string): IdallocError {
    return new IdallocError(
      'LEDGER_UNREADABLE',
      `ledger partition ${this.#partition} has an entry with ${what} at offset ${record.offset}: somebody else writes to the ledger topic`,
    );
  }

  wipe(from: number): void {
    this.#inTransaction(() => {
      this.#db.exec(`DROP TABLE entry_${this.#partition}; DROP TABLE lookup_${this.#partition}`);
      this.#createTables();
      this.end = from;
      this.through = -1;
      this.digest = undefined;
      this.origin = from;
      this.horizon = from === 0 ? -1 : undefined;
    });
  }

  /** Entries and what is said of them change together or not at all: an end without its entries would be believed. */
  #inTransaction(change: () => void): void {
    const { end, through, digest, origin, horizon } = this;
    this.#db.exec('BEGIN');
    try {
      change();
      const now = [this.end, this.through, this.digest ?? null, this.origin, this.horizon ?? null];
      this.#saveState.run(this.#partition, ...now);
      this.#db.exec('COMMIT');
    } catch (error) {
      Object.assign(this, { end, through, digest, origin, horizon });
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK'); // a full disk has ended it already
      throw error;
    }
  }

  #createTables(): void {
    const p = this.#partition;
    this.#db.exec(`
      CREATE TABLE IF NOT EXISTS entry_${p} (offset INTEGER PRIMARY KEY, key BLOB, value BLOB, appended INTEGER);
      CREATE TABLE IF NOT EXISTS lookup_${p} (hash INTEGER, offset INTEGER, PRIMARY KEY (hash, offset)) WITHOUT ROWID`);
    this.#insertEntry = this.#db.prepare(`INSERT INTO entry_${p} VALUES (?, ?, ?, ?)`);
    this.#insertLookup = this.#db.prepare(`INSERT INTO lookup_${p} VALUES (?, ?)`);
    this.#find = this.#db.prepare(
      `SELECT e.offset, e.value, e.appended FROM lookup_${p} l JOIN entry_${p} e ON e.offset = l.offset
       WHERE l.hash = ? AND e.key = ? ORDER BY l.offset LIMIT 1`,
    );
  }
}

function openLocked(file: string): DatabaseSync {
  const db = new DatabaseSync(file);
  try {
    // The write-ahead log makes a commit cheap; what a power failure takes back, the ledger gives again.
    db.exec(`
      PRAGMA locking_mode = EXCLUSIVE;
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = NORMAL;
      PRAGMA cache_size = -65536;
      PRAGMA wal_autocheckpoint = 10000;
      CREATE TABLE IF NOT EXISTS binding (id INTEGER PRIMARY KEY CHECK (id = 1), text TEXT);`);
    return db;
  } catch (error) {
    db.close();
    throw new IdallocError(
      'INDEX_LOCKED',
      `the ledger index ${file} can't be opened for this process alone: give each worker its own INDEX_DIR`,
      { cause: error },
    );
  }
}

/** An index of another cluster, topic, partition count or format is emptied: the ledger restores it. */
function bind(db: DatabaseSync, binding: IndexBinding): void {
  const text = JSON.stringify({ format: FORMAT, ...binding });
  const stored = db.prepare('SELECT text FROM binding WHERE id = 1').get();
  if (stored?.text === text) return;
  const tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'binding'").all();
  db.exec('BEGIN');
  for (const { name } of tables) db.exec(`DROP TABLE ${name}`);
  db.exec(`CREATE TABLE state
    (id INTEGER PRIMARY KEY, "end" INTEGER, through INTEGER, digest BLOB, origin INTEGER, horizon INTEGER)`);
  db.prepare('INSERT OR REPLACE INTO binding VALUES (1, ?)').run(text);
  db.exec('COMMIT');
}

/** 53 bits of two 32-bit hashes in the manner of FNV-1a: enough to make a wrong hit rare; the key itself decides. */
function hashKey(key: Buffer): number {
  let high = 0x811c9dc5;
  let low = 0x1b873593;
  for (const byte of key) {
    high = Math.imul(high ^ byte, 0x01000193);
    low = Math.imul(low ^ byte, 0x85ebca6b) ^ (low >>> 13);
  }
  return (high >>> 0) * 0x200000 + (low >>> 11);
}

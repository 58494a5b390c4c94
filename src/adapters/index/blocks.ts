import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { asBuffer, requireIntact } from './store.ts';

/** A look-up reads a whole block: so much of it that the work for one row of the store is shared by many entries. */
const MAX_ENTRIES = 128;
const MAX_BYTES = 64 * 1024;
/** Places deleted in one step, a few milliseconds of work. */
const SWEEP_PLACES = 4_096;

/** Time of the append (8) and length of the key (4). */
const ENTRY_HEAD_BYTES = 12;
const START_BYTES = 4;

/** An entry as it is kept. */
export interface StoredEntry {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly appendedAtMs: number;
}

/**
 * The entries of a partition in log order, many to a row of the store: one row an entry costs more than all else.
 *
 * Each entry has a place; places rise by one and are never used again. A block has those from its first one on:
 *
 *   where each entry starts, and where the last one ends (4 bytes each) | append time (8), key length (4), key, value | …
 *
 * A marker has a place, but no bytes. Blocks are written once and follow each other without a gap, so one that is gone is
 * seen, and each has a checksum over its bytes and its first place.
 */
export class Blocks {
  readonly #insert: StatementSync;
  readonly #find: StatementSync;
  readonly #from: StatementSync;
  readonly #oldest: StatementSync;
  readonly #delete: StatementSync;
  /** The block that was read last: a replay asks for one entry after the other. */
  #last: Block | undefined;

  constructor(db: DatabaseSync, partition: number) {
    const table = `block_${partition}`;
    db.exec(
      `CREATE TABLE IF NOT EXISTS ${table} (first INTEGER PRIMARY KEY, bytes BLOB NOT NULL, sum INTEGER NOT NULL)`,
    );
    this.#insert = db.prepare(`INSERT INTO ${table} VALUES (?, ?, ?)`);
    this.#find = db.prepare(`SELECT first, bytes, sum FROM ${table} WHERE first <= ? ORDER BY first DESC LIMIT 1`);
    this.#from = db.prepare(`SELECT first, bytes, sum FROM ${table} WHERE first >= ? ORDER BY first`);
    this.#oldest = db.prepare(`SELECT min(first) AS first FROM ${table}`);
    this.#delete = db.prepare(`DELETE FROM ${table} WHERE first < ?`);
  }

  /** Writes entries to the places from `first` on; undefined for a marker. */
  write(first: number, entries: readonly (StoredEntry | undefined)[]): void {
    for (let from = 0; from < entries.length; ) {
      const to = endOfBlock(entries, from);
      const bytes = encodeBlock(entries.slice(from, to));
      this.#insert.run(first + from, bytes, sumOf(first + from, bytes));
      from = to;
    }
  }

  /** The entry at a place where one was written. Throws StoreFault when it is not there as it was written. */
  entryAt(place: number): StoredEntry {
    if (this.#last?.has(place) !== true) {
      const row = this.#find.get(place);
      this.#last = row === undefined ? undefined : toBlock(row);
    }
    const entry: StoredEntry | undefined = this.#last?.entryAt(place);
    requireIntact(entry !== undefined, `the entry at place ${place}`);
    return entry;
  }

  /** The keys of all entries at the places [from, to). Throws StoreFault unless all of them are as they were written. */
  *keys(from: number, to: number): Generator<{ readonly place: number; readonly key: Buffer }> {
    let next = from;
    for (const row of this.#from.iterate(from)) {
      const block = toBlock(row);
      requireIntact(block.first === next, 'one of the newest entries');
      for (; next < block.end; next += 1) {
        const entry = block.entryAt(next);
        if (entry !== undefined) yield { place: next, key: entry.key };
      }
    }
    requireIntact(next === to, 'one of the newest entries');
  }

  /** When the first entry at this place or later was appended; undefined when there is none. */
  firstAppendedMs(from: number): number | undefined {
    for (const row of this.#from.iterate(from)) {
      const block = toBlock(row);
      for (let place = block.first; place < block.end; place += 1) {
        const entry = block.entryAt(place);
        if (entry !== undefined) return entry.appendedAtMs;
      }
    }
    return undefined;
  }

  /** Deletes some of what lies below a place where a block begins; true when it found something. */
  sweep(floor: number): boolean {
    const oldest = this.#oldest.get()?.first;
    if (typeof oldest !== 'number' || oldest >= floor) return false;
    this.#delete.run(Math.min(floor, oldest + SWEEP_PLACES));
    return true;
  }
}

class Block {
  readonly first: number;
  readonly end: number;
  readonly #bytes: Buffer;

  constructor(first: number, bytes: Buffer) {
    this.first = first;
    this.end = first + bytes.readUInt32LE(0) / START_BYTES - 1;
    this.#bytes = bytes;
  }

  has(place: number): boolean {
    return place >= this.first && place < this.end;
  }

  /** Undefined for a marker, and for a place of another block. */
  entryAt(place: number): StoredEntry | undefined {
    if (!this.has(place)) return undefined;
    const at = this.#bytes.readUInt32LE((place - this.first) * START_BYTES);
    const end = this.#bytes.readUInt32LE((place - this.first + 1) * START_BYTES);
    if (at === end) return undefined;
    const keyEnd = at + ENTRY_HEAD_BYTES + this.#bytes.readUInt32LE(at + 8);
    return {
      appendedAtMs: this.#bytes.readDoubleLE(at),
      key: this.#bytes.subarray(at + ENTRY_HEAD_BYTES, keyEnd),
      value: this.#bytes.subarray(keyEnd, end),
    };
  }
}

function toBlock(row: Record<string, unknown>): Block {
  const [first, bytes] = [Number(row.first), asBuffer(row.bytes)];
  requireIntact(row.sum === sumOf(first, bytes), `the block at place ${first}`);
  return new Block(first, bytes);
}

function sumOf(first: number, bytes: Buffer): number {
  return crc32(bytes, first >>> 0);
}

function endOfBlock(entries: readonly (StoredEntry | undefined)[], from: number): number {
  const limit = Math.min(entries.length, from + MAX_ENTRIES);
  let bytes = bytesOf(entries[from]);
  let to = from + 1;
  while (to < limit && bytes + bytesOf(entries[to]) <= MAX_BYTES) {
    bytes += bytesOf(entries[to]);
    to += 1;
  }
  return to;
}

function bytesOf(entry: StoredEntry | undefined): number {
  return entry === undefined ? 0 : ENTRY_HEAD_BYTES + entry.key.length + entry.value.length;
}

function encodeBlock(entries: readonly (StoredEntry | undefined)[]): Buffer {
  const startsEnd = (entries.length + 1) * START_BYTES;
  const bytes = Buffer.allocUnsafe(entries.reduce((sum, entry) => sum + bytesOf(entry), startsEnd));
  let at = startsEnd;
  for (const [i, entry] of entries.entries()) {
    bytes.writeUInt32LE(at, i * START_BYTES);
    if (entry === undefined) continue;
    bytes.writeDoubleLE(entry.appendedAtMs, at);
    bytes.writeUInt32LE(entry.key.length, at + 8);
    bytes.set(entry.key, at + ENTRY_HEAD_BYTES);
    bytes.set(entry.value, at + ENTRY_HEAD_BYTES + entry.key.length);
    at += bytesOf(entry);
  }
  bytes.writeUInt32LE(at, startsEnd - START_BYTES);
  return bytes;
}

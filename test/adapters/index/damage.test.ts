import {
  closeSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { at, BINDING, keyOf, perTest } from '../../support/index-directory.ts';
import { entry, offsetOf } from '../../support/memory-records.ts';

const world = perTest();
const RESTORING = expect.objectContaining({ code: 'INDEX_RESTORING' });
const UNUSABLE = expect.objectContaining({ code: 'INDEX_UNUSABLE' });
const KEYS = 4_000;
const formatMovedBy = (by: number) =>
  `UPDATE binding SET text = json_set(text, '$.format', json_extract(text, '$.format') + ${by})`;
const NEWEST = 'SELECT max(first) FROM block_0';

afterEach(() => {
  vi.restoreAllMocks();
});

/** An index with many entries in both of its forms, recent and sealed. */
function filled(): SqliteIndex {
  const index = world.directory.open(BINDING, 1_024);
  for (let from = 0; from < KEYS; from += 500) index.apply(0, some(from, 500));
  return index;
}

function some(from: number, length: number) {
  return Array.from({ length }, (_, i) => at(from + i, entry(`k${from + i}`, { end: from })));
}

/** Closes the index, has its file changed, and opens it again. */
function reopened(change: (file: string) => void): SqliteIndex {
  world.directory.close(filled());
  change(world.directory.file);
  return world.directory.open(BINDING, 1_024);
}

function expectRestorable(index: SqliteIndex): void {
  expect([index.end(0), index.last(0), index.horizon(0), index.lookUp(0, keyOf('k1'))]).toEqual([
    0,
    undefined,
    -1,
    undefined,
  ]);
  index.apply(0, some(0, 10));
  expect(offsetOf(index.lookUp(0, keyOf('k7')))).toBe(7);
}

function edit(file: string, sql: string): void {
  const db = new DatabaseSync(file);
  db.exec(sql);
  db.close();
}

describe('a file that is found at start', () => {
  it.each<[string, (file: string) => void]>([
    ['is no database', (file) => writeFileSync(file, Buffer.alloc(20_000, 'x'))],
    ['is empty of tables that it should have', (file) => edit(file, 'DROP TABLE state')],
    ['was cut', (file) => truncateSync(file, 100 * 4_096)],
    ['was cut within its first page', (file) => truncateSync(file, 1_000)],
    ['is of an older format', (file) => edit(file, formatMovedBy(-1))],
    ['is of a newer format', (file) => edit(file, formatMovedBy(1))],
    [
      'is of a format with other tables',
      (file) =>
        edit(file, 'DROP TABLE binding; CREATE TABLE binding (version INTEGER); INSERT INTO binding VALUES (9)'),
    ],
    ['knows of fewer requests than it did', (file) => edit(file, 'UPDATE state SET through = through - 1')],
    [
      'has its newest entries at another place',
      (file) => edit(file, `UPDATE block_0 SET first = first + 1 WHERE first = (${NEWEST})`),
    ],
    ['lacks its newest entries', (file) => edit(file, `DELETE FROM block_0 WHERE first = (${NEWEST})`)],
    [
      'has a newest entry of rubbish',
      (file) => edit(file, `UPDATE block_0 SET bytes = zeroblob(99) WHERE first = (${NEWEST})`),
    ],
    ['lacks a part of a sealed run', (file) => edit(file, 'DELETE FROM chunk_0 WHERE id = 300')],
    ['lacks the last sealed run', (file) => edit(file, 'DELETE FROM chunk_0 WHERE id >= 512')],
  ])('and %s is thrown away, with a word of why, to be restored from the log', (_, change) => {
    const index = reopened(change);
    expect(world.directory.wiped).toEqual([expect.any(String)]);
    expectRestorable(index);
  });

  it.each<[string, string]>([
    ['entries of another place', 'UPDATE block_0 SET first = 1 WHERE first = 0'],
    ['entries that are gone', 'DELETE FROM block_0 WHERE first = 0'],
    ['entries that are rubbish', 'UPDATE block_0 SET bytes = zeroblob(9000) WHERE first = 0'],
    ['entries that are no blob', `UPDATE block_0 SET bytes = 'text' WHERE first = 0`],
    ['entries with another checksum', 'UPDATE block_0 SET sum = sum + 1 WHERE first = 0'],
  ])('and has %s is thrown away when that is looked up', (_, sql) => {
    const index = reopened((file) => edit(file, sql));
    expect(() => index.lookUp(0, keyOf('k7'))).toThrow(RESTORING);
    expect(world.directory.wiped).toEqual([expect.any(String)]);
    expectRestorable(index);
  });

  it('and is good is kept', () => {
    const index = reopened(() => {});
    expect([world.directory.wiped, index.end(0), offsetOf(index.lookUp(0, keyOf('k7')))]).toEqual([[], KEYS, 7]);
  });

  it('and has pages of rubbish never makes a known key look new', () => {
    const index = reopened((file) => {
      const fd = openSync(file, 'r+');
      const rubbish = Buffer.alloc(4_096, 0xa5);
      for (let page = 40; page < statSync(file).size / 4_096; page += 3) writeSync(fd, rubbish, 0, 4_096, page * 4_096);
      closeSync(fd);
    });
    for (let i = 0; i < KEYS && world.directory.wiped.length === 0; i++) {
      try {
        expect(offsetOf(index.lookUp(0, keyOf(`k${i}`)))).toBe(i);
      } catch (error) {
        if (world.directory.wiped.length === 0) throw error;
      }
    }
    expect(world.directory.wiped).toHaveLength(1);
    expectRestorable(index);
  });
});

describe('a directory that can not be used', () => {
  it.each<[string, (path: string) => void]>([
    ['is a file', (path) => writeFileSync(path, 'x')],
    [
      'has a directory in the place of the index',
      (path) => mkdirSync(join(path, 'ledger-index.sqlite', 'x'), { recursive: true }),
    ],
    [
      'has a directory in the place of the lock',
      (path) => mkdirSync(join(path, 'ledger-index.lock'), { recursive: true }),
    ],
    [
      'has a lock that is something else',
      (path) => {
        mkdirSync(path);
        writeFileSync(join(path, 'ledger-index.lock'), Buffer.alloc(5_000, 'x'));
      },
    ],
  ])('because it %s is refused for a human: INDEX_UNUSABLE, with what was there untouched', (_, make) => {
    rmSync(world.directory.path, { recursive: true });
    make(world.directory.path);
    expect(() => world.directory.open()).toThrow(UNUSABLE);
    expect(world.directory.wiped).toEqual([]);
    expect(statSync(world.directory.path)).toBeDefined();
  });
});

/** The store that an index has open. */
function storeOf(open: () => SqliteIndex): { readonly index: SqliteIndex; readonly db: () => DatabaseSync } {
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  const index = open();
  const isOpening = (at: number) => String(exec.mock.calls[at]?.[0]).includes('locking_mode');
  const db = () => exec.mock.contexts.filter((_, call) => isOpening(call)).at(-1) as DatabaseSync;
  return { index, db };
}

/** Lets the disk have no more room than it has now. */
function fillDisk(db: DatabaseSync): void {
  const used = Number(db.prepare('PRAGMA page_count').get()?.page_count);
  db.exec(`PRAGMA max_page_count = ${used}`);
}

describe('while it is in use', () => {
  it.each<[string, (db: DatabaseSync) => void, (index: SqliteIndex) => unknown]>([
    ['a full disk', fillDisk, (index) => index.apply(0, some(KEYS, 500))],
    ['a deleted file', () => rmSync(world.directory.file), (index) => index.expire(0, 0)],
    [
      'a replaced file',
      (db) => {
        const copy = readFileSync(world.directory.file);
        rmSync(world.directory.file);
        writeFileSync(world.directory.file, copy);
        expect(db.isOpen).toBe(true);
      },
      (index) => index.expire(0, 0),
    ],
    ['a table that is gone', (db) => db.exec('DROP TABLE block_0'), (index) => index.lookUp(0, keyOf('k7'))],
    ['a store that can not commit', failCommits, (index) => index.apply(0, some(KEYS, 5))],
    ['a wipe that can not be committed', failCommits, (index) => index.wipe(0, 0)],
  ])('%s makes the index anew: refused once with INDEX_RESTORING, then empty', (_, damage, use) => {
    const { index, db } = storeOf(filled);
    damage(db());
    expect(() => use(index)).toThrow(RESTORING);
    expect([world.directory.wiped, world.directory.unusable]).toEqual([[expect.any(String)], []]);
    expectRestorable(index);
    world.directory.close(index);
    expect(world.directory.open(BINDING, 1_024).end(0)).toBe(10);
  });

  it('a second fault ends it: INDEX_UNUSABLE from then on, whatever is asked, and told once', () => {
    const { index, db } = storeOf(filled);
    fillDisk(db());
    expect(() => index.apply(0, some(KEYS, 500))).toThrow(RESTORING);
    fillDisk(db());
    expect(() => index.apply(0, some(0, 500))).toThrow(UNUSABLE);
    expect(world.directory.unusable).toEqual([UNUSABLE]);
    const uses = [
      () => index.lookUp(0, keyOf('k1')),
      () => index.apply(0, some(0, 1)),
      () => index.firsts(0, some(0, 1)),
      () => index.wipe(0, 0),
      () => index.expire(0, 0),
    ];
    for (const use of uses) expect(use).toThrow(UNUSABLE);
    expect([world.directory.unusable.length, world.directory.wiped.length]).toEqual([1, 1]);
  });

  it('a directory that is gone for good ends it at once', () => {
    const index = filled();
    rmSync(world.directory.path, { recursive: true });
    writeFileSync(world.directory.path, 'x');
    expect(() => index.expire(0, 0)).toThrow(UNUSABLE);
    expect([world.directory.unusable, world.directory.wiped]).toEqual([[UNUSABLE], []]);
  });

  it('an entry that can not be read is no fault of the store', () => {
    const index = filled();
    expect(() => index.apply(0, [at(KEYS, { key: keyOf('x'), value: Buffer.from('junk') })])).toThrow(
      expect.objectContaining({ code: 'LEDGER_UNREADABLE' }),
    );
    expect([index.end(0), world.directory.wiped]).toEqual([KEYS, []]);
  });
});

/** Once, and not as SQLite says it. */
function failCommits(): void {
  vi.restoreAllMocks(); // the spy that found the store would call itself
  const { exec } = DatabaseSync.prototype;
  let failed = false;
  vi.spyOn(DatabaseSync.prototype, 'exec').mockImplementation(function (this: DatabaseSync, sql: string) {
    if (failed || !/^\s*COMMIT/.test(sql)) return exec.call(this, sql);
    failed = true;
    throw new Error('no commit today');
  });
}

import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { OpenRun } from '../../../src/adapters/index/open-run.ts';
import type { SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { expectRestorable, fill, KEYS, RUN_OF_MANY, some } from './damaged-index.ts';
import { at, BINDING, keyOf, perTest, toTheEnd } from './index-directory.ts';

const world = perTest();
const RESTORING = expect.objectContaining({ code: 'INDEX_RESTORING' });
const UNUSABLE = expect.objectContaining({ code: 'INDEX_UNUSABLE' });

afterEach(() => {
  vi.restoreAllMocks();
});

function filled(): SqliteIndex {
  const index = world.directory.open(BINDING, RUN_OF_MANY);
  fill(index);
  return index;
}

/** The open store of an index. */
function storeOf(open: () => SqliteIndex): { readonly index: SqliteIndex; readonly db: () => DatabaseSync } {
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  const index = open();
  const isOpening = (at: number) => String(exec.mock.calls[at]?.[0]).includes('locking_mode');
  const db = () => exec.mock.contexts.filter((_, call) => isOpening(call)).at(-1) as DatabaseSync;
  return { index, db };
}

/** Leaves the disk no free space. */
function fillDisk(db: DatabaseSync): void {
  const used = Number(db.prepare('PRAGMA page_count').get()?.page_count);
  db.exec(`PRAGMA max_page_count = ${used}`);
}

describe('while the index is in use', () => {
  it.each<[string, (db: DatabaseSync) => void, (index: SqliteIndex) => unknown]>([
    ['a full disk', fillDisk, (index) => index.apply(0, some(KEYS, 500))],
    ['a deleted file', () => rmSync(world.directory.file), (index) => index.sync()],
    ['a deleted write-ahead log', () => rmSync(`${world.directory.file}-wal`), (index) => index.sync()],
    [
      'a replaced file',
      (db) => {
        const copy = readFileSync(world.directory.file);
        rmSync(world.directory.file);
        writeFileSync(world.directory.file, copy);
        expect(db.isOpen).toBe(true);
      },
      (index) => index.sync(),
    ],
    ['a table that is gone', (db) => db.exec('DROP TABLE items_0_1'), (index) => index.placesOf(0, keyOf('k7'))],
    ['no table of states', (db) => db.exec('DROP TABLE state'), (index) => index.held()],
    ["a store that can't commit", failCommits, (index) => index.apply(0, some(KEYS, RUN_OF_MANY))],
    [
      "a save that can't be committed",
      failCommits,
      (index) => {
        index.apply(0, some(KEYS, 1));
        index.save(0);
      },
    ],
    ['a failure half way through the entries of a part', failToAdd, (index) => index.apply(0, some(KEYS, 3))],
    ["a wipe that can't be committed", failCommits, (index) => index.wipe(0, 0)],
    ["an expiry that can't be committed", failCommits, (index) => index.expire(0, KEYS)],
    ["a deletion that can't be committed", failCommits, (index) => toTheEnd(() => index.drop(1))],
  ])('%s replaces the index: one call fails with INDEX_RESTORING, then it is empty', async (_, damage, use) => {
    const { index, db } = storeOf(filled);
    damage(db());
    await expect((async () => use(index))()).rejects.toEqual(RESTORING);
    expect([world.directory.wiped, world.directory.unusable]).toEqual([[expect.any(String)], []]);
    expectRestorable(index);
    world.directory.close(index);
    expect(world.directory.open(BINDING, RUN_OF_MANY).end(0)).toBe(10);
  });

  it('after a second fault every call fails with INDEX_UNUSABLE, which is reported once', () => {
    const { index, db } = storeOf(filled);
    fillDisk(db());
    expect(() => index.apply(0, some(KEYS, 500))).toThrow(RESTORING);
    fillDisk(db());
    expect(() => index.apply(0, some(0, KEYS))).toThrow(UNUSABLE);
    expect(world.directory.unusable).toEqual([UNUSABLE]);
    const uses = [
      () => index.held(),
      () => index.load(0),
      () => index.drop(0),
      () => index.placesOf(0, keyOf('k1')),
      () => index.apply(0, some(0, 1)),
      () => index.wipe(0, 0),
      () => index.expire(0, 0),
    ];
    for (const use of uses) expect(use).toThrow(UNUSABLE);
    expect([world.directory.unusable.length, world.directory.wiped.length]).toEqual([1, 1]);
  });

  it('the loaded partitions, and no others, are opened again empty', async () => {
    const index = filled();
    toTheEnd(() => index.drop(1));
    rmSync(world.directory.file);
    await expect(index.sync()).rejects.toEqual(RESTORING);
    expect([index.held(), index.end(0), index.load(0)]).toEqual([[0], 0, false]);
    expect(() => index.end(1)).toThrow(RangeError);
  });

  it('a directory that is gone permanently makes it unusable immediately', async () => {
    const index = filled();
    rmSync(world.directory.path, { recursive: true });
    writeFileSync(world.directory.path, 'x');
    await expect(index.sync()).rejects.toEqual(UNUSABLE);
    expect([world.directory.unusable, world.directory.wiped]).toEqual([[UNUSABLE], []]);
  });

  it('a last save that fails is reported, and the index is closed', () => {
    const index = filled();
    index.apply(0, some(KEYS, 1));
    failCommits();
    world.directory.close(index);
    expect(world.directory.wiped).toEqual([expect.stringContaining('no commit today')]);
    expect(world.directory.open(BINDING, RUN_OF_MANY).end(0)).toBe(0);
  });

  it('an unreadable entry is not a fault of the store', () => {
    const index = filled();
    expect(() => index.apply(0, [at(KEYS, { key: keyOf('x'), value: Buffer.from('junk') })])).toThrow(
      expect.objectContaining({ code: 'LEDGER_UNREADABLE' }),
    );
    expect([index.end(0), world.directory.wiped]).toEqual([KEYS, []]);
  });
});

/** Makes the second entry from now on fail, once. */
function failToAdd(): void {
  const { add } = OpenRun.prototype;
  let added = 0;
  vi.spyOn(OpenRun.prototype, 'add').mockImplementation(function (this: OpenRun, hash: number, offset: number) {
    added += 1;
    if (added === 2) throw new RangeError('no entry today');
    add.call(this, hash, offset);
  });
}

/** Makes the next commit fail, once, with an error that isn't SQLite's own. */
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

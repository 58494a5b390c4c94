import { closeSync, mkdirSync, openSync, rmSync, statSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { expectRestorable, fill, KEYS, RUN_OF_MANY } from './damaged-index.ts';
import { BINDING, keyOf, perTest, toTheEnd } from './index-directory.ts';

const world = perTest();
const RESTORING = expect.objectContaining({ code: 'INDEX_RESTORING' });
const UNUSABLE = expect.objectContaining({ code: 'INDEX_UNUSABLE' });
const formatMovedBy = (by: number) =>
  `UPDATE binding SET text = json_set(text, '$.format', json_extract(text, '$.format') + ${by})`;
const NEWEST = 'SELECT max(id) FROM open_0';
/** Selects the bytes of a table's row, to overwrite another row with them. */
const ROW_OF = 'SELECT bytes, sum FROM';

function edit(file: string, sql: string): void {
  const db = new DatabaseSync(file);
  db.exec(sql);
  db.close();
}

/** Closes an index with many entries, changes its file, and opens it again. */
function reopened(change: (file: string) => void) {
  const index = world.directory.open(BINDING, RUN_OF_MANY);
  fill(index);
  world.directory.close(index);
  change(world.directory.file);
  return world.directory.open(BINDING, RUN_OF_MANY);
}

describe('an existing file', () => {
  it.each<[string, (file: string) => void]>([
    ['is not a database', (file) => writeFileSync(file, Buffer.alloc(20_000, 'x'))],
    ['lacks a table', (file) => edit(file, 'DROP TABLE state')],
    ['is truncated', (file) => truncateSync(file, 10 * 4_096)],
    ['is truncated within its first page', (file) => truncateSync(file, 1_000)],
    ['is of an older format', (file) => edit(file, formatMovedBy(-1))],
    ['is of a newer format', (file) => edit(file, formatMovedBy(1))],
    [
      'is of a format with other tables',
      (file) =>
        edit(file, 'DROP TABLE binding; CREATE TABLE binding (version INTEGER); INSERT INTO binding VALUES (9)'),
    ],
    ['has a lower highest request offset', (file) => edit(file, 'UPDATE state SET through = through - 1')],
    ['has another place below which all was answered', (file) => edit(file, 'UPDATE state SET answered_below = 9')],
    ['lacks the state of a partition', (file) => edit(file, 'DELETE FROM state WHERE id = 0')],
    [
      'has the state of another partition',
      (file) => edit(file, 'DELETE FROM state WHERE id = 1; UPDATE state SET id = 1'),
    ],
    ['lacks a table of items', (file) => edit(file, 'DROP TABLE items_0_1')],
    ['lacks the newest entries', (file) => edit(file, `DELETE FROM open_0 WHERE id = (${NEWEST})`)],
    ['lacks all of the open run', (file) => edit(file, 'DELETE FROM open_0')],
    ['has the newest entries elsewhere', (file) => edit(file, `UPDATE open_0 SET id = id + 1 WHERE id = (${NEWEST})`)],
    [
      'has newest entries of rubbish',
      (file) => edit(file, `UPDATE open_0 SET bytes = zeroblob(80) WHERE id = (${NEWEST})`),
    ],
    [
      'has newest entries that are no blob',
      (file) => edit(file, `UPDATE open_0 SET bytes = 'x' WHERE id = (${NEWEST})`),
    ],
    ['lacks the last sealed run', (file) => edit(file, 'DELETE FROM run_0 WHERE id = (SELECT max(id) FROM run_0)')],
    ['lacks the first sealed run', (file) => edit(file, `DELETE FROM run_0 WHERE first = 0 AND whole = 1`)],
    ['lacks all sealed runs', (file) => edit(file, 'DELETE FROM run_0')],
    ['counts a run that does not count', (file) => edit(file, 'UPDATE run_0 SET whole = 1 - whole')],
    ['has a run of another length', (file) => edit(file, 'UPDATE run_0 SET "end" = "end" + 1')],
    ['has a lower highest request offset in a run', (file) => edit(file, 'UPDATE run_0 SET requests = requests - 1')],
    ['lacks a filter', (file) => edit(file, 'DELETE FROM filter_0 WHERE id = (SELECT max(id) FROM filter_0)')],
    ['has a filter of zeros', (file) => edit(file, 'UPDATE filter_0 SET bytes = zeroblob(length(bytes))')],
    ['has a shorter filter', (file) => edit(file, 'UPDATE filter_0 SET bytes = zeroblob(64)')],
    ['has the filter of another run', (file) => edit(file, `UPDATE filter_0 SET (bytes, sum) = (${ROW_OF} filter_0)`)],
  ])('that %s is replaced, with the reason, to be restored from the ledger', (_, change) => {
    const index = reopened(change);
    expect(world.directory.wiped).toEqual([expect.any(String)]);
    expectRestorable(index);
  });

  it.each<[string, string]>([
    ['items of another row', `UPDATE items_0_0 SET (bytes, sum) = (${ROW_OF} items_0_0)`],
    ['items of a run of another partition', 'DELETE FROM items_0_1; INSERT INTO items_0_1 SELECT * FROM items_1_1'],
    ['rows at another place', 'UPDATE items_0_1 SET id = id + 1000000'],
    ['items that are gone', 'DELETE FROM items_0_1'],
    ['items that are zeros', 'UPDATE items_0_1 SET bytes = zeroblob(length(bytes))'],
    ['items that are not a blob', `UPDATE items_0_1 SET bytes = 'text'`],
    ['items with another checksum', 'UPDATE items_0_1 SET sum = sum + 1'],
  ])('with %s is replaced when that is looked up', (_, sql) => {
    const index = reopened((file) => edit(file, sql));
    expect(world.directory.wiped).toEqual([]);
    expect(() => Array.from({ length: KEYS }, (__, i) => index.placesOf(0, keyOf(`k${i}`)))).toThrow(RESTORING);
    expect(world.directory.wiped).toEqual([expect.any(String)]);
    expectRestorable(index);
  });

  it('with damaged items is replaced when they are merged', () => {
    const index = reopened((file) => edit(file, 'UPDATE items_0_0 SET sum = sum + 1'));
    expect(() => fill(index, KEYS, KEYS + 8 * RUN_OF_MANY)).toThrow(RESTORING);
    expectRestorable(index);
  });

  it('that is intact is kept', () => {
    const index = reopened(() => {});
    expect([world.directory.wiped, index.end(0), index.placesOf(0, keyOf('k7'))]).toEqual([[], KEYS, [7]]);
  });

  it('with random pages never makes a known key look new', () => {
    const index = reopened((file) => {
      const fd = openSync(file, 'r+');
      const rubbish = Buffer.alloc(4_096, 0xa5);
      for (let page = 20; page < statSync(file).size / 4_096; page += 3) writeSync(fd, rubbish, 0, 4_096, page * 4_096);
      closeSync(fd);
    });
    for (let i = 0; i < KEYS && world.directory.wiped.length === 0; i++) {
      try {
        expect(index.placesOf(0, keyOf(`k${i}`))).toEqual([i]);
      } catch (error) {
        if (world.directory.wiped.length === 0) throw error;
      }
    }
    expect(world.directory.wiped).toHaveLength(1);
    expectRestorable(index);
  });

  it('that is damaged fails the step of loading that finds it, and can be loaded after that', () => {
    const before = world.directory.open(BINDING, RUN_OF_MANY);
    fill(before);
    world.directory.close(before);
    edit(world.directory.file, 'UPDATE filter_0 SET sum = sum + 1');
    const index = world.directory.openBare(BINDING, RUN_OF_MANY);
    toTheEnd(() => index.load(1));
    expect(() => toTheEnd(() => index.load(0))).toThrow(RESTORING);
    expect([index.held(), index.end(1)]).toEqual([[1], 0]);
    expect(() => index.end(0)).toThrow(RangeError);
    toTheEnd(() => index.load(0));
    expectRestorable(index);
  });
});

describe('an unusable directory', () => {
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
  ])('that %s fails with INDEX_UNUSABLE, and its content is not changed', (_, make) => {
    rmSync(world.directory.path, { recursive: true });
    make(world.directory.path);
    expect(() => world.directory.open()).toThrow(UNUSABLE);
    expect(world.directory.wiped).toEqual([]);
    expect(statSync(world.directory.path)).toBeDefined();
  });
});

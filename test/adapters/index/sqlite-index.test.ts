import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type IndexBinding, SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { digestEntry } from '../../../src/codec/ledger-digest.ts';
import { encodeLedgerEntry, encodeLedgerKey } from '../../../src/codec/ledger-entry.ts';
import type { LedgerIndex, LedgerRecord } from '../../../src/pipeline/ports.ts';
import { MemoryIndex } from '../../support/memory-index.ts';
import { entry, offsetOf } from '../../support/memory-records.ts';

const BINDING: IndexBinding = { clusterId: 'c1', ledgerTopic: 'id.ledger', partitions: 2 };

let directory: string;
let opened: SqliteIndex[];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'idalloc-index-'));
  opened = [];
});

afterEach(() => {
  vi.restoreAllMocks();
  for (const index of opened) index[Symbol.dispose]();
  rmSync(directory, { recursive: true });
});

function open(binding = BINDING): SqliteIndex {
  const index = new SqliteIndex(directory, binding);
  opened.push(index);
  return index;
}

/** Lets the store refuse every commit; SQLite ends the transaction by itself when the disk is full. */
function failCommits(byItself: boolean): void {
  const exec = DatabaseSync.prototype.exec;
  vi.spyOn(DatabaseSync.prototype, 'exec').mockImplementation(function (this: DatabaseSync, sql: string) {
    if (!/^\s*COMMIT/.test(sql)) return exec.call(this, sql);
    if (byItself) exec.call(this, 'ROLLBACK');
    throw new Error('the disk is full');
  });
}

function close(index: SqliteIndex): void {
  opened.splice(opened.indexOf(index), 1);
  index[Symbol.dispose]();
}

const at = (offset: number, drafted: { key: Buffer | null; value: Buffer | null }): LedgerRecord => ({
  offset,
  ...drafted,
  appendedAtMs: 1_700_000_000_000 + offset,
});
const keyOf = (id: string) => encodeLedgerKey(Buffer.from(id));
const marker = (through: number) => ({ key: null, value: encodeLedgerEntry({ kind: 'marker', end: 0, through }) });

describe.each<[string, () => LedgerIndex]>([
  ['on disk', open],
  ['in memory', () => new MemoryIndex()],
])('an index %s', (_, make) => {
  it('knows nothing at first', () => {
    const index = make();
    expect([index.end(0), index.through(0), index.last(0), index.lookUp(0, keyOf('a'))]).toEqual([
      0,
      -1,
      undefined,
      undefined,
    ]);
  });

  it('gives the first entry of a key, as it was written', () => {
    const index = make();
    const first = entry('a', { first: 1n });
    index.apply(0, [at(0, first), at(1, entry('a', { first: 2n })), at(2, entry('b'))]);
    index.apply(0, [at(3, entry('a', { first: 3n }))]);
    expect(index.lookUp(0, keyOf('a'))).toEqual({ offset: 0, value: first.value, appendedAtMs: 1_700_000_000_000 });
    expect(index.lookUp(0, keyOf('b'))).toMatchObject({ offset: 2 });
    expect(index.end(0)).toBe(4);
  });

  it('tells which entries were the first of their key', () => {
    const index = make();
    expect(index.apply(0, [at(0, entry('a')), at(1, entry('a')), at(2, entry('b')), at(3, marker(5))])).toEqual(
      new Set([0, 2]),
    );
    expect(index.apply(0, [at(2, entry('b')), at(4, entry('b')), at(5, entry('c'))])).toEqual(new Set([5]));
    expect(index.apply(0, [at(5, entry('c'))])).toEqual(new Set());
  });

  it('skips entries below its end', () => {
    const index = make();
    index.apply(0, [at(0, entry('a')), at(1, entry('b'))]);
    index.apply(0, [at(0, entry('x')), at(1, entry('y')), at(2, entry('z'))]);
    expect(['x', 'y', 'z'].map((id) => offsetOf(index.lookUp(0, keyOf(id))))).toEqual([undefined, undefined, 2]);
  });

  it('applies nothing of a delivery that has a bad entry, and goes on after it', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 7 }))]);
    const before = [index.end(0), index.through(0), index.last(0)];
    const good = [at(1, entry('b', { requestOffset: 9 })), at(2, entry('c'))];
    for (const bad of [
      { key: keyOf('x'), value: null },
      { key: null, value: entry('x').value },
      { key: keyOf('x'), value: Buffer.from('junk') },
    ]) {
      expect(() => index.apply(0, [...good, at(3, bad)])).toThrow(
        expect.objectContaining({ code: 'LEDGER_UNREADABLE' }),
      );
      expect([index.end(0), index.through(0), index.last(0)]).toEqual(before);
      expect(index.lookUp(0, keyOf('b'))).toBeUndefined();
    }
    index.apply(0, good);
    expect([index.end(0), index.through(0), offsetOf(index.lookUp(0, keyOf('b')))]).toEqual([3, 9, 1]);
  });

  it('remembers the highest request offset, whatever the order, of markers too', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 9 })), at(1, entry('b', { requestOffset: 4 }))]);
    expect(index.through(0)).toBe(9);
    index.apply(0, [at(2, entry('a', { requestOffset: 11 }))]);
    expect(index.through(0)).toBe(11);
    index.apply(0, [at(3, marker(40))]);
    expect(index.through(0)).toBe(40);
  });

  it('recognises its last entry by digest, be it a first, a later one or a marker', () => {
    const index = make();
    const records = [at(0, entry('a')), at(1, entry('a', { first: 2n })), at(2, marker(1))];
    for (const record of records) {
      index.apply(0, [record]);
      expect(index.last(0)).toEqual({ offset: record.offset, digest: digestEntry(record) });
    }
  });

  it('keeps partitions apart', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { first: 1n }))]);
    index.apply(1, [at(0, entry('b')), at(1, entry('a', { first: 2n }))]);
    expect([offsetOf(index.lookUp(0, keyOf('a'))), offsetOf(index.lookUp(1, keyOf('a')))]).toEqual([0, 1]);
    index.wipe(1, 0);
    expect([offsetOf(index.lookUp(0, keyOf('a'))), index.lookUp(1, keyOf('a'))]).toEqual([0, undefined]);
  });

  it('forgets all of a partition, and begins where it is told', () => {
    const index = make();
    index.apply(0, [at(0, entry('a')), at(1, entry('b'))]);
    index.wipe(0, 50);
    expect([index.end(0), index.through(0), index.last(0), index.lookUp(0, keyOf('a'))]).toEqual([
      50,
      -1,
      undefined,
      undefined,
    ]);
    index.apply(0, [at(50, entry('a', { end: 50 }))]);
    expect(index.lookUp(0, keyOf('a'))).toMatchObject({ offset: 50 });
  });

  it('forgets a key whose first entry may have gone with the head of the log', () => {
    const index = make();
    index.wipe(0, 50);
    index.apply(0, [at(50, entry('a', { end: 49 })), at(51, entry('b', { end: 50 })), at(52, entry('a', { end: 52 }))]);
    expect([index.lookUp(0, keyOf('a')), offsetOf(index.lookUp(0, keyOf('b')))]).toEqual(['forgotten', 51]);
  });

  it('has no horizon over a whole log', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { end: 0, through: 7 }))]);
    expect(index.horizon(0)).toBe(-1);
  });

  it('takes its horizon from the first entry that lies at its own end', () => {
    const index = make();
    index.wipe(0, 50);
    expect(index.horizon(0)).toBeUndefined();
    index.apply(0, [at(50, entry('a', { end: 48, through: 900 })), at(51, entry('b', { end: 50, through: 901 }))]);
    expect(index.horizon(0)).toBeUndefined();
    index.apply(0, [at(52, entry('c', { end: 52, through: 30 })), at(53, entry('d', { end: 53, through: 31 }))]);
    expect(index.horizon(0)).toBe(30);
  });

  it("counts what an entry's writer knew among the request offsets that it tells of", () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 3, through: 12 }))]);
    expect(index.through(0)).toBe(12);
  });

  it('takes any bytes for a key', () => {
    const index = make();
    const ids = ['\u0000', '\u0000\u0000', '\u00ff\u00fe', "'; DROP TABLE entry_0; --", 'x'.repeat(256)];
    const keys = ids.map((id) => encodeLedgerKey(Buffer.from(id, 'latin1')));
    index.apply(
      0,
      keys.map((key, offset) => at(offset, { key, value: entry('a').value })),
    );
    expect(keys.map((key) => offsetOf(index.lookUp(0, key)))).toEqual([0, 1, 2, 3, 4]);
  });
});

describe('on disk', () => {
  it('keeps end, highest request offset, last entry and all first entries over a restart', () => {
    const before = open();
    before.apply(0, [at(0, entry('a')), at(1, entry('b', { requestOffset: 9 })), at(2, entry('a'))]);
    before.wipe(1, 7);
    close(before);
    const after = open();
    expect([after.end(0), after.through(0), after.end(1), after.last(1)]).toEqual([3, 9, 7, undefined]);
    expect(after.last(0)).toEqual({ offset: 2, digest: digestEntry(entry('a')) });
    expect(after.lookUp(0, keyOf('a'))).toEqual({
      offset: 0,
      value: entry('a').value,
      appendedAtMs: 1_700_000_000_000,
    });
    after.apply(0, [at(3, entry('a')), at(4, entry('c'))]);
    expect([offsetOf(after.lookUp(0, keyOf('a'))), offsetOf(after.lookUp(0, keyOf('c')))]).toEqual([0, 4]);
  });

  it.each([
    ['cluster', { ...BINDING, clusterId: 'c2' }],
    ['topic', { ...BINDING, ledgerTopic: 'id.ledger2' }],
    ['partition count', { ...BINDING, partitions: 3 }],
  ])('begins empty for another %s', (_, binding) => {
    const before = open();
    before.apply(0, [at(0, entry('a'))]);
    close(before);
    const other = open(binding);
    expect([other.end(0), other.through(0), other.last(0), other.lookUp(0, keyOf('a'))]).toEqual([
      0,
      -1,
      undefined,
      undefined,
    ]);
    close(other);
    expect(open().end(0)).toBe(0);
  });

  it.each([
    ['a wipe', (index: SqliteIndex) => index.wipe(0, 5)],
    ['an apply', (index: SqliteIndex) => index.apply(0, [at(1, entry('b'))])],
  ])('stays as it was when %s can not be committed, whether the store rolls it back by itself or not', (_, change) => {
    const index = open();
    index.apply(0, [at(0, entry('a'))]);
    for (const byItself of [true, false]) {
      failCommits(byItself);
      expect(() => change(index)).toThrow('the disk is full');
      vi.restoreAllMocks();
      expect([index.end(0), index.last(0)?.offset, offsetOf(index.lookUp(0, keyOf('a')))]).toEqual([1, 0, 0]);
    }
    close(index);
    const after = open();
    expect([after.end(0), offsetOf(after.lookUp(0, keyOf('a'))), after.lookUp(0, keyOf('b'))]).toEqual([
      1,
      0,
      undefined,
    ]);
    after.apply(0, [at(1, entry('b'))]);
    expect(after.lookUp(0, keyOf('b'))).toMatchObject({ offset: 1 });
  });

  it('finds each of many keys', () => {
    const index = open();
    const ids = Array.from({ length: 5_000 }, (_, i) => `key ${i}`);
    for (let from = 0; from < ids.length; from += 500) {
      index.apply(
        0,
        ids.slice(from, from + 500).map((id, i) => at(from + i, entry(id))),
      );
    }
    expect(ids.every((id, offset) => offsetOf(index.lookUp(0, keyOf(id))) === offset)).toBe(true);
  });

  it('refuses a partition that it does not have', () => {
    expect(() => open().end(2)).toThrow(RangeError);
  });
});

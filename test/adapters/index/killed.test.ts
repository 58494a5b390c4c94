import { copyFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { entry } from '../../support/memory-records.ts';
import { at, BINDING, IndexDirectory, keyOf, perTest, toTheEnd } from './index-directory.ts';

const world = perTest();
const RUN = 1_024;
const PART = 128;
/** The number of entries after which keys repeat. */
const LAP = 5_000;
/** Enough entries for eight runs and their merge, and some more. */
const [MERGING, MERGED] = [8 * RUN, 8 * RUN + 16 * PART];

function apply(index: SqliteIndex, from: number, to: number): void {
  for (let start = from; start < to; start += PART) {
    index.apply(
      0,
      Array.from({ length: PART }, (_, i) => at(start + i, entry(`k${(start + i) % LAP}`, { end: start }))),
    );
  }
}

/** Keys by which the answers of an index are compared. */
const keys = Array.from({ length: 400 }, (_, i) => keyOf(`k${i * 11}`));
const answers = (index: SqliteIndex) => keys.map((key) => index.placesOf(0, key));
const expected = (end: number) =>
  keys.map((_, i) => [0, 1, 2].map((lap) => lap * LAP + i * 11).filter((offset) => offset < end));

/** Rows of items by level, of runs and of the open run. */
function rows(directory: IndexDirectory): number[] {
  const tables = ['items_0_0', 'items_0_1', 'filter_0', 'run_0', 'open_0'];
  return tables.map((table) => Number(directory.query(`SELECT count(*) AS n FROM ${table}`)[0]?.n));
}

/** What a process leaves on disk that is killed now. */
function killedCopy(): IndexDirectory {
  const killed = new IndexDirectory();
  for (const suffix of ['', '-wal']) copyFileSync(world.directory.file + suffix, killed.file + suffix);
  return killed;
}

describe('a process that is killed between two saves', () => {
  it('leaves an older index, by less than a quarter of a run, which goes on from there', () => {
    const index = world.directory.open(BINDING, RUN);
    const behind: number[] = [];
    for (let end = PART; end <= 2 * RUN; end += PART) {
      apply(index, end - PART, end);
      const killed = killedCopy();
      try {
        const after = killed.open(BINDING, RUN);
        const found = after.end(0);
        expect(answers(after)).toEqual(expected(found));
        behind.push(end - found);
        apply(after, found, end);
        expect([after.end(0), answers(after)]).toEqual([end, expected(end)]);
        expect(killed.wiped).toEqual([]);
      } finally {
        killed.remove();
      }
    }
    expect(new Set(behind)).toEqual(new Set([PART, 0]));
  });

  it('leaves all that was saved', () => {
    const index = world.directory.open(BINDING, RUN);
    apply(index, 0, PART);
    index.save(0);
    const killed = killedCopy();
    try {
      expect(killed.open(BINDING, RUN).end(0)).toBe(PART);
    } finally {
      killed.remove();
    }
  });
});

describe('a process that is killed between the transactions of a merge', () => {
  it('leaves an index with the same results, which finishes the merge after the restart', () => {
    const index = world.directory.open(BINDING, RUN);
    apply(index, 0, MERGING - PART);
    let unfinished = 0;
    for (let end = MERGING; end <= MERGED; end += PART) {
      apply(index, end - PART, end);
      index.save(0);
      const crashed = killedCopy();
      try {
        const half = crashed.query('SELECT count(*) AS n FROM run_0 WHERE whole = 0 AND level = 1');
        unfinished += Number(half[0]?.n);
        const after = crashed.open(BINDING, RUN);
        expect([after.end(0), answers(after)]).toEqual([end, expected(end)]);
        apply(after, end, end + MERGED - MERGING);
        expect(answers(after)).toEqual(expected(end + MERGED - MERGING));
        toTheEnd(() => after.expire(0, 0));
        crashed.close(after);
        expect(crashed.wiped).toEqual([]);
        const sealed = Math.floor((end + MERGED - MERGING) / RUN);
        const [items, merged, filters, runs] = rows(crashed);
        expect([items, merged, filters, runs]).toEqual([(sealed - 8) * 8, 64, sealed - 7, sealed - 7]);
      } finally {
        crashed.remove();
      }
    }
    expect(unfinished).toBeGreaterThan(4);
  });
});

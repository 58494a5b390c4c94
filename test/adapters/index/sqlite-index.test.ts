import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { digestEntry } from '../../../src/codec/ledger-digest.ts';
import { at, BINDING, keyOf, perTest } from '../../support/index-directory.ts';
import { entry, offsetOf } from '../../support/memory-records.ts';

const world = perTest();

/** How many rows the tables of the first partition have, by their names. */
function rows(): Record<string, unknown> {
  const db = new DatabaseSync(world.directory.file, { readOnly: true });
  try {
    const count = (table: string) => Number(db.prepare(`SELECT count(*) AS n FROM ${table}_0`).get()?.n);
    return { block: count('block'), chunk: count('chunk'), run: count('run') };
  } finally {
    db.close();
  }
}

describe('an index on disk', () => {
  it('keeps end, highest request offset, last entry and all first entries over a restart', () => {
    const before = world.directory.open();
    before.apply(0, [at(0, entry('a')), at(1, entry('b', { requestOffset: 9 })), at(2, entry('a'))]);
    before.wipe(1, 7);
    world.directory.close(before);
    const after = world.directory.open();
    expect([after.end(0), after.through(0), after.end(1), after.last(1)]).toEqual([3, 9, 7, undefined]);
    expect(after.last(0)).toEqual({ offset: 2, digest: digestEntry(at(2, entry('a'))) });
    expect(after.lookUp(0, keyOf('a'))).toEqual({
      offset: 0,
      value: entry('a').value,
      appendedAtMs: 1_700_000_000_000,
    });
    after.apply(0, [at(3, entry('a')), at(4, entry('c'))]);
    expect([offsetOf(after.lookUp(0, keyOf('a'))), offsetOf(after.lookUp(0, keyOf('c')))]).toEqual([0, 4]);
    expect(world.directory.wiped).toEqual([]);
  });

  it.each([
    ['cluster', { ...BINDING, clusterId: 'c2' }],
    ['topic', { ...BINDING, ledgerTopic: 'id.ledger2' }],
    ['partition count', { ...BINDING, partitions: 3 }],
  ])('begins empty for another %s, and says so', (_, binding) => {
    const before = world.directory.open();
    before.apply(0, [at(0, entry('a'))]);
    world.directory.close(before);
    const other = world.directory.open(binding);
    expect([other.end(0), other.through(0), other.last(0), other.lookUp(0, keyOf('a'))]).toEqual([
      0,
      -1,
      undefined,
      undefined,
    ]);
    expect(world.directory.wiped).toEqual([expect.stringContaining('c1')]);
    world.directory.close(other);
    expect(world.directory.open().end(0)).toBe(0);
  });

  it.each([
    ['the length that ships', undefined],
    ['short ones', 64],
  ])(
    'finds each of many keys, and no other, in runs of %s, also when opened again',
    (_, runEntries) => {
      const index = world.directory.open(BINDING, runEntries ?? 32_768);
      const ids = Array.from({ length: 40_000 }, (_, i) => `key ${i}`);
      for (let from = 0; from < ids.length; from += 1_000) {
        index.apply(
          0,
          ids.slice(from, from + 1_000).map((id, i) => at(from + i, entry(id))),
        );
      }
      const wrong = (in_: typeof index) => [
        ...ids.filter((id, offset) => offsetOf(in_.lookUp(0, keyOf(id))) !== offset),
        ...ids.filter((id) => in_.lookUp(0, keyOf(`no ${id}`)) !== undefined),
      ];
      expect(wrong(index)).toEqual([]);
      world.directory.close(index);
      expect(wrong(world.directory.open(BINDING, runEntries ?? 32_768))).toEqual([]);
    },
    60_000,
  );

  it.each([
    ['expired', (index: ReturnType<typeof world.directory.open>) => index.expire(0, 9_600)],
    ['wiped', (index: ReturnType<typeof world.directory.open>) => index.wipe(0, 0)],
  ])('gives back the space of what was %s, in steps of which none is long', (_, forget) => {
    const index = world.directory.open(BINDING, 64);
    for (let from = 0; from < 9_600; from += 800) {
      index.apply(
        0,
        Array.from({ length: 800 }, (_, i) => at(from + i, entry(`key ${from + i}`, { end: from + i }))),
      );
    }
    forget(index);
    let steps = 1;
    while (index.expire(0, 9_600)) steps += 1;
    expect(steps).toBeGreaterThan(3);
    expect(steps).toBeLessThan(200);
    world.directory.close(index);
    expect(rows()).toEqual({ block: 0, chunk: 0, run: 0 });
  });

  it('writes to a run the keys of its own entries alone, also after a wipe in the middle of one', () => {
    const index = world.directory.open();
    index.apply(0, [at(0, entry('a')), at(1, entry('b')), at(2, entry('c'))]);
    index.wipe(0, 0);
    index.apply(
      0,
      ['d', 'e', 'f', 'g'].map((id, offset) => at(offset, entry(id))),
    );
    world.directory.close(index);
    const db = new DatabaseSync(world.directory.file, { readOnly: true });
    expect(db.prepare('SELECT sum(length(packed)) / 8 AS keys FROM chunk_0').get()).toMatchObject({ keys: 4 });
    db.close();
  });

  it('refuses a partition that it does not have', () => {
    expect(() => world.directory.open().end(2)).toThrow(RangeError);
  });
});

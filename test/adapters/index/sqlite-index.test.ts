import { isDeepStrictEqual } from 'node:util';
import { describe, expect, it } from 'vitest';
import { type HashSeed, hashKey } from '../../../src/adapters/index/items.ts';
import type { SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { digestEntry, EntryKey } from '../../../src/codec/ledger-key.ts';
import { type Decided, readDecided } from '../../../src/ledger/decided.ts';
import { examplesOf } from '../../support/examples.ts';
import { entry, numbers, statement } from '../../support/memory-records.ts';
import { seeded } from '../../support/seeded.ts';
import { at, BINDING, keyOf, marker, perTest, RUN, SEED, toTheEnd } from './index-directory.ts';

const world = perTest();

/** Keys of the large indexes: 'key 0' and so on; 'no 0' and so on are not in them. */
const MANY = 80_000;
/** Any seed will do. One in 2,750 lets two of these keys share a hash, one in 1,400 one of them and an absent one. */
const anySeed = (): HashSeed => ({ low: seeded('hash seed').below(2 ** 31), high: 0 });
/** 'key 27573' and 'key 29779' share a hash. */
const TWO_SHARE: HashSeed = { low: 382, high: 0 };
/** 'key 43073' and 'no 45483' share a hash. */
const ABSENT_SHARES: HashSeed = { low: 1_483, high: 0 };
/** The numbers of those keys. */
const SHARING = [27_573, 29_779, 43_073, 45_483];

/** The number of rows in the tables of the first partition. */
function rows(): number {
  const tables = ['open_0', 'run_0', 'filter_0', 'items_0_0', 'items_0_1', 'items_0_2', 'items_0_3'];
  return tables.reduce(
    (sum, table) => sum + Number(world.directory.query(`SELECT count(*) AS n FROM ${table}`)[0]?.n),
    0,
  );
}

function fill(index: SqliteIndex, to: number, part = 800): void {
  for (let from = 0; from < to; from += part) {
    index.apply(
      0,
      Array.from({ length: part }, (_, i) => at(from + i, entry(`key ${from + i}`, { end: from + i }))),
    );
  }
}

describe('an index on disk', () => {
  it('keeps end, highest request offset, last entry and all offsets across a restart', () => {
    const before = world.directory.open();
    before.apply(0, [at(0, entry('a')), at(1, entry('b', { requestOffset: 9 })), at(2, entry('a'))]);
    before.wipe(1, 7);
    world.directory.close(before);
    const after = world.directory.open();
    expect([after.end(0), after.through(0), after.end(1), after.last(1)]).toEqual([3, 9, 7, undefined]);
    expect(after.last(0)).toEqual({ offset: 2, digest: digestEntry(at(2, entry('a'))) });
    expect(after.placesOf(0, keyOf('a'))).toEqual([0, 2]);
    after.apply(0, [at(3, entry('a')), at(4, entry('c'))]);
    expect([after.placesOf(0, keyOf('a')), after.placesOf(0, keyOf('c'))]).toEqual([[0, 2, 3], [4]]);
    expect(world.directory.wiped).toEqual([]);
  });

  it('keeps across a restart since when it knows all, as a trusted clock has shown it', () => {
    const before = world.directory.open();
    before.wipe(0, 7);
    before.apply(0, [{ ...at(7, marker(6, 7)), appendedAtMs: 1_900_000_000_000 }]);
    before.missedBefore(0, 1_700_000_000_500);
    world.directory.close(before);
    expect(world.directory.open().since(0)).toBe(1_700_000_000_500);
  });

  it('keeps what it knows of sequences across a restart, with editions and gaps, and that a wipe forgot them', () => {
    const restarted = (index: SqliteIndex) => {
      const rows = [0, 1].map((partition) => index.sequence(partition, 'invoices'));
      world.directory.close(index);
      const after = world.directory.open();
      expect([0, 1].map((partition) => after.sequence(partition, 'invoices'))).toEqual(rows);
      return { after, rows };
    };
    const stated = at(0, statement(0, { next: 7, step: 2, format: 'INV-{number:6}' }));
    const before = world.directory.open();
    before.apply(0, [stated, at(1, numbers('a', { at: 1, first: 7, count: 4, step: 2 }))]);
    before.apply(1, [
      at(0, statement(0, { next: 99, closed: true, edition: 7 })),
      at(1, numbers('b', { at: 1, first: 200 })),
    ]);
    const { after, rows } = restarted(before);
    expect(rows).toMatchObject([
      { known: { next: 15, edition: 1 }, stated: { offset: 0 }, gap: 0 },
      { known: { next: 201, closed: true, edition: 7 }, gap: 200 },
    ]);
    for (const partition of [0, 1]) after.wipe(partition, 0);
    after.apply(0, [stated]);
    const again = restarted(after).rows;
    expect(again[0]).toMatchObject({ known: { next: 7 }, gap: 0 });
    expect(again[1]).toBeUndefined();
    expect(world.directory.wiped).toEqual([]);
  });

  it('rejects calls after it was closed, and keeps its content', () => {
    const before = world.directory.open();
    before.apply(0, [at(0, entry('a'))]);
    world.directory.close(before);
    const closed = expect.objectContaining({ code: 'STOPPING' });
    expect(() => before.apply(0, [at(1, entry('b'))])).toThrow(closed);
    expect(() => before.placesOf(0, keyOf('a'))).toThrow(closed);
    expect(() => before.load(1)).toThrow(closed);
    expect(world.directory.wiped).toEqual([]);
    const after = world.directory.open();
    expect([after.end(0), after.placesOf(0, keyOf('a'))]).toEqual([1, [0]]);
  });

  it('knows after a restart when the first entry of the open run was appended', () => {
    const before = world.directory.open();
    before.apply(
      0,
      [0, 1, 2, 3].map((offset) => at(offset, entry(`k${offset}`, { end: offset }))),
    );
    before.apply(0, [at(4, marker(3, 4)), at(5, entry('k5', { end: 5 })), at(6, entry('k6', { end: 6 }))]);
    world.directory.close(before);
    const after = world.directory.open();
    toTheEnd(() => after.expire(0, 4));
    expect([after.origin(0), after.since(0)]).toEqual([4, 1_700_000_000_005]);
  });

  it.each([
    ['cluster', { ...BINDING, clusterId: 'c2' }],
    ['topic', { ...BINDING, ledgerTopic: 'id.ledger2' }],
    ['partition count', { ...BINDING, partitions: 3 }],
  ])('starts empty for another %s, reports it, and keeps the copies until that one is back', (_, binding) => {
    const before = world.directory.open();
    before.apply(0, [at(0, entry('a'))]);
    world.directory.close(before);
    const bare = world.directory.openBare(binding);
    expect([bare.held(), world.directory.wiped]).toEqual([[], [expect.stringMatching(/c1.*kept in/)]]);
    world.directory.close(bare);
    const other = world.directory.open(binding);
    const readings = [other.end(0), other.through(0), other.last(0), other.placesOf(0, keyOf('a'))];
    expect(readings).toEqual([0, -1, undefined, []]);
    world.directory.close(other);
    expect(world.directory.open().placesOf(0, keyOf('a'))).toEqual([0]);
  });

  it.each([
    ['', ['c1', 'c2', 'c3', 'c4'], { c3: 1, c1: 0 }],
    [', however often they come back', ['c1', 'c2', 'c3'], { c1: 1, c2: 1, c3: 1 }],
  ])('keeps the copies of the last two other ledgers%s', (_, clusters, expected) => {
    const withIndex = <T>(clusterId: string, use: (index: SqliteIndex) => T): T => {
      const index = world.directory.open({ ...BINDING, clusterId });
      const result = use(index);
      world.directory.close(index);
      return result;
    };
    for (const cluster of clusters) withIndex(cluster, (index) => void index.apply(0, [at(0, entry('a'))]));
    const ends = Object.keys(expected).map((cluster) => [cluster, withIndex(cluster, (index) => index.end(0))]);
    expect(Object.fromEntries(ends)).toEqual(expected);
  });

  it.each([
    ['of the length that ships', 4_096, undefined],
    ['of short ones', 64, undefined],
    ['of the length that ships, where two keys share a hash', 4_096, TWO_SHARE],
    ['of short ones, where a key shares its hash with an absent one', 64, ABSENT_SHARES],
  ])(
    'finds each of many keys, and others only with its hash, in runs %s, also when opened again',
    (_, runEntries, fixed) => {
      const seed = fixed ?? anySeed();
      const hashOf = (id: string) => hashKey(EntryKey.of(keyOf(id)), seed);
      const byHash = Map.groupBy(
        Array.from({ length: MANY }, (__, offset) => offset),
        (offset) => hashOf(`key ${offset}`),
      );
      const index = world.directory.open(BINDING, runEntries, seed);
      fill(index, MANY);
      const offsets = new Set([...examplesOf(Array.from({ length: MANY }, (__, offset) => offset)), ...SHARING]);
      const wrong = (in_: SqliteIndex) => {
        return [...offsets].flatMap((offset) => {
          return [`key ${offset}`, `no ${offset}`].flatMap((id) => {
            const found = in_.placesOf(0, keyOf(id));
            const expected = byHash.get(hashOf(id)) ?? [];
            return isDeepStrictEqual(found, expected) ? [] : [{ id, found, expected }];
          });
        });
      };
      expect(wrong(index), `hashes with the seed ${JSON.stringify(seed)}`).toEqual([]);
      world.directory.close(index);
      expect(wrong(world.directory.open(BINDING, runEntries, SEED))).toEqual([]);
    },
  );

  it('keys that share a hash are told apart by their entries in the ledger', async () => {
    const [first, second] = ['key 27573', 'key 29779'];
    const absent = 'another key';
    const records = [at(0, entry(first)), at(1, entry(second, { end: 1 }))];
    const index = world.directory.open(BINDING, RUN, TWO_SHARE);
    const invalidated: string[] = [];
    const copy = {
      partition: 0,
      life: 0,
      refusal: undefined,
      invalidate: (cause: string) => void invalidated.push(cause),
    };
    const read = async (_: number, offsets: readonly number[]) => {
      return new Map(records.filter(({ offset }) => offsets.includes(offset)).map((record) => [record.offset, record]));
    };
    const decidedAt = async () => {
      const keys = [first, second, absent].map((id) => ({ key: EntryKey.of(keyOf(id)) }));
      const decisions = await readDecided({ index, copy, entries: { read }, monotonicMs: () => 0 }, keys);
      return keys.map(({ key: { name } }) => (decisions.get(name) as Decided | undefined)?.offset);
    };
    index.apply(0, records.slice(0, 1));
    expect(index.placesOf(0, keyOf(second))).toEqual([0]);
    expect(await decidedAt()).toEqual([0, undefined, undefined]);
    index.apply(0, records.slice(1));
    expect([first, second].map((id) => index.placesOf(0, keyOf(id)))).toEqual([
      [0, 1],
      [0, 1],
    ]);
    expect(await decidedAt()).toEqual([0, 1, undefined]);
    expect(invalidated).toEqual([]);
  });

  it('keeps the seed that its file was created with; an index that replaces it gets a new one', () => {
    const seedIn = () => String(world.directory.query('SELECT hex(seed) AS seed FROM binding')[0]?.seed);
    const [one, other] = [
      { low: 1, high: -1 },
      { low: 2, high: 3 },
    ];
    world.directory.close(world.directory.open(BINDING, RUN, one));
    world.directory.close(world.directory.open(BINDING, RUN, other));
    expect(seedIn()).toBe('00000001FFFFFFFF');
    world.directory.close(world.directory.open({ ...BINDING, clusterId: 'c2' }, RUN, other));
    expect(seedIn()).toBe('0000000200000003');
  });

  it.each([
    ['expired', (index: SqliteIndex) => index.expire(0, 33_600)],
    ['wiped', (index: SqliteIndex) => index.wipe(0, 0)],
  ])('frees the space of what was %s, in short steps', (_, forget) => {
    const index = world.directory.open(BINDING, 16);
    fill(index, 33_600);
    forget(index);
    const steps = toTheEnd(() => index.expire(0, 33_600));
    expect(steps).toBeGreaterThan(3);
    world.directory.close(index);
    expect(rows()).toBe(0);
  });

  it('frees the space of merged runs while it is filled', () => {
    const index = world.directory.open(BINDING, 16);
    fill(index, 33_600);
    fill(index, 33_600 + 16_000);
    world.directory.close(index);
    const [items] = world.directory.query('SELECT sum(length(bytes)) / 8 AS items FROM items_0_0');
    expect(Number(items?.items)).toBeLessThan(16 * 8 * 4);
  });

  it('writes to a run only the keys of its own entries, even after a wipe in the middle of one', () => {
    const index = world.directory.open();
    index.apply(0, [at(0, entry('a')), at(1, entry('b')), at(2, entry('c'))]);
    index.wipe(0, 0);
    index.apply(
      0,
      ['d', 'e', 'f', 'g'].map((id, offset) => at(offset, entry(id))),
    );
    world.directory.close(index);
    const items = world.directory.query('SELECT sum(length(bytes)) / 8 AS items FROM items_0_0');
    expect(items).toMatchObject([{ items: 4 }]);
  });

  it.each([0, 3, 8_192, 1.5])('rejects runs of %d entries', (runEntries) => {
    expect(() => world.directory.openBare(BINDING, runEntries)).toThrow(RangeError);
  });
});

import { describe, expect, it } from 'vitest';
import type { SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { entry } from '../../support/memory-records.ts';
import { seeded } from '../../support/seeded.ts';
import { at, BINDING, keyOf, perTest, RUN, toTheEnd } from './index-directory.ts';

const world = perTest();
/** So that a run of the last level has 512 entries. */
const SHORT = 1;
const LAST = 512;

function fill(index: SqliteIndex, from: number, to: number): void {
  for (let start = from; start < to; start += 500) {
    const records = Array.from({ length: Math.min(500, to - start) }, (_, i) =>
      at(start + i, entry(`k${start + i}`, { end: start })),
    );
    index.apply(0, records);
  }
}

/** Expects that every fifth key and the newest ones are found from the origin on, and none before. */
function expectFound(index: SqliteIndex): void {
  const [origin, end] = [index.origin(0), index.end(0)];
  const wrong: number[] = [];
  for (let offset = 0; offset < end; offset += offset < end - 100 ? 5 : 1) {
    const places = index.placesOf(0, keyOf(`k${offset}`));
    if (places.join() !== (offset < origin ? '' : `${offset}`)) wrong.push(offset);
  }
  expect(wrong).toEqual([]);
}

describe('runs of the last level', () => {
  const open = () => world.directory.open(BINDING, SHORT);
  const lastRuns = () =>
    Number(world.directory.query('SELECT count(*) AS n FROM run_0 WHERE level = 3 AND whole = 1')[0]?.n);

  it('show each of their keys, however many there are, which expire while another one is merged', () => {
    let index = open();
    fill(index, 0, 36 * LAST);
    expectFound(index);
    world.directory.close(index);
    expect(lastRuns()).toBeGreaterThan(32);
    index = open();
    expectFound(index);
    const random = seeded('last level');
    for (let round = 0; round < 6; round += 1) {
      const end = index.end(0);
      fill(index, end, end + LAST / 2 + random.below(LAST)); // most often with a merge half done
      const low = index.origin(0) + random.below(8 * LAST);
      toTheEnd(() => index.expire(0, low));
      expect(index.origin(0)).toBeGreaterThan(low - LAST);
      expectFound(index);
      if (round % 2 === 1) continue;
      world.directory.close(index);
      index = open();
    }
    expect(world.directory.wiped).toEqual([]);
  });

  it('expire all, also with the runs that are being merged into one, and others follow', () => {
    const index = open();
    fill(index, 0, 3 * LAST + LAST / 2);
    toTheEnd(() => index.expire(0, 3 * LAST + LAST / 2));
    expect(index.origin(0)).toBeGreaterThan(3 * LAST);
    fill(index, index.end(0), 6 * LAST);
    expectFound(index);
    world.directory.close(index);
    expect(lastRuns()).toBeGreaterThan(0);
  });
});

describe('a key that was looked up in vain', () => {
  it('is found once it was applied, wherever its entry has moved since', () => {
    const index = world.directory.open();
    for (let offset = 0; offset < 40 * RUN; offset += 1) {
      const key = keyOf(`k${offset}`);
      expect(index.placesOf(0, key)).toEqual([]);
      const firsts = new Set<number>();
      index.apply(0, [at(offset, entry(`k${offset}`, { end: offset }))], firsts);
      expect(firsts).toEqual(new Set([offset]));
      expect(index.placesOf(0, keyOf(`k${offset}`))).toEqual([offset]);
    }
    expectFound(index);
  });

  it('is no first entry if another one was sealed between the look-up and its own', () => {
    const index = world.directory.open();
    fill(index, 0, 3);
    expect(index.placesOf(0, keyOf('late'))).toEqual([]);
    index.apply(0, [at(3, entry('late', { end: 3 }))]);
    fill(index, 4, 4 + 9 * RUN);
    const firsts = new Set<number>();
    index.apply(0, [at(index.end(0), entry('late', { end: 3 }))], firsts);
    expect(firsts).toEqual(new Set());
    expect(index.placesOf(0, keyOf('late'))).toEqual([3, 4 + 9 * RUN]);
  });

  it('is found at a lower offset after the partition was wiped', () => {
    const index = world.directory.open();
    fill(index, 0, 10 * RUN);
    expect(index.placesOf(0, keyOf('again'))).toEqual([]);
    index.wipe(0, 0);
    index.apply(0, [at(0, entry('again'))]);
    fill(index, 1, 4 * RUN);
    expect(index.placesOf(0, keyOf('again'))).toEqual([0]);
  });
});

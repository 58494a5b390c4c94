import { describe, expect, it } from 'vitest';
import type { LedgerIndex } from '../../../src/ledger/ledger-ports.ts';
import { entry } from '../../support/memory-records.ts';
import { allIndexes, at, keyOf, marker, perTest, toTheEnd } from './index-directory.ts';

const world = perTest();

/** Entries decided one by one. */
function decided(from: number, to: number) {
  return Array.from({ length: to - from }, (_, i) => {
    const offset = from + i;
    return at(offset, entry(`k${offset}`, { end: offset, requestOffset: 100 + offset, through: 99 + offset }));
  });
}

const expire = (index: LedgerIndex, low: number) => toTheEnd(() => index.expire(0, low));
const places = (index: LedgerIndex, ids: string[]) => ids.map((id) => index.placesOf(0, keyOf(id)));

describe.each(allIndexes(world))('the head of an index %s', (_, make) => {
  function twelve(): LedgerIndex {
    const index = make();
    index.apply(0, decided(0, 12));
    return index;
  }

  it('is removed with the head of the log, and the rest stays', () => {
    const index = twelve();
    expire(index, 8);
    expect(places(index, ['k0', 'k7', 'k8', 'k11'])).toEqual([[], [], [8], [11]]);
    expect([index.origin(0), index.end(0), index.through(0), index.last(0)?.offset]).toEqual([8, 12, 111, 11]);
  });

  it('leaves a horizon: the highest request offset of the removed entries', () => {
    const index = make();
    const requests = [103, 100, 107, 101, 104, 105, 106, 102];
    index.apply(
      0,
      requests.map((requestOffset, i) => at(i, entry(`k${i}`, { end: i, requestOffset }))),
    );
    expect(index.horizon(0)).toBe(-1);
    expire(index, 4);
    expect(index.horizon(0)).toBe(107);
    expire(index, 8);
    expect(index.horizon(0)).toBe(107);
  });

  it('never lowers a horizon', () => {
    const index = make();
    index.wipe(0, 4);
    index.apply(
      0,
      [4, 5, 6, 7, 8].map((offset) => at(offset, entry(`k${offset}`, { end: offset, through: 900, requestOffset: 5 }))),
    );
    expire(index, 8);
    expect([index.origin(0), index.horizon(0)]).toEqual([8, 900]);
  });

  it('is kept while there is no horizon', () => {
    const index = make();
    index.wipe(0, 4);
    index.apply(
      0,
      [4, 5, 6, 7, 8].map((offset) => at(offset, entry(`k${offset}`, { end: 3 }))),
    );
    expire(index, 8);
    expect([index.origin(0), index.horizon(0), places(index, ['k4', 'k8'])]).toEqual([4, undefined, [[4], [8]]]);
  });

  it('does not make a later entry the first of its key, unless its writer had read what was removed', () => {
    const index = make();
    index.apply(
      0,
      [0, 1, 2, 3, 4].map((offset) => at(offset, entry(`k${offset}`))),
    );
    expire(index, 4);
    const firsts = new Set<number>();
    index.apply(0, [at(5, entry('k0', { end: 3 })), at(6, entry('k1', { end: 4 }))], firsts);
    expect([places(index, ['k0', 'k1']), firsts]).toEqual([[[5], [6]], new Set([6])]);
  });

  it('may be the whole index; later entries are found', () => {
    const index = twelve();
    expire(index, 12);
    expect(places(index, ['k11'])).toEqual([[]]);
    index.apply(0, [at(12, entry('new', { end: 12 }))]);
    expect([places(index, ['new']), index.horizon(0)]).toEqual([[[12]], 111]);
  });

  it('of another partition stays', () => {
    const index = twelve();
    index.apply(1, [at(0, entry('k0'))]);
    expire(index, 8);
    expect(index.placesOf(1, keyOf('k0'))).toEqual([0]);
  });

  it('leaves the time from which decisions are known: the append of the first remaining entry, not counting markers', () => {
    const index = twelve();
    expire(index, 8);
    expect(index.since(0)).toBe(1_700_000_000_008);
    index.apply(
      0,
      [12, 13, 14, 15].map((offset) => at(offset, marker(200, offset))),
    );
    expire(index, 12);
    expect(index.since(0)).toBe(1_700_000_000_015);
    index.apply(0, [at(16, marker(200, 16)), ...decided(17, 19)]);
    expire(index, 16);
    expect(index.since(0)).toBe(1_700_000_000_017);
  });
});

describe('the head of an index with merged runs', () => {
  /** 80 of 4 entries make one of the third level, two of the second. */
  function merged() {
    const index = world.directory.open();
    for (let from = 0; from < 320; from += 4) index.apply(0, decided(from, from + 4));
    return index;
  }

  it('is removed only in whole runs, so up to one run of it may stay', () => {
    const index = merged();
    expire(index, 250);
    expect(index.origin(0)).toBe(0);
    expire(index, 300);
    expect(index.origin(0)).toBe(288);
    expect(places(index, ['k287', 'k288'])).toEqual([[], [288]]);
    expect([index.horizon(0), index.since(0)]).toEqual([387, 1_700_000_000_288]);
  });

  it('can be removed while some of it is being merged', () => {
    const index = world.directory.open(undefined, 1_024);
    for (let from = 0; from < 8_192 + 256; from += 128) index.apply(0, decided(from, from + 128));
    expire(index, 1_024);
    expect(index.origin(0)).toBe(1_024);
    for (let from = 8_448; from < 20_480; from += 128) index.apply(0, decided(from, from + 128));
    expect(places(index, ['k1023', 'k1024', 'k9000'])).toEqual([[], [1_024], [9_000]]);
  });
});

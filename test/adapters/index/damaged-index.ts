import { expect } from 'vitest';
import type { SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { entry } from '../../support/memory-records.ts';
import { at, keyOf } from './index-directory.ts';

/** What `fill` applies: sealed runs of two levels, and some entries in the open one. */
export const KEYS = 4_000;
export const RUN_OF_MANY = 256;
const PART = 500;

export function some(from: number, length: number) {
  return Array.from({ length }, (_, i) => at(from + i, entry(`k${from + i}`, { end: from })));
}

/** Applies the entries [from, to) to the first partition, and as many to the second one when they are the first. */
export function fill(index: SqliteIndex, from = 0, to = KEYS): void {
  for (let start = from; start < to; start += PART) {
    index.apply(0, some(start, Math.min(PART, to - start)));
    if (from === 0) index.apply(1, some(start, PART));
  }
}

/** Expects that the index is empty, and can be written. */
export function expectRestorable(index: SqliteIndex): void {
  const state = [index.end(0), index.last(0), index.horizon(0), index.placesOf(0, keyOf('k1'))];
  expect(state).toEqual([0, undefined, -1, []]);
  index.apply(0, some(0, 10));
  expect(index.placesOf(0, keyOf('k7'))).toEqual([7]);
}

import { describe, expect, it } from 'vitest';
import type { SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { entry, statement } from '../../support/memory-records.ts';
import { at, BINDING, keyOf, perTest, toTheEnd } from './index-directory.ts';

const world = perTest();
const RUN = 64;
const OF_FIRST = /^[a-z]+_0/;

function fill(index: SqliteIndex, partition: number, entries: number): void {
  for (let from = 0; from < entries; from += 500) {
    index.apply(
      partition,
      Array.from({ length: 500 }, (_, i) => at(from + i, entry(`k${from + i}`))),
    );
  }
}

/** The names of all tables in the file. */
function tables(): string[] {
  return world.directory.query("SELECT name FROM sqlite_schema WHERE type = 'table'").map(({ name }) => String(name));
}

describe('the copies of partitions', () => {
  it('are on disk from the first load on, and not before', () => {
    const index = world.directory.openBare();
    expect(index.held()).toEqual([]);
    toTheEnd(() => index.load(1));
    expect(index.held()).toEqual([1]);
    toTheEnd(() => index.load(0));
    expect(index.held()).toEqual([0, 1]);
    world.directory.close(index);
    expect(world.directory.openBare().held()).toEqual([0, 1]);
  });

  it('leave nothing in the file for a partition that was never loaded', () => {
    const index = world.directory.openBare();
    toTheEnd(() => index.load(1));
    expect(index.drop(0)).toBe(false);
    world.directory.close(index);
    expect(tables().filter((name) => OF_FIRST.test(name))).toEqual([]);
    expect(world.directory.query('SELECT id FROM state')).toMatchObject([{ id: 1 }]);
  });

  it('have a table for a level of runs, and for sequences, from the first row of it until they are deleted', () => {
    let index = world.directory.open(BINDING, RUN);
    const later = () => {
      world.directory.close(index);
      const found = tables().filter((name) => /^(items_0_[123]|sequences_0)$/.test(name));
      index = world.directory.open(BINDING, RUN);
      return found;
    };
    expect(later()).toEqual([]);
    fill(index, 0, 1_000);
    index.apply(0, [at(1_000, statement(1_000))]);
    expect(later().toSorted()).toEqual(['items_0_1', 'sequences_0']);
    expect([...index.sequences(0)]).toHaveLength(1);
    toTheEnd(() => index.drop(0));
    toTheEnd(() => index.load(0));
    expect([later(), [...index.sequences(0)]]).toEqual([[], []]);
    index.apply(0, [at(0, statement(0))]);
    expect([later(), [...index.sequences(0)].length]).toEqual([['sequences_0'], 1]);
  });

  it("are opened in steps, filters first, and can't be used before the last step", () => {
    const before = world.directory.open(BINDING, RUN);
    fill(before, 0, 20_000);
    world.directory.close(before);
    const index = world.directory.openBare(BINDING, RUN);
    let steps = 1;
    for (; index.load(0); steps += 1) expect(() => index.end(0)).toThrow(RangeError);
    expect(steps).toBeGreaterThan(2);
    expect([index.end(0), index.placesOf(0, keyOf('k7'))]).toEqual([20_000, [7]]);
    expect(index.load(0)).toBe(false);
  });

  it('are deleted in steps, completely, and can be created again', () => {
    const index = world.directory.open(BINDING, RUN);
    fill(index, 0, 20_000);
    fill(index, 1, 500);
    expect(toTheEnd(() => index.drop(0))).toBeGreaterThan(5);
    expect([index.held(), index.drop(0)]).toEqual([[1], false]);
    toTheEnd(() => index.load(0));
    const readings = [index.end(0), index.through(0), index.horizon(0), index.since(0), index.last(0)];
    expect([...readings, index.placesOf(0, keyOf('k7'))]).toEqual([0, -1, -1, 0, undefined, []]);
    expect(index.placesOf(1, keyOf('k7'))).toEqual([7]);
    toTheEnd(() => index.drop(0));
    world.directory.close(index);
    expect(tables().filter((name) => OF_FIRST.test(name))).toEqual([]);
  });

  it('are no longer loaded from the first step of their deletion on', () => {
    const index = world.directory.open(BINDING, RUN);
    fill(index, 0, 500);
    expect(index.drop(0)).toBe(true);
    expect(() => index.end(0)).toThrow(RangeError);
    expect(index.held()).toEqual([0, 1]);
  });

  it.each([1, 5, 10])('are never opened half deleted, by a process that starts after %d steps of it', (steps) => {
    const before = world.directory.open(BINDING, RUN);
    fill(before, 0, 20_000);
    for (let i = 0; i < steps; i += 1) expect(before.drop(0)).toBe(true);
    world.directory.close(before);
    const index = world.directory.openBare(BINDING, RUN);
    expect(index.held()).toEqual([0, 1]);
    toTheEnd(() => index.load(0));
    expect([index.end(0), index.placesOf(0, keyOf('k7')), world.directory.wiped]).toEqual([0, [], []]);
  });

  it('are deleted further by a process that starts in the middle of it', () => {
    const before = world.directory.open(BINDING, RUN);
    fill(before, 0, 20_000);
    for (let i = 0; i < 5; i += 1) before.drop(0);
    world.directory.close(before);
    const index = world.directory.openBare(BINDING, RUN);
    toTheEnd(() => index.drop(0));
    expect(index.held()).toEqual([1]);
  });

  it('can be loaded or dropped again between steps', () => {
    const index = world.directory.open(BINDING, RUN);
    fill(index, 0, 20_000);
    world.directory.close(index);
    const again = world.directory.openBare(BINDING, RUN);
    again.load(0);
    again.drop(0);
    toTheEnd(() => again.load(0));
    expect(again.end(0)).toBe(0);
    fill(again, 0, 500);
    expect(again.placesOf(0, keyOf('k7'))).toEqual([7]);
  });

  it('reject every call for one that is not loaded, with its number', () => {
    const index = world.directory.openBare();
    const record = at(0, entry('a'));
    const uses = [
      () => index.end(0),
      () => index.origin(0),
      () => index.through(0),
      () => index.horizon(0),
      () => index.since(0),
      () => index.last(0),
      () => index.placesOf(0, keyOf('a')),
      () => index.apply(0, [record]),
      () => index.wipe(0, 0),
      () => index.expire(0, 0),
    ];
    for (const use of uses) {
      expect(use).toThrow(RangeError);
      expect(use).toThrow('ledger partition 0 ');
    }
    expect(index.held()).toEqual([]);
  });

  it.each([2, -1, 0.5])('reject partition %d, which the ledger does not have', (partition) => {
    const index = world.directory.openBare();
    expect(() => index.load(partition)).toThrow(RangeError);
    expect(() => index.drop(partition)).toThrow(RangeError);
    expect(index.held()).toEqual([]);
  });
});

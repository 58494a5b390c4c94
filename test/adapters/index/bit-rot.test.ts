import { readFileSync, writeFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import type { SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { Rng } from '../../sim/rng.ts';
import { at, BINDING, keyOf, perTest } from '../../support/index-directory.ts';
import { entry, offsetOf } from '../../support/memory-records.ts';

const world = perTest();
const RESTORING = expect.objectContaining({ code: 'INDEX_RESTORING' });

describe('one bit of the file that is not as it was written', { timeout: 60_000 }, () => {
  const [ENTRIES, RUN, FLIPS] = [90, 16, 200];
  const ids = Array.from({ length: ENTRIES }, (_, i) => `k${i}`);

  /** Where an index finds each key, and what it says of all, or that it has thrown its store away. */
  function told(index: SqliteIndex) {
    try {
      const answers = [...ids, 'new'].map((id) => offsetOf(index.lookUp(0, keyOf(id))));
      const state = [index.end(0), index.through(0), index.last(0)];
      while (index.expire(0, ENTRIES / 2));
      return { answers, state, horizon: index.horizon(0) };
    } catch (error) {
      expect(error).toEqual(RESTORING);
      expect(world.directory.wiped).toHaveLength(1);
      return 'thrown away';
    }
  }

  it('is noticed wherever it would lead to another entry, or to none', () => {
    const index = world.directory.open(BINDING, RUN);
    index.apply(
      0,
      ids.map((id, i) => at(i, entry(id, { end: i, requestOffset: i, through: i - 1 }))),
    );
    world.directory.close(index);
    const good = readFileSync(world.directory.file);
    const right = told(reopened());
    const random = new Rng(1);
    let noticed = 0;

    function reopened(): SqliteIndex {
      world.directory.wiped.length = 0;
      return world.directory.open(BINDING, RUN);
    }
    for (let flip = 0; flip < FLIPS; flip += 1) {
      const bytes = Buffer.from(good);
      const place = random.below(bytes.length);
      bytes[place] = (bytes[place] ?? 0) ^ (1 << random.below(8));
      world.directory.closeAll();
      writeFileSync(world.directory.file, bytes);
      const found = told(reopened());
      if (world.directory.wiped.length > 0) noticed += 1;
      else expect(found, `byte ${place} was ${good[place]}, is ${bytes[place]}`).toEqual(right);
    }
    expect(noticed).toBeGreaterThan(FLIPS / 20);
  });

  it('is noticed in the seed of all hashes, also when no newest key shows it', () => {
    const index = world.directory.open(BINDING, RUN);
    index.apply(
      0,
      ids.slice(0, RUN).map((id, i) => at(i, entry(id))),
    );
    world.directory.close(index);
    const db = new DatabaseSync(world.directory.file);
    db.exec('UPDATE binding SET seed = zeroblob(8)');
    db.close();
    expect(world.directory.open(BINDING, RUN).end(0)).toBe(0);
    expect(world.directory.wiped).toEqual([expect.stringContaining('what the store says of itself')]);
  });
});

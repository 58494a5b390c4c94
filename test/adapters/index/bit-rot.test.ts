import { readFileSync, writeFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { ALL_EXAMPLES, examples } from '../../support/examples.ts';
import { entry } from '../../support/memory-records.ts';
import { seeded } from '../../support/seeded.ts';
import { at, keyOf, perTest, RUN, toTheEnd } from './index-directory.ts';

const world = perTest();
const RESTORING = expect.objectContaining({ code: 'INDEX_RESTORING' });

describe('one flipped bit in the file', () => {
  /** Runs of two levels, and some entries in the open one. */
  const [ENTRIES, FLIPS] = [90, examples(300, 60)];
  const ids = Array.from({ length: ENTRIES }, (_, i) => `k${i}`);

  /** Opens an index on the file: where it finds each key, and its state; or 'replaced' if it replaced its store. */
  function readAll() {
    world.directory.wiped.length = 0;
    const index = world.directory.openBare();
    try {
      toTheEnd(() => index.load(0));
      const places = [...ids, 'new'].map((id) => index.placesOf(0, keyOf(id)));
      const state = [index.held(), index.end(0), index.through(0), index.last(0), index.since(0)];
      toTheEnd(() => index.expire(0, ENTRIES / 2));
      return { places, state, forgotten: [index.origin(0), index.horizon(0), index.since(0)] };
    } catch (error) {
      expect(error).toEqual(RESTORING);
      expect(world.directory.wiped).toHaveLength(1);
      return 'replaced';
    } finally {
      world.directory.close(index);
    }
  }

  it('is noticed wherever it would change the result of a look-up', () => {
    const index = world.directory.open();
    index.apply(
      0,
      ids.map((id, i) => at(i, entry(id, { end: i, requestOffset: i, through: i - 1 }))),
    );
    world.directory.close(index);
    const good = readFileSync(world.directory.file);
    const right = readAll();
    const random = seeded('bit rot');
    let noticed = 0;
    for (let flip = 0; flip < FLIPS; flip += 1) {
      const bytes = Buffer.from(good);
      const place = random.below(bytes.length);
      bytes[place] = (bytes[place] ?? 0) ^ (1 << random.below(8));
      writeFileSync(world.directory.file, bytes);
      const found = readAll();
      // A flip in the binding, which is read when the index is opened, leaves no partition at all.
      if (world.directory.wiped.length > 0) noticed += 1;
      else expect(found, `byte ${place} was ${good[place]}, is ${bytes[place]}`).toEqual(right);
    }
    // One byte in 15 matters, so of a few flips none may, but not of hundreds.
    if (ALL_EXAMPLES) expect(noticed).toBeGreaterThan(0);
  });

  it('makes no difference in the name of a column', () => {
    const index = world.directory.open();
    index.apply(
      0,
      ids.map((id, i) => at(i, entry(id, { end: i, requestOffset: i, through: i - 1 }))),
    );
    world.directory.close(index);
    const bytes = readFileSync(world.directory.file);
    const right = readAll();
    for (const name of ['through INTEGER', 'requests INTEGER', 'bytes BLOB']) {
      expect(bytes.includes(name)).toBe(true);
      const damaged = Buffer.from(name.toUpperCase());
      for (let place = bytes.indexOf(name); place !== -1; place = bytes.indexOf(name)) damaged.copy(bytes, place);
    }
    writeFileSync(world.directory.file, bytes);
    expect(readAll()).toEqual(right);
  });

  it("is noticed in the hash seed, even if the newest keys don't show it", () => {
    const index = world.directory.open();
    index.apply(
      0,
      ids.slice(0, RUN).map((id, i) => at(i, entry(id))),
    );
    world.directory.close(index);
    const db = new DatabaseSync(world.directory.file);
    db.exec('UPDATE binding SET seed = zeroblob(8)');
    db.close();
    expect(world.directory.open().end(0)).toBe(0);
    expect(world.directory.wiped).toEqual([expect.stringContaining('the binding of the index')]);
  });
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LedgerIndex } from '../../../src/pipeline/ports.ts';
import { at, BINDING, bothIndexes, IndexDirectory, keyOf, perTest, RUN } from '../../support/index-directory.ts';
import { MemoryIndex } from '../../support/memory-index.ts';
import { entry, offsetOf } from '../../support/memory-records.ts';

describe.each(bothIndexes(perTest()))('the head of an index %s', (_, make) => {
  /** Twelve entries, decided one by one. */
  function twelve(): LedgerIndex {
    const index = make();
    const records = Array.from({ length: 12 }, (_, i) =>
      at(i, entry(`k${i}`, { end: i, requestOffset: 100 + i, through: 99 + i })),
    );
    index.apply(0, records);
    return index;
  }

  function expire(index: LedgerIndex, low: number): void {
    for (let steps = 0; index.expire(0, low); steps++) if (steps > 100) throw new Error('expiry never ends');
  }

  const found = (index: LedgerIndex, ids: string[]) => ids.map((id) => offsetOf(index.lookUp(0, keyOf(id))));

  it('is forgotten with the log, and the rest stays', () => {
    const index = twelve();
    expire(index, 8);
    expect(found(index, ['k0', 'k7', 'k8', 'k11'])).toEqual([undefined, undefined, 8, 11]);
    expect([index.end(0), index.through(0), index.last(0)?.offset]).toEqual([12, 111, 11]);
  });

  it('leaves a horizon: the highest request offset among what is forgotten', () => {
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
    expect(index.horizon(0)).toBe(900);
  });

  it('is kept while there is no horizon to tell of it', () => {
    const index = make();
    index.wipe(0, 4);
    index.apply(
      0,
      [4, 5, 6, 7, 8].map((offset) => at(offset, entry(`k${offset}`, { end: 3 }))),
    );
    expire(index, 8);
    expect([index.horizon(0), found(index, ['k4', 'k8'])]).toEqual([undefined, ['forgotten', 'forgotten']]);
  });

  it('takes with it the knowledge that a later entry of a key lost: the key is forgotten, not decided otherwise', () => {
    const index = make();
    index.apply(0, [
      at(0, entry('a', { first: 1n })),
      ...[1, 2, 3].map((offset) => at(offset, entry(`k${offset}`))),
      at(4, entry('a', { first: 2n, end: 0 })),
      at(5, entry('b', { end: 5 })),
    ]);
    expire(index, 4);
    expect(found(index, ['a', 'b'])).toEqual(['forgotten', 5]);
  });

  it('may be all there is; what comes then is found', () => {
    const index = twelve();
    expire(index, 12);
    expect(found(index, ['k11'])).toEqual([undefined]);
    index.apply(0, [at(12, entry('new', { end: 12 }))]);
    expect([found(index, ['new']), index.horizon(0)]).toEqual([[12], 111]);
  });

  it('of another partition stays', () => {
    const index = twelve();
    index.apply(1, [at(0, entry('k0'))]);
    expire(index, 8);
    expect(index.lookUp(1, keyOf('k0'))).toMatchObject({ offset: 0 });
  });
});

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ apply: fc.array(fc.nat(9), { minLength: 1, maxLength: 9 }), behind: fc.nat(6) }),
  },
  { weight: 2, arbitrary: fc.record({ expire: fc.nat(4) }) },
  { weight: 1, arbitrary: fc.record({ wipe: fc.nat(20) }) },
  { weight: 1, arbitrary: fc.constant({ reopen: true }) },
);

describe('the index on disk', () => {
  it('tells what the one in memory tells, whatever is applied, expired, wiped and opened again', () => {
    let met = 0;
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const directory = new IndexDirectory();
        try {
          met += play(directory, steps);
        } finally {
          directory.remove();
        }
      }),
      { numRuns: 40 },
    );
    expect(met).toBeGreaterThan(200);
  }, 60_000);
});

/** Plays the same steps on both and compares all that they tell; how many entries were found. */
function play(
  directory: IndexDirectory,
  steps: readonly (typeof step extends fc.Arbitrary<infer T> ? T : never)[],
): number {
  let disk = directory.open();
  const memory = new MemoryIndex();
  let origin = 0;
  let met = 0;
  const ids = Array.from({ length: 10 }, (_, i) => `id ${i}`);
  for (const next of steps) {
    if ('apply' in next) {
      const start = memory.end(0);
      const end = Math.max(0, start - next.behind);
      const records = next.apply.map((id, i) =>
        at(start + i, entry(`id ${id}`, { end, through: start, requestOffset: start + id })),
      );
      expect(disk.apply(0, records)).toEqual(memory.apply(0, records));
      expect(disk.firsts(0, records)).toEqual(memory.firsts(0, records));
    } else if ('expire' in next) {
      const low = origin + next.expire * RUN;
      if (low > memory.end(0)) continue;
      if (memory.horizon(0) !== undefined) origin = low;
      memory.expire(0, low);
      disk.expire(0, low); // one step is enough for it to be forgotten; the rest only deletes
    } else if ('wipe' in next) {
      origin = next.wipe;
      for (const index of [disk, memory]) index.wipe(0, origin);
    } else {
      directory.close(disk);
      disk = directory.open(BINDING);
    }
    const all = (index: LedgerIndex) => ids.map((id) => index.lookUp(0, keyOf(id)));
    expect(all(disk)).toEqual(all(memory));
    met += all(disk).filter((found) => typeof found === 'object').length;
    const rest = (index: LedgerIndex) => [index.end(0), index.through(0), index.horizon(0), index.last(0)];
    expect(rest(disk)).toEqual(rest(memory));
  }
  expect(directory.wiped).toEqual([]);
  return met;
}

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HASH_BITS, hashKey } from '../../../src/adapters/index/key-hash.ts';
import { MAX_RUN_ENTRIES, RecentKeys } from '../../../src/adapters/index/recent-keys.ts';
import { RunFilter } from '../../../src/adapters/index/run-filter.ts';

const seed = { low: 0x12345678, high: -5 };
const anyHash = fc.integer({ min: 0, max: 2 ** HASH_BITS - 1 });

describe('the hash of a key', () => {
  it('fits its bits, and depends on every byte, on the length and on the seed', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 257 }), fc.nat(256), (key, at) => {
        const hash = hashKey(key, seed);
        expect(hash >= 0 && hash < 2 ** HASH_BITS && Number.isInteger(hash)).toBe(true);
        expect(hashKey(Uint8Array.from(key), seed)).toBe(hash);
        expect(hashKey(Uint8Array.from([...key, 0]), seed)).not.toBe(hash);
        expect(hashKey(key, { ...seed, high: 6 })).not.toBe(hash);
        expect(hashKey(key, { ...seed, low: 6 })).not.toBe(hash);
        if (key.length === 0) return;
        const changed = Uint8Array.from(key);
        changed[at % key.length] = (changed[at % key.length] as number) ^ 1;
        expect(hashKey(changed, seed)).not.toBe(hash);
      }),
    );
  });

  it('spreads keys that count up evenly, in its high bits and in its low ones', () => {
    const counts = { high: new Array<number>(64).fill(0), low: new Array<number>(64).fill(0) };
    for (let i = 0; i < 64_000; i++) {
      const hash = hashKey(Buffer.from(`order-${i}`), seed);
      const high = Math.floor(hash / 2 ** (HASH_BITS - 6));
      counts.high[high] = (counts.high[high] ?? 0) + 1;
      counts.low[hash % 64] = (counts.low[hash % 64] ?? 0) + 1;
    }
    for (const count of [...counts.high, ...counts.low]) expect(Math.abs(count - 1_000)).toBeLessThan(200);
  });
});

describe('recent keys', () => {
  it('finds all places of a hash, the oldest first, among hashes that share slots', () => {
    const hashes = fc.array(fc.tuple(fc.nat(3), fc.nat(2)), { maxLength: 60 });
    fc.assert(
      fc.property(hashes, (parts) => {
        const recent = new RecentKeys();
        const all = parts.map(([slot, lap]) => 65_533 + slot + lap * 65_536); // over the end of the table as well
        for (const [place, hash] of all.entries()) recent.add(hash, place * 2);
        for (const hash of new Set(all)) {
          const expected = all.flatMap((other, place) => (other === hash ? [place * 2] : []));
          const found: number[] = [];
          for (let at = recent.find(hash); at >= 0; at = recent.find(hash, at)) found.push(at);
          expect(found).toEqual(expected);
        }
        expect(recent.find(7)).toBe(-1);
        expect([...recent.packed()]).toEqual(
          all.map((hash, place) => hash * MAX_RUN_ENTRIES + place * 2).sort((a, b) => a - b),
        );
      }),
      { numRuns: 30 },
    );
  });

  it('holds a whole run, and nothing once it is cleared', () => {
    const recent = new RecentKeys();
    const hash = (place: number) => (place * 0x9e3779b1) % 2 ** HASH_BITS;
    for (let place = 0; place < MAX_RUN_ENTRIES; place++) recent.add(hash(place), place);
    expect(recent.packed()).toHaveLength(MAX_RUN_ENTRIES);
    for (let place = 0; place < MAX_RUN_ENTRIES; place += 97) expect(recent.find(hash(place))).toBe(place);
    recent.clear();
    expect([recent.packed().length, recent.find(hash(5))]).toEqual([0, -1]);
  });
});

describe('the filter of runs', () => {
  it('names every run that has the hash, in rising order, and none that was dropped', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(40), anyHash), { maxLength: 50 }), fc.nat(40), (added, from) => {
        const filter = new RunFilter();
        for (const [run, hash] of added.toSorted(([a], [b]) => a - b)) filter.add(run, hash);
        filter.dropBelow(from);
        for (const [run, hash] of added) {
          const found = filter.runsOf(hash);
          expect(found.includes(run)).toBe(run >= from);
          expect(found).toEqual([...found].sort((a, b) => a - b));
          expect(found.every((other) => other >= from)).toBe(true);
        }
      }),
      { numRuns: 50 },
    );
  });

  it('names a full run for a hash that it does not have less than once in 300', () => {
    const filter = new RunFilter();
    const hash = (i: number) => hashKey(Buffer.from(`key ${i}`), seed);
    for (let i = 0; i < MAX_RUN_ENTRIES; i++) filter.add(3, hash(i));
    let wrong = 0;
    for (let i = 0; i < 30_000; i++) wrong += filter.runsOf(hash(MAX_RUN_ENTRIES + i)).length;
    expect(wrong).toBeLessThan(100);
  });
});

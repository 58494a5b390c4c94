import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  cutItems,
  decodeSeed,
  encodeSeed,
  findPlaces,
  HASH_BITS,
  type HashSeed,
  hashKey,
  lowerOf,
  MAX_PLACES,
  partOf,
  randomSeed,
  sortItems,
  upperOf,
} from '../../../src/adapters/index/items.ts';
import { RecentKeys } from '../../../src/adapters/index/open-run.ts';
import { EntryKey } from '../../../src/codec/ledger-key.ts';

/** Any bytes as a key, with a first byte of their own. */
const hashOf = (key: Uint8Array, its: HashSeed) => hashKey(EntryKey.of(Buffer.from(key)), its);
const seed = { low: 0x12345678, high: -5 };
const anyHash = fc.maxSafeNat().map((hash) => hash % 2 ** HASH_BITS);
const anyPlace = fc.nat(MAX_PLACES - 1);

function packed(entries: readonly (readonly [hash: number, place: number])[]) {
  const items = Uint32Array.from(entries.flatMap(([hash, place]) => [lowerOf(hash, place), upperOf(hash)]));
  sortItems(items);
  return items;
}

describe('the hash of a key', () => {
  it('fits its bits, and depends on every byte, on the length and on the seed', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 257 }), fc.nat(256), (key, at) => {
        const hash = hashOf(key, seed);
        expect(hash >= 0 && hash < 2 ** HASH_BITS && Number.isInteger(hash)).toBe(true);
        expect(hashOf(Buffer.from(key), seed)).toBe(hash);
        expect(hashOf(Buffer.from([...key, 0]), seed)).not.toBe(hash);
        expect(hashOf(key, { ...seed, high: 6 })).not.toBe(hash);
        expect(hashOf(key, { ...seed, low: 6 })).not.toBe(hash);
        const changed = Uint8Array.from(key);
        changed[at % key.length] = (changed[at % key.length] as number) ^ 1;
        expect(hashOf(changed, seed)).not.toBe(hash);
      }),
    );
  });

  it('spreads numbered keys evenly, in its high bits and in its low bits', () => {
    const counts = { high: new Array<number>(64).fill(0), low: new Array<number>(64).fill(0) };
    for (let i = 0; i < 64_000; i++) {
      const hash = hashOf(Buffer.from(`order-${i}`), seed);
      const high = Math.floor(hash / 2 ** (HASH_BITS - 6));
      counts.high[high] = (counts.high[high] ?? 0) + 1;
      counts.low[hash % 64] = (counts.low[hash % 64] ?? 0) + 1;
    }
    for (const count of [...counts.high, ...counts.low]) expect(Math.abs(count - 1_000)).toBeLessThan(200);
  });
});

describe('the seed of the hash', () => {
  it('is another for each store', () => {
    const seeds = Array.from({ length: 100 }, () => encodeSeed(randomSeed()).toString('hex'));
    expect(new Set(seeds).size).toBeGreaterThan(1); // wrong once in 2^6,336 runs
  });

  it('is read as it was written', () => {
    const word = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
    fc.assert(
      fc.property(fc.record({ low: word, high: word }), (of) => {
        expect(decodeSeed(encodeSeed(of))).toEqual(of);
      }),
    );
  });
});

describe('items', () => {
  it('return every place of a hash, in rising order, and no others', () => {
    const close = fc.tuple(fc.oneof(anyHash, fc.constantFrom(0, 1, 2 ** 11, 2 ** HASH_BITS - 1)), anyPlace);
    fc.assert(
      fc.property(
        fc.uniqueArray(close, { maxLength: 60, selector: ([, place]) => place }),
        anyHash,
        (entries, other) => {
          const items = packed(entries);
          for (const hash of [other, ...entries.map(([one]) => one)]) {
            const found: number[] = [];
            findPlaces(items, hash, 1_000, found);
            const places = entries.filter(([one]) => one === hash).map(([, place]) => place + 1_000);
            expect(found).toEqual(places.toSorted((a, b) => a - b));
          }
        },
      ),
    );
  });

  it('are divided into parts by their hashes, and finer parts nest in coarser ones', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(anyHash, anyPlace), { maxLength: 60 }),
        fc.constantFrom(1, 8, 64),
        (entries, parts) => {
          const items = packed(entries);
          const starts = cutItems(items, parts, 0, parts);
          expect([starts.length, starts[0], starts.at(-1)]).toEqual([parts + 1, 0, items.length]);
          for (let part = 0; part < parts; part += 1) {
            for (let at = starts[part] as number; at < (starts[part + 1] as number); at += 2) {
              const upper = items[at + 1] as number;
              expect([partOf(upper, parts), Math.floor(partOf(upper, parts * 8) / 8)]).toEqual([part, part]);
            }
          }
        },
      ),
    );
  });
});

describe('recent keys', () => {
  const CAPACITY = 64;
  const found = (recent: RecentKeys, hash: number, first = 0) => {
    const places: number[] = [];
    recent.find(hash, first, places);
    return places;
  };

  it('finds all places of a hash, the oldest first, among hashes that share slots', () => {
    const hashes = fc.array(fc.tuple(fc.nat(3), fc.nat(2)), { maxLength: 60 });
    fc.assert(
      fc.property(hashes, (parts) => {
        const recent = new RecentKeys(CAPACITY);
        const all = parts.map(([slot, lap]) => 125 + slot + lap * 128); // also across the end of the table
        for (const [place, hash] of all.entries()) recent.add(hash, place * 2);
        for (const hash of new Set(all)) {
          const expected = all.flatMap((other, place) => (other === hash ? [500 + place * 2] : []));
          expect(found(recent, hash, 500)).toEqual(expected);
        }
        expect(found(recent, 7)).toEqual([]);
        expect([...recent.since(1)]).toEqual(
          all.slice(1).flatMap((hash, place) => [lowerOf(hash, place * 2 + 2), upperOf(hash)]),
        );
      }),
      { numRuns: 30 },
    );
  });

  it('holds a whole run, and nothing once it is cleared', () => {
    const recent = new RecentKeys(4_096);
    const hash = (place: number) => (place * 0x9e3779b1) % 2 ** HASH_BITS;
    for (let place = 0; place < 4_096; place++) recent.add(hash(place), place);
    expect(recent.count).toBe(4_096);
    for (let place = 0; place < 4_096; place += 97) expect(found(recent, hash(place))).toEqual([place]);
    recent.clear();
    expect([recent.count, found(recent, hash(5)), recent.since(0).length]).toEqual([0, [], 0]);
  });
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { examples } from '../../support/examples.ts';
import { PlannedGroup } from './planned-group.ts';

const LOG_END = 1_000;

/** A settled group with so many workers in each zone, all of whose copies are complete. */
function zoned(partitions: number, perZone: readonly number[], standbys = 1): PlannedGroup {
  const group = new PlannedGroup({ partitions, standbys, acceptableLag: 0 }, LOG_END);
  const complete = new Map(Array.from({ length: partitions }, (_, at) => [at, LOG_END]));
  perZone.forEach((workers, zone) => {
    for (let i = 0; i < workers; i += 1) group.join(`${i}-${zone}`, complete, `zone-${zone}`);
  });
  group.settle();
  return group;
}

const zoneOf = (group: PlannedGroup, name: string) => group.members.get(name)?.zone;

/** The zones in which complete copies of a partition are. */
function zonesWith(group: PlannedGroup, partition: number): ReadonlySet<string | undefined> {
  const having = [...group.members.values()].filter(({ ends }) => ends.get(partition) === LOG_END);
  return new Set(having.map(({ zone }) => zone));
}

const partitions = fc.integer({ min: 1, max: 40 });
const zones = fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 2, maxLength: 4 });

describe('a plan for members in several zones', () => {
  it('keeps a copy of each partition in another zone than its owner, and no copy more than without zones', () => {
    fc.assert(
      fc.property(partitions, zones, (count, perZone) => {
        const group = zoned(count, perZone);
        for (let at = 0; at < count; at += 1) expect(zonesWith(group, at).size).toBeGreaterThan(1);
        expect(group.counts('standbys').reduce((sum, one) => sum + one, 0)).toBe(count);
      }),
      { numRuns: examples(100) },
    );
  });

  it('loses no last copy when a whole zone is drained at once', () => {
    fc.assert(
      fc.property(partitions, zones, fc.nat(3), (count, perZone, nth) => {
        const group = zoned(count, perZone);
        const drained = `zone-${nth % perZone.length}`;
        for (const name of [...group.members.keys()]) if (zoneOf(group, name) === drained) group.leave(name);
        expect(group.lost).toEqual([]);
        group.plan();
        expect(group.stalled).toEqual([]);
      }),
      { numRuns: examples(100) },
    );
  });

  it('loses no last copy when one worker after another is replaced with an empty volume', () => {
    fc.assert(
      fc.property(partitions, zones, fc.integer({ min: 1, max: 3 }), (count, perZone, atMost) => {
        const group = zoned(count, perZone);
        for (const name of [...group.members.keys()]) {
          const zone = zoneOf(group, name);
          group.leave(name);
          expect(group.lost).toEqual([]);
          group.plan();
          expect(group.stalled).toEqual([]);
          group.join(name, new Map(), zone);
          // The next one waits until this one is ready, and so until the copies are complete.
          for (const moves of group.settle({ atMost })) expect(moves).toBeLessThanOrEqual(count);
          expect([group.lost, group.stalled]).toEqual([[], []]);
        }
      }),
      { numRuns: examples(50) },
    );
  });

  it('replaces a copy in the zone of the owner only when there is one elsewhere', () => {
    const group = new PlannedGroup({ partitions: 4, standbys: 1, acceptableLag: 0 }, LOG_END);
    const complete = new Map(Array.from({ length: 4 }, (_, at) => [at, LOG_END]));
    for (const name of ['a', 'b']) group.join(name, complete, 'one');
    group.settle();
    group.join('c', new Map(), 'two');
    group.plan();
    const before = [...group.members.values()].flatMap(({ share }) => share.standbys);
    expect(before.length).toBeGreaterThan(4); // those in the zone, and those that are made elsewhere
    group.settle();
    for (let at = 0; at < 4; at += 1) expect(zonesWith(group, at)).toEqual(new Set(['one', 'two']));
    expect(group.counts('standbys').reduce((sum, one) => sum + one, 0)).toBe(4);
  });

  it('is the same as ever while no member says its zone', () => {
    const plain = new PlannedGroup({ partitions: 12, standbys: 1, acceptableLag: 0 }, LOG_END);
    const single = new PlannedGroup({ partitions: 12, standbys: 1, acceptableLag: 0 }, LOG_END);
    for (const name of ['a', 'b', 'c']) {
      plain.join(name);
      single.join(name, new Map(), 'the only zone');
    }
    for (const group of [plain, single]) group.settle();
    const shares = (group: PlannedGroup) => [...group.members.values()].map(({ share }) => share);
    expect(shares(single)).toEqual(shares(plain));
  });
});

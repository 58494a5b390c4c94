import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { assignSticky, type Candidate, type CopyReport, inOrder, Lags } from '../../../src/kafka/loops/planner.ts';

const PARTITIONS = 12;
const NONE: CopyReport = new Map();

type Plan = ReadonlyMap<string, readonly number[]>;

/** The assignment for members that count as caught up if they lack at most ten entries. */
function assign(partitions: number, members: readonly Candidate[]): Plan {
  const candidates = inOrder(members);
  const owners = assignSticky(partitions, candidates, new Lags(candidates, 10));
  const heldBy = (one: Candidate) => owners.flatMap((owner, partition) => (owner === one ? [partition] : []));
  return new Map(candidates.map((one) => [one.memberId, heldBy(one)]));
}

/** A member that had those partitions in that generation; without arguments, a new member. */
function member(memberId: string, partitions: readonly number[] = [], generation = 1): Candidate {
  return { memberId, claims: [{ generation, partitions, standbys: [], warmups: [] }], copies: NONE };
}

/** The members as they join again after a plan has taken effect. */
function rejoining(plan: Plan, generation: number): Candidate[] {
  return [...plan].map(([memberId, partitions]) => member(memberId, partitions, generation));
}

/** Copies of logs that end at 1,000. */
function ends(byPartition: Readonly<Record<number, number>>): CopyReport {
  return new Map(Object.entries(byPartition).map(([partition, end]) => [Number(partition), { end, logEnd: 1_000 }]));
}

/** How many partitions have another owner than before, those included that had none. */
function moved(before: Plan, now: Plan): number {
  return [...now].flatMap(([memberId, partitions]) =>
    partitions.filter((partition) => before.get(memberId)?.includes(partition) !== true),
  ).length;
}

const ids = (count: number) => Array.from({ length: count }, (_, i) => `member-${i}`);
const some = fc.integer({ min: 1, max: 9 });
const partitionCounts = fc.integer({ min: 1, max: 40 });
const claim = fc.record({
  generation: fc.integer({ min: -1, max: 4 }),
  partitions: fc.array(fc.integer({ min: -2, max: 45 }), { maxLength: 20 }),
  standbys: fc.constant([]),
  warmups: fc.constant([]),
});
/** Members whose claims contradict each other, exceed the topic, and repeat. */
const candidates = fc
  .uniqueArray(fc.string({ minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 9 })
  .chain((names) =>
    fc.tuple(
      ...names.map((memberId) =>
        fc.record({
          memberId: fc.constant(memberId),
          claims: fc.array(claim, { maxLength: 3 }),
          copies: fc.constant(NONE),
        }),
      ),
    ),
  );

/** The owners of each partition before: all members that claim it in the highest generation. */
function newestClaims(partitions: number, members: readonly Candidate[]): Map<number, Set<string>> {
  const owners = new Map<number, Set<string>>();
  for (let partition = 0; partition < partitions; partition += 1) {
    const claims = members.flatMap(({ memberId, claims }) =>
      claims.filter((one) => one.partitions.includes(partition)).map(({ generation }) => ({ memberId, generation })),
    );
    const newest = Math.max(...claims.map(({ generation }) => generation));
    const owning = claims.filter(({ generation }) => generation === newest).map(({ memberId }) => memberId);
    if (owning.length > 0) owners.set(partition, new Set(owning));
  }
  return owners;
}

describe('sticky assignment', () => {
  it('assigns every partition once, and counts differ by at most one', () => {
    fc.assert(
      fc.property(partitionCounts, candidates, (partitions, members) => {
        const plan = assign(partitions, members);
        const dealt = [...plan.values()].flat().sort((one, other) => one - other);
        expect(dealt).toEqual(Array.from({ length: partitions }, (_, i) => i));
        expect([...plan.keys()].sort()).toEqual(members.map(({ memberId }) => memberId).sort());
        const counts = [...plan.values()].map(({ length }) => length);
        expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
      }),
      { numRuns: 500 },
    );
  });

  it('is the same for any order of the members', () => {
    fc.assert(
      fc.property(partitionCounts, candidates, fc.infiniteStream(fc.nat()), (partitions, members, dice) => {
        const shuffled = members
          .map((one) => ({ one, at: dice.next().value }))
          .sort((one, other) => one.at - other.at)
          .map(({ one }) => one);
        expect(new Map(assign(partitions, shuffled))).toEqual(new Map(assign(partitions, members)));
      }),
    );
  });

  it('takes from owners only what balance requires, whatever was claimed', () => {
    fc.assert(
      fc.property(partitionCounts, candidates, (partitions, members) => {
        const owners = newestClaims(partitions, members);
        const plan = assign(partitions, members);
        const kept = [...plan].flatMap(([memberId, held]) => held.filter((one) => owners.get(one)?.has(memberId)));
        // Claims of one generation contradict each other only through a fault; then any claimant may win.
        fc.pre([...owners.values()].every(({ size }) => size === 1));
        const owned = members.map(({ memberId }) => [...owners.values()].filter((one) => one.has(memberId)).length);
        const [base, extra] = [Math.floor(partitions / members.length), partitions % members.length];
        const mayKeep = owned.reduce((sum, count) => sum + Math.min(count, base), 0);
        const beyond = Math.min(extra, owned.filter((count) => count > base).length);
        expect(kept.length).toBe(mayKeep + beyond);
      }),
      { numRuns: 1_000 },
    );
  });

  it('moves nothing while the members stay', () => {
    fc.assert(
      fc.property(partitionCounts, some, (partitions, count) => {
        const plan = assign(
          partitions,
          ids(count).map((id) => member(id)),
        );
        expect(new Map(assign(partitions, rejoining(plan, 1)))).toEqual(new Map(plan));
      }),
    );
  });

  it('moves only the partitions of members that leave', () => {
    fc.assert(
      fc.property(partitionCounts, some, some, (partitions, count, leaving) => {
        const plan = assign(
          partitions,
          ids(count + 1).map((id) => member(id)),
        );
        const gone = ids(count + 1).slice(0, Math.min(leaving, count));
        const orphans = gone.flatMap((id) => plan.get(id) ?? []);
        const stay = rejoining(plan, 1).filter(({ memberId }) => !gone.includes(memberId));
        expect(moved(plan, assign(partitions, stay))).toBe(orphans.length);
      }),
    );
  });

  it('moves to joining members only their share', () => {
    fc.assert(
      fc.property(partitionCounts, some, some, (partitions, count, joining) => {
        const plan = assign(
          partitions,
          ids(count).map((id) => member(id)),
        );
        const newcomers = ids(count + joining).slice(count);
        const next = assign(partitions, [...rejoining(plan, 1), ...newcomers.map((id) => member(id))]);
        const got = newcomers.flatMap((id) => next.get(id) ?? []);
        expect(moved(plan, next)).toBe(got.length);
      }),
    );
  });

  it('gives a partition that two members claim to the later owner', () => {
    const plan = assign(2, [member('a', [0, 1], 3), member('b', [1], 4)]);
    expect(new Map(plan)).toEqual(
      new Map([
        ['a', [0]],
        ['b', [1]],
      ]),
    );
  });

  it('gives a returning member what it had, out of the surplus of the others', () => {
    const others = [member('b', [0, 1, 2, 3, 4, 5], 7), member('c', [6, 7, 8, 9, 10, 11], 7)];
    const plan = assign(PARTITIONS, [...others, member('a', [2, 4, 7, 11], 6)]);
    expect(plan.get('a')).toEqual([2, 4, 7, 11]);
  });

  it('gives an unclaimed partition to the member with room that has the smallest lag', () => {
    const plan = assign(4, [
      { ...member('a', [0, 1]), copies: ends({ 0: 900, 1: 900, 2: 900, 3: 900 }) },
      { ...member('b'), copies: ends({ 2: 300, 3: 800 }) },
      { ...member('c'), copies: ends({ 2: 400 }) },
    ]);
    expect(plan.get('a')).toHaveLength(2);
    expect([plan.get('b'), plan.get('c')]).toEqual([[3], [2]]);
  });

  it('keeps room for partitions of which only one member has a copy', () => {
    const all = { 0: 995, 1: 995, 2: 995, 3: 995 };
    const plan = assign(4, [
      { ...member('a'), copies: ends(all) },
      { ...member('b'), copies: ends({ 0: 995, 1: 995 }) },
    ]);
    expect([plan.get('a'), plan.get('b')]).toEqual([
      [2, 3],
      [0, 1],
    ]);
  });

  it('moves first the partitions with the smallest lag at a member with room', () => {
    const plan = assign(4, [
      { ...member('a', [0, 1, 2, 3]), copies: ends({ 0: 900, 1: 900, 2: 900, 3: 900 }) },
      { ...member('b'), copies: ends({ 0: 800, 2: 700, 3: 10 }) },
    ]);
    expect(plan.get('b')).toEqual([0, 2]);
  });

  it('honours a promised warm-up over an owner of the same generation', () => {
    const plan = assign(4, [
      { memberId: 'a', claims: [{ generation: 4, partitions: [0, 1], standbys: [2], warmups: [2] }], copies: NONE },
      { memberId: 'b', claims: [{ generation: 4, partitions: [2, 3], standbys: [1], warmups: [1] }], copies: NONE },
    ]);
    expect([plan.get('a'), plan.get('b')]).toEqual([
      [0, 2],
      [1, 3],
    ]);
  });

  it("drops a promise older than another member's ownership", () => {
    const promised = { generation: 4, partitions: [], standbys: [1], warmups: [1] };
    const plan = assign(3, [member('a', [0, 2], 5), { ...member('b'), claims: [promised] }, member('c', [1], 5)]);
    expect(plan.get('c')).toEqual([1]);
  });

  it('orders members by their instance IDs, which a restart does not change', () => {
    const named = (memberId: string, instanceId: string): Candidate => ({ ...member(memberId), instanceId });
    const before = assign(PARTITIONS, [named('x-1', 'one'), named('a-2', 'two')]);
    const now = assign(PARTITIONS, [named('a-3', 'one'), named('x-4', 'two')]);
    expect(now.get('a-3')).toEqual(before.get('x-1'));
    expect(now.get('x-4')).toEqual(before.get('a-2'));
  });

  it('assigns nothing without members', () => {
    expect(assign(PARTITIONS, []).size).toBe(0);
  });
});

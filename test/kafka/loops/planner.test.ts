import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Candidate,
  type CopyReport,
  type Plan,
  type PlanSettings,
  planGroup,
  type Share,
} from '../../../src/kafka/loops/planner.ts';
import { examples } from '../../support/examples.ts';
import { PlannedGroup } from './planned-group.ts';

const LOG_END = 1_000;
const LAG = 100;

const settings = (partitions: number, standbys: number | 'all' = 1): PlanSettings => ({
  partitions,
  standbys,
  acceptableLag: LAG,
});

/** Copies of logs that end at 1,000. */
const ends = (byPartition: Readonly<Record<number, number>>): CopyReport =>
  new Map(Object.entries(byPartition).map(([at, end]) => [Number(at), { end, logEnd: LOG_END }]));

/** All partitions below the count, each complete. */
const all = (partitions: number): CopyReport =>
  ends(Object.fromEntries(Array.from({ length: partitions }, (_, at) => [at, LOG_END])));

function member(memberId: string, copies: CopyReport, had: Partial<Share> = {}, generation = 1): Candidate {
  return { memberId, copies, claims: [{ generation, partitions: [], standbys: [], warmups: [], ...had }] };
}

const partition = fc.integer({ min: 0, max: 45 });
const claims = fc.record({
  generation: fc.integer({ min: -1, max: 4 }),
  partitions: fc.array(partition, { maxLength: 12 }),
  standbys: fc.array(partition, { maxLength: 8 }),
  warmups: fc.array(partition, { maxLength: 4 }),
});
const copy = fc
  .tuple(fc.constantFrom(0, 450, 899, 900, 950, LOG_END), fc.constantFrom(LOG_END, 1_001, 1_050))
  .map(([end, logEnd]) => ({ end, logEnd }));
const copies = fc.array(fc.tuple(partition, copy), { maxLength: 60 }).map((entries) => new Map(entries));
const candidates = fc.uniqueArray(
  fc.record({
    memberId: fc.string({ minLength: 1, maxLength: 3 }),
    claims: fc.array(claims, { maxLength: 2 }),
    copies,
    unreached: fc.array(partition, { maxLength: 12 }),
  }),
  { selector: ({ memberId }) => memberId, minLength: 1, maxLength: 6 },
);
const anySettings = fc.record({
  partitions: fc.integer({ min: 1, max: 40 }),
  standbys: fc.constantFrom<number | 'all'>(0, 1, 2, 'all'),
  acceptableLag: fc.constantFrom(0, LAG, 10_000),
});

/** The lag of a member's copy by what the planner knows: the highest log end that any member reports. */
function lagOf(members: readonly Candidate[], { copies }: Candidate, at: number): number {
  const logEnd = Math.max(0, ...members.map((one) => one.copies.get(at)?.logEnd ?? 0));
  return logEnd - (copies.get(at)?.end ?? 0);
}

/** Whether a copy is caught up, by the highest reported log end or by the log end that its own member reports. */
function isCaughtUp(members: readonly Candidate[], one: Candidate, at: number, acceptableLag: number): boolean {
  const copy = one.copies.get(at);
  const own = copy === undefined ? Number.POSITIVE_INFINITY : copy.logEnd - copy.end;
  return Math.min(own, lagOf(members, one, at)) <= acceptableLag;
}

const sharesOf = (plan: Plan, members: readonly Candidate[]) =>
  members.map((one) => ({ one, share: plan.get(one.memberId) as Share }));

describe('a plan', () => {
  it('gives every partition one owner and the configured number of standbys', () => {
    fc.assert(
      fc.property(anySettings, candidates, (given, members) => {
        const shares = sharesOf(planGroup(given, members), members);
        for (let at = 0; at < given.partitions; at += 1) {
          const [owner, ...more] = shares.filter(({ share }) => share.partitions.includes(at));
          expect(more).toEqual([]);
          const standbys = shares.filter(({ share }) => share.standbys.includes(at));
          const warm = shares.filter(({ share }) => share.warmups.includes(at));
          expect(standbys).not.toContain(owner);
          expect(warm.length).toBeLessThanOrEqual(1);
          expect(standbys).toEqual(expect.arrayContaining(warm));
          const others = members.length - 1;
          const count = given.standbys === 'all' ? others : Math.min(given.standbys, others);
          expect(standbys).toHaveLength(Math.max(count, warm.length));
        }
      }),
      { numRuns: examples(500) },
    );
  });

  it('is the same for any order of the members', () => {
    fc.assert(
      fc.property(anySettings, candidates, fc.infiniteStream(fc.nat()), (given, members, dice) => {
        const shuffled = members
          .map((one) => ({ one, at: dice.next().value }))
          .sort((one, other) => one.at - other.at)
          .map(({ one }) => one);
        expect(planGroup(given, shuffled)).toEqual(planGroup(given, members));
      }),
    );
  });

  it('lets no member own a partition with too much lag while another has less', () => {
    fc.assert(
      fc.property(anySettings, candidates, (given, members) => {
        for (const { one, share } of sharesOf(planGroup(given, members), members)) {
          for (const at of share.partitions) {
            const isOk = (other: Candidate) => isCaughtUp(members, other, at, given.acceptableLag);
            if (members.some((other) => isOk(other) && !other.unreached?.includes(at))) expect(isOk(one)).toBe(true);
          }
        }
      }),
      { numRuns: examples(500) },
    );
  });

  it('balances owned and promised partitions: their counts differ by at most one', () => {
    fc.assert(
      fc.property(anySettings, candidates, (given, members) => {
        const plan = planGroup(given, members);
        const waitedFor = new Set([...plan.values()].flatMap(({ warmups }) => warmups));
        const counts = [...plan.values()].map(
          ({ partitions, warmups }) => partitions.filter((at) => !waitedFor.has(at)).length + warmups.length,
        );
        expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
      }),
    );
  });

  it('leaves a partition with its owner while a joining member warms up, then moves it', () => {
    const a = member('a', all(2), { partitions: [0, 1] });
    const plan = planGroup(settings(2), [a, member('b', ends({}), {}, -1)]);
    expect(plan.get('a')).toEqual({ partitions: [0, 1], standbys: [], warmups: [] });
    expect(plan.get('b')).toEqual({ partitions: [], standbys: [0, 1], warmups: [1] });
    const b = member('b', ends({ 0: 899, 1: 899 }), plan.get('b'), 2);
    const again = planGroup(settings(2), [{ ...a, claims: [{ ...(plan.get('a') as Share), generation: 2 }] }, b]);
    expect(again).toEqual(plan);
    const complete = member('b', ends({ 0: 899, 1: 900 }), plan.get('b'), 2);
    const last = planGroup(settings(2), [{ ...a, claims: [{ ...(plan.get('a') as Share), generation: 2 }] }, complete]);
    expect(last.get('a')).toEqual({ partitions: [0], standbys: [1], warmups: [] });
    expect(last.get('b')).toEqual({ partitions: [1], standbys: [0], warmups: [] });
  });

  it('lets members with copies replace an owner that left, starting with the one that owns least', () => {
    const members = [
      member('a', all(7), { partitions: [2, 3, 4] }),
      member('b', all(7), { partitions: [0, 1] }),
      member('c', ends({})),
    ];
    const plan = planGroup(settings(7), members);
    expect([plan.get('a')?.partitions, plan.get('b')?.partitions]).toEqual([
      [2, 3, 4, 6],
      [0, 1, 5],
    ]);
    expect(plan.get('c')?.warmups).toEqual([5, 6]);
  });

  it('leaves a partition with its last owner while another warms up, not with an earlier one', () => {
    for (const [earlier, last] of [
      ['a', 'b'],
      ['b', 'a'],
    ] as const) {
      const plan = planGroup(settings(3), [
        member(earlier, all(3), { partitions: [2] }, 3),
        member(last, all(3), { partitions: [2] }, 4),
        member('c', ends({}), { warmups: [2] }, 4),
      ]);
      expect(plan.get(last)?.partitions).toContain(2);
      expect(plan.get('c')?.warmups).toEqual([2]);
    }
  });

  it('lets the target owner restore a partition without a complete copy', () => {
    const plan = planGroup(settings(2, 0), [
      member('a', ends({ 0: 1_000, 1: 500 }), { partitions: [0] }),
      member('b', ends({}), { partitions: [1] }),
    ]);
    expect(plan.get('b')).toEqual({ partitions: [1], standbys: [], warmups: [] });
  });

  it('lets a member warm up even with zero standbys', () => {
    const plan = planGroup(settings(2, 0), [member('a', all(2), { partitions: [0, 1] }), member('b', ends({}))]);
    expect(plan.get('b')).toEqual({ partitions: [], standbys: [1], warmups: [1] });
  });

  it('moves everything immediately while the logs are shorter than the acceptable lag', () => {
    const short = (member: Candidate): Candidate => ({
      ...member,
      copies: new Map([...member.copies].map(([at]) => [at, { end: LAG, logEnd: LAG }])),
    });
    const plan = planGroup(settings(4), [
      short(member('a', all(4), { partitions: [0, 1, 2, 3] })),
      member('b', ends({})),
    ]);
    expect(plan.get('b')).toMatchObject({ partitions: [2, 3], warmups: [] });
  });
});

describe('a partition whose brokers a member does not reach', () => {
  const cutOff = (one: Candidate, ...unreached: number[]): Candidate => ({ ...one, unreached });

  it('is owned by one that reaches them and has a copy, and goes back once they are reached', () => {
    const a = member('a', all(2), { partitions: [0] });
    const b = member('b', all(2), { partitions: [1] });
    const plan = planGroup(settings(2), [cutOff(a, 0), b]);
    expect(plan.get('a')).toEqual({ partitions: [], standbys: [0, 1], warmups: [0] });
    expect(plan.get('b')).toEqual({ partitions: [0, 1], standbys: [], warmups: [] });
    const again = (...unreached: number[]) =>
      planGroup(settings(2), [
        cutOff(member('a', all(2), plan.get('a'), 2), ...unreached),
        member('b', all(2), plan.get('b'), 2),
      ]);
    expect(again(0)).toEqual(plan);
    expect(again().get('a')).toMatchObject({ partitions: [0], warmups: [] });
  });

  it('is restored by one that reaches them if no other has a copy', () => {
    const owner = cutOff(member('a', all(3), { partitions: [0, 1, 2] }), 1);
    const others = [cutOff(member('b', ends({})), 1), member('c', ends({}))];
    expect(planGroup(settings(3), [owner, ...others]).get('c')?.partitions).toEqual([1]);
  });

  it('stays where it is if no member reaches them', () => {
    const members = [member('a', all(2), { partitions: [0] }), member('b', all(2), { partitions: [1] })];
    const plan = planGroup(settings(2), members);
    expect(
      planGroup(
        settings(2),
        members.map((one) => cutOff(one, 0, 1)),
      ),
    ).toEqual(plan);
  });

  it('is never owned by it while another reaches them, in any group', () => {
    fc.assert(
      fc.property(anySettings, candidates, (given, members) => {
        for (const { one, share } of sharesOf(planGroup(given, members), members)) {
          for (const at of share.partitions) {
            if (one.unreached?.includes(at))
              expect(members.every(({ unreached }) => unreached?.includes(at))).toBe(true);
          }
        }
      }),
      { numRuns: examples(500) },
    );
  });
});

describe('a log that grows while the members join', () => {
  const copyTo = (end: number, logEnd = end) => new Map([0, 1].map((at) => [at, { end, logEnd }]));
  const strict = { ...settings(2), acceptableLag: 0 };

  it('leaves partitions with their owner, though a standby that joined later has seen more of it', () => {
    const plan = planGroup(strict, [
      member('a', copyTo(1_000), { partitions: [0] }),
      member('b', copyTo(1_050), { partitions: [1] }),
    ]);
    expect(plan.get('a')).toMatchObject({ partitions: [0], warmups: [] });
  });

  it('moves to the member that warmed up, though the owner has seen more of it', () => {
    const plan = planGroup(strict, [
      member('a', copyTo(1_050), { partitions: [0, 1] }),
      member('b', copyTo(1_000), { warmups: [1] }),
    ]);
    expect(plan.get('b')).toMatchObject({ partitions: [1], warmups: [] });
  });

  it('does not move to a member that is incomplete by its own report, or lacks more than can have been appended meanwhile', () => {
    for (const behind of [copyTo(1_000, 1_001), copyTo(0)]) {
      const owner = member('a', copyTo(1_000_000), { partitions: [0, 1] });
      const plan = planGroup(strict, [owner, member('b', behind, { warmups: [1] })]);
      expect(plan.get('b')).toMatchObject({ partitions: [], warmups: [1] });
    }
  });
});

describe('standbys', () => {
  it('are the members with the most complete copies', () => {
    const plan = planGroup(settings(1), [
      member('a', all(1), { partitions: [0] }),
      member('b', ends({ 0: 300 })),
      member('c', ends({ 0: 400 })),
      member('d', ends({})),
    ]);
    expect(plan.get('c')?.standbys).toEqual([0]);
  });

  it('stay the same among members that are caught up', () => {
    const members = [
      member('a', all(2), { partitions: [0, 1] }),
      member('b', all(2)),
      member('c', ends({ 0: 900, 1: 900 }), { standbys: [0] }),
      member('d', all(2), { standbys: [1] }),
    ];
    // Four members and two partitions: b and c are to own one each.
    const plan = planGroup({ ...settings(2), acceptableLag: LAG }, members);
    expect([plan.get('c')?.standbys, plan.get('d')?.standbys]).toEqual([[0], [1]]);
  });

  it('are members with complete copies, though they have their share, before one that had the copy and lags', () => {
    const plan = planGroup(settings(3), [
      member('a', ends({ 0: LOG_END, 1: 300 }), { partitions: [0], standbys: [1] }),
      member('b', ends({ 1: LOG_END, 2: LOG_END }), { partitions: [1], standbys: [2] }),
      member('c', all(3), { partitions: [2], standbys: [0] }),
    ]);
    expect(['a', 'b', 'c'].map((name) => plan.get(name)?.standbys)).toEqual([[], [2], [0, 1]]);
  });

  it('are spread evenly where all copies are equal', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 6 }), fc.integer({ min: 1, max: 40 }), (count, partitions) => {
        const members = Array.from({ length: count }, (_, i) => member(`m${i}`, all(partitions)));
        const plan = planGroup(settings(partitions), members);
        const counts = [...plan.values()].map(({ standbys }) => standbys.length);
        expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(2);
      }),
    );
  });

  it('are preferably members with a copy, when all lags are small', () => {
    const short = (names: readonly string[]) =>
      names.map((name) => member(name, name === 'c' ? new Map([[0, { end: 40, logEnd: 50 }]]) : ends({})));
    expect(planGroup(settings(1), short(['a', 'b', 'c'])).get('a')?.standbys).toEqual([]);
    const plan = planGroup(settings(1), [...short(['b', 'c', 'd']), member('a', ends({}), { partitions: [0] })]);
    expect(plan.get('c')?.standbys).toEqual([0]);
  });

  it('go to a new member until it has its share, when all lags are small', () => {
    const group = new PlannedGroup({ partitions: 60, standbys: 1, acceptableLag: LOG_END }, LOG_END);
    for (const name of ['a', 'b', 'c']) group.join(name);
    group.settle();
    group.join('d');
    group.settle();
    for (const count of group.counts('standbys')) expect(Math.abs(count - 15)).toBeLessThanOrEqual(1);
  });

  it('of one owner are spread over all the others', () => {
    const group = new PlannedGroup(settings(60), LOG_END);
    for (const name of ['a', 'b', 'c', 'd']) group.join(name);
    group.settle();
    for (const { share } of group.members.values()) {
      const shared = [...group.members.values()]
        .filter((other) => other.share !== share)
        .map((other) => other.share.standbys.filter((at) => share.partitions.includes(at)).length);
      expect(shared.every((count) => Math.abs(count - 5) <= 2)).toBe(true);
    }
  });

  it('are all other members when configured so', () => {
    const members = ['a', 'b', 'c'].map((name) => member(name, ends({})));
    for (const { partitions, standbys } of planGroup(settings(6, 'all'), members).values()) {
      expect([...partitions, ...standbys].sort()).toEqual([0, 1, 2, 3, 4, 5]);
    }
  });
});

describe('planning again', () => {
  const start = fc.record({
    partitions: fc.integer({ min: 1, max: 30 }),
    standbys: fc.constantFrom<number | 'all'>(0, 1, 2, 'all'),
    ends: fc.array(fc.dictionary(fc.nat(29).map(String), fc.constantFrom(0, 300, 850, 900, LOG_END), { maxKeys: 30 }), {
      minLength: 1,
      maxLength: 5,
    }),
    drop: fc.boolean(),
  });

  /** A group that begins with any copies on its members' disks. */
  function groupOf({ partitions, standbys, ends }: { partitions: number; standbys: number | 'all'; ends: object[] }) {
    const group = new PlannedGroup(settings(partitions, standbys), LOG_END);
    ends.forEach((one, i) => {
      group.join(`m${i}`, new Map(Object.entries(one).map(([at, end]) => [Number(at), end])));
    });
    return group;
  }

  /** Groups in which one standby would alternate between two members from plan to plan, if members kept none first. */
  const ALTERNATING: (Parameters<typeof groupOf>[0] & { drop: boolean })[] = [
    { partitions: 30, standbys: 1, ends: [{ 29: 900 }, {}, { 0: 0, 29: LOG_END }, { 29: 900 }, {}], drop: false },
    {
      partitions: 30,
      standbys: 1,
      ends: [
        { 27: LOG_END },
        {},
        { 27: LOG_END },
        { 0: 0, 1: 0, 2: 0, 4: 850, 14: 0, 20: LOG_END, 21: 0, 27: LOG_END },
        { 4: 0, 15: LOG_END },
      ],
      drop: false,
    },
  ];

  it('reaches a stable, balanced plan in a few rounds when copies become complete', () => {
    fc.assert(
      fc.property(start, (given) => {
        const group = groupOf(given);
        const moves = group.settle({ drop: given.drop });
        expect(moves.length).toBeLessThanOrEqual(4);
        expect(moves.slice(1).reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(given.partitions);
        expect(group.counts('warmups').every((count) => count === 0)).toBe(true);
        const counts = group.counts('partitions');
        expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
        expect(group.plan()).toBe(0);
      }),
      { numRuns: examples(500), examples: ALTERNATING.map((given) => [given]) },
    );
  });

  it('reaches its target however slowly copies become complete, moving each promised partition once', () => {
    fc.assert(
      fc.property(start, fc.integer({ min: 1, max: 3 }), (given, atMost) => {
        const group = groupOf(given);
        group.plan();
        const promised = new Map<number, string>();
        for (const [name, { share }] of group.members) for (const at of share.warmups) promised.set(at, name);
        const owners = group.owners;
        const moves = new Map<number, number>();
        for (let before = owners, left = 200; left > 0; before = group.owners, left -= 1) {
          group.copy({ drop: given.drop, atMost });
          group.plan();
          for (const [at, name] of group.owners) {
            if (before.get(at) !== name) moves.set(at, (moves.get(at) ?? 0) + 1);
          }
        }
        expect(group.owners).toEqual(
          new Map([...group.owners.keys()].map((at) => [at, promised.get(at) ?? owners.get(at)])),
        );
        for (const [at, count] of moves) {
          // Where no member had a complete copy, a standby that completes first owns the partition until the target
          // has.
          expect(count).toBe(promised.has(at) ? 1 : 2);
        }
      }),
      { numRuns: examples(60) },
    );
  });

  it('never makes a partition wait for a restore while a member has a complete copy, as members come and go', () => {
    const step = fc.record({
      who: fc.nat(3),
      rounds: fc.nat(3),
      drop: fc.boolean(),
      atMost: fc.integer({ min: 1, max: 9 }),
    });
    fc.assert(
      fc.property(
        fc.array(step, { minLength: 1, maxLength: 12 }),
        fc.constantFrom<number | 'all'>(1, 2, 'all'),
        (steps, standbys) => {
          const group = new PlannedGroup({ partitions: 12, standbys, acceptableLag: 0 }, LOG_END);
          const disks = new Map<string, ReadonlyMap<number, number>>();
          group.join('m0');
          group.settle();
          for (const { who, rounds, drop, atMost } of steps) {
            const name = `m${who}`;
            if (!group.members.has(name)) group.join(name, disks.get(name));
            else if (group.members.size > 1) disks.set(name, group.leave(name));
            for (let round = 0; round <= rounds; round += 1) {
              group.plan();
              expect(group.stalled).toEqual([]);
              group.copy({ drop, atMost });
            }
          }
          expect(group.settle().length).toBeLessThanOrEqual(5);
        },
      ),
      { numRuns: examples(300) },
    );
  });
});

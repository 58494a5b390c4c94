import { describe, expect, it } from 'vitest';
import { decodeJoining, encodeAssignment, encodeStandbys, STICKY } from '../../../src/kafka/loops/member-claims.ts';
import type { Copy, CopyReport } from '../../../src/kafka/loops/planner.ts';
import type { JoinGroupRequest, SyncGroupRequest } from '../../../src/kafka/wire/group-apis.ts';
import { GroupStage, PARTITIONS, type StagedMember, type StagedOptions, TOPIC } from './group-stage.ts';
import { OtherMember } from './other-member.ts';

const ALL = Array.from({ length: PARTITIONS }, (_, i) => i);
const LOG_END = 1_000_000;
/** How long a generation lasts at least before a member ends it. */
const YOUNG_MS = 5_000;

/** The copies of one member, which the test makes grow. */
class Disk {
  readonly copies = new Map<number, Copy>();
  asked = 0;

  complete(partitions: readonly number[]): void {
    for (const partition of partitions) this.copies.set(partition, { end: LOG_END, logEnd: LOG_END });
  }

  readonly report = (): CopyReport => {
    this.asked += 1;
    return new Map(this.copies);
  };
}

interface Keeper extends StagedMember {
  readonly disk: Disk;
}

function keeper(stage: GroupStage, name: string, options: StagedOptions = {}, disk = new Disk()): Keeper {
  const member = stage.member(name, { copies: disk.report, standbys: 1, ...options });
  return Object.assign(member, { disk });
}

/** A member that owns the whole topic and has all copies, and one that has just joined, with none. */
async function beginning(stage: GroupStage, options: (name: string) => StagedOptions = () => ({})) {
  const a = keeper(stage, 'a', options('a'));
  a.disk.complete(ALL);
  a.start();
  await stage.settled(a);
  const b = keeper(stage, 'b', options('b'));
  b.start();
  await stage.settled(a, b);
  return [a, b] as const;
}

const joins = (member: StagedMember) => member.called('joinGroup');
const reportOf = (member: StagedMember) => {
  const request = joins(member).at(-1)?.request as JoinGroupRequest | undefined;
  return decodeJoining(TOPIC, request?.protocols.find(({ name }) => name === STICKY)?.metadata ?? Buffer.alloc(0));
};
/** The number of members that it assigned partitions to at its last join; undefined if it was not the leader. */
const ledBy = (member: StagedMember) =>
  (member.called('syncGroup').at(-1)?.request as SyncGroupRequest | undefined)?.assignments.length;
const kinds = [
  ['dynamic', () => ({})],
  ['static', (name: string) => ({ instanceId: `worker-${name}` })],
] as const;

describe.each(kinds)('copies of a %s member', (_, named) => {
  it('warm up while the owner keeps its partitions, which move when the member rejoins', async () => {
    const stage = new GroupStage();
    const [a, b] = await beginning(stage, named);
    expect([a.held, b.held]).toEqual([ALL, []]);
    expect(b.last.standbys).toEqual(ALL);
    expect(b.last.warmups).toHaveLength(6);
    const { warmups } = b.last;
    b.disk.complete(ALL);
    b.member.rejoin('a copy is complete');
    await stage.until(() => b.held.length > 0, 'a take-over');
    expect(b.last).toMatchObject({ partitions: warmups, added: warmups, removed: [], warmups: [], standbys: a.held });
    await stage.until(() => a.held.length === 6, 'a hand-over');
    expect(a.last).toMatchObject({ removed: warmups, standbys: warmups, warmups: [] });
    expect([...a.lost, ...b.lost]).toEqual([]);
    expect(stage.owners(a, b)).toEqual(new Array(PARTITIONS).fill(1));
  });

  it('are also planned again when the leader rejoins', async () => {
    const stage = new GroupStage();
    const [a, b] = await beginning(stage, named);
    await stage.pass(YOUNG_MS);
    const { generation } = stage.group;
    a.member.rejoin('looks at the end of the log again');
    await stage.until(() => a.member.generation > generation, 'a generation');
    await stage.settled(a, b);
    expect(stage.group.generation).toBe(generation + 1);
    expect(b.last.warmups).toHaveLength(6);
  });

  it("are read at each join, and reported together with the member's standbys", async () => {
    const stage = new GroupStage();
    const [, b] = await beginning(stage, named);
    expect(reportOf(b).copies?.size).toBe(0);
    const asked = b.disk.asked;
    b.disk.complete([3]);
    const { standbys, warmups, generation } = b.last;
    b.member.rejoin('a copy is complete');
    await stage.until(() => b.member.generation > generation, 'a generation');
    expect(reportOf(b)).toMatchObject({ claims: { generation, partitions: [], standbys, warmups } });
    expect(reportOf(b).copies).toEqual(b.disk.copies);
    expect(b.disk.asked).toBe(asked + 1);
  });
});

describe('rejoining', () => {
  it('happens once for all requests, and not before a generation is five seconds old', async () => {
    const stage = new GroupStage();
    const [a, b] = await beginning(stage);
    const [before, beganMs] = [joins(b).length, b.last.atMs];
    for (let i = 0; i < 20; i += 1) {
      b.member.rejoin('another copy is complete');
      await stage.pass(100);
    }
    expect(joins(b)).toHaveLength(before);
    await stage.pass(10 * YOUNG_MS);
    expect(joins(b)).toHaveLength(before + 1);
    const sentMs = joins(b).at(-1)?.sentMs ?? 0;
    expect(sentMs - beganMs).toBeGreaterThanOrEqual(YOUNG_MS);
    expect(sentMs - beganMs).toBeLessThan(YOUNG_MS + 50);
    await stage.settled(a, b);
  });

  it('happens immediately when the generation has lasted long enough', async () => {
    const stage = new GroupStage();
    const [, b] = await beginning(stage);
    await stage.pass(2 * YOUNG_MS);
    const before = joins(b).length;
    b.member.rejoin('a copy is complete');
    await stage.pass(50);
    expect(joins(b)).toHaveLength(before + 1);
  });

  it('happens with the next rebalance, if that comes first', async () => {
    const stage = new GroupStage();
    const [a, b] = await beginning(stage);
    b.disk.complete(ALL);
    b.member.rejoin('all copies are complete');
    const c = keeper(stage, 'c');
    c.start();
    await stage.settled(a, b, c);
    expect(b.held).toHaveLength(4);
    const before = joins(b).length;
    await stage.pass(10 * YOUNG_MS);
    expect(joins(b)).toHaveLength(before);
  });

  it('is not lost when it is requested during a join', async () => {
    const stage = new GroupStage();
    const [a, b] = await beginning(stage);
    a.crash();
    const again = keeper(stage, 'a-again', {}, a.disk);
    again.start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    await stage.pass(1_000);
    expect(joins(b).at(-1)?.endedMs).toBeUndefined();
    b.disk.complete(ALL);
    b.member.rejoin('all copies are complete');
    await stage.until(() => b.held.length === 6, 'a take-over');
    await stage.settled(again, b);
  });

  it('allows a commit before, and removes no partition meanwhile', async () => {
    const stage = new GroupStage();
    const commits: string[] = [];
    const [a, b] = await beginning(stage, (name) =>
      name === 'b' ? {} : { beforeRejoin: async () => void commits.push(await a.commit({ 0: 17 })) },
    );
    await stage.pass(YOUNG_MS);
    commits.length = 0;
    const { generation } = a.last;
    a.member.rejoin('a copy is lost');
    await stage.until(() => a.member.generation > generation, 'a generation');
    expect(commits).toEqual(['ok']);
    expect(stage.committed(0)).toBe(17);
    expect(a.last).toMatchObject({ partitions: ALL, added: [], removed: [] });
    expect(a.called('offsetCommit').at(-1)?.endedMs).toBeLessThanOrEqual(joins(a).at(-1)?.sentMs ?? 0);
    await stage.settled(a, b);
  });

  it('does nothing for a member that has not started or has left', async () => {
    const stage = new GroupStage();
    const member = keeper(stage, 'a');
    member.member.rejoin('not started');
    await stage.pass(2 * YOUNG_MS);
    expect(member.calls).toEqual([]);
    member.start();
    await stage.settled(member);
    member.member.rejoin('leaves soon');
    await member.leave();
    member.member.rejoin('has left');
    await stage.pass(2 * YOUNG_MS);
    expect(member.calls.at(-1)?.call).toBe('leaveGroup');
  });

  it('leaves no timer behind', async () => {
    const timersLeft = async (rejoins: boolean) => {
      const stage = new GroupStage();
      const member = keeper(stage, 'a');
      member.start();
      await stage.settled(member);
      if (rejoins) member.member.rejoin('leaves soon');
      await member.leave();
      await stage.pass(100);
      return stage.runtime.pending;
    };
    expect(await timersLeft(true)).toBe(await timersLeft(false));
  });

  it('ends: a group with complete copies does not rejoin', async () => {
    const stage = new GroupStage();
    const members = ['a', 'b', 'c'].map((name) => {
      const one: Keeper = keeper(stage, name, {
        onAssigned: (assigned) => {
          one.onAssigned(assigned);
          const behind = [...assigned.standbys, ...assigned.partitions].filter((at) => !one.disk.copies.has(at));
          if (behind.length === 0) return;
          stage.runtime.schedule(3_000, () => {
            one.disk.complete(behind);
            one.member.rejoin('copies are complete');
          });
        },
      });
      return one;
    });
    members[0]?.disk.complete(ALL);
    for (const one of members) {
      one.start();
      await stage.settled(...members.slice(0, members.indexOf(one) + 1));
    }
    await stage.pass(60_000);
    expect(members.map(({ held }) => held.length)).toEqual([4, 4, 4]);
    const { generation } = stage.group;
    expect(generation).toBeLessThan(12);
    await stage.pass(600_000);
    expect(stage.group.generation).toBe(generation);
  });
});

describe('a static leader that restarts', () => {
  it('plans by the reports of the others when one of them rejoins', async () => {
    const stage = new GroupStage();
    const named = (name: string) => ({ instanceId: `worker-${name}` });
    const [a, b] = await beginning(stage, named);
    expect(ledBy(a)).toBe(2);
    a.crash();
    const again = keeper(stage, 'a', named('a'), a.disk);
    again.start();
    await stage.settled(again, b);
    expect(again.last).toMatchObject({ partitions: ALL, standbys: [], warmups: [] });
    expect(b.assigned).toHaveLength(1);
    b.disk.complete(ALL);
    b.member.rejoin('all copies are complete');
    await stage.until(() => b.held.length === 6 && again.held.length === 6, 'a take-over');
    expect(ledBy(again)).toBe(2);
  });

  it('learns its standbys from the group', async () => {
    const stage = new GroupStage();
    const named = (name: string) => ({ instanceId: `worker-${name}` });
    const [a, b] = await beginning(stage, named);
    const { standbys, warmups } = b.last;
    b.crash();
    const again = keeper(stage, 'b', named('b'), b.disk);
    again.start();
    await stage.settled(a, again);
    expect(again.last).toMatchObject({ partitions: [], standbys, warmups });
  });
});

describe('an assignment', () => {
  it('without standbys, or in an unknown format of them, is one of partitions only', async () => {
    for (const userData of [Buffer.alloc(0), Buffer.from([9, 1])]) {
      const stage = new GroupStage();
      const assignment = encodeAssignment({ assigned: [{ topic: TOPIC, partitions: [4] }], userData });
      new OtherMember(stage, { assignment }).start();
      await stage.pass(100);
      const b = keeper(stage, 'b');
      b.start();
      await stage.until(() => b.assigned.length > 0, 'an assignment');
      expect(b.last).toMatchObject({ partitions: [4], standbys: [], warmups: [] });
    }
  });

  it('is used as far as it is valid, whatever standbys a leader assigns', async () => {
    const stage = new GroupStage();
    const userData = encodeStandbys({ standbys: [1, 2, PARTITIONS], warmups: [2, 3] });
    const assignment = encodeAssignment({ assigned: [{ topic: TOPIC, partitions: [0, 1] }], userData });
    new OtherMember(stage, { assignment }).start();
    await stage.pass(100);
    const b = keeper(stage, 'b');
    b.start();
    await stage.until(() => b.assigned.length > 0, 'an assignment');
    expect(b.last).toMatchObject({ partitions: [0, 1], standbys: [2], warmups: [2] });
    expect(b.warnings).toEqual([]);
  });
});

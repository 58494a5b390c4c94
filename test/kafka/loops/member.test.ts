import { describe, expect, it } from 'vitest';
import { Rejoining } from '../../../src/kafka/loops/member.ts';
import { encodeAssignment } from '../../../src/kafka/loops/member-claims.ts';
import { kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';
import { GroupStage, PARTITIONS, type StagedMember, TOPIC } from './group-stage.ts';
import { OtherMember } from './other-member.ts';

const ALL = Array.from({ length: PARTITIONS }, (_, i) => i);
/** A rebalance is noticed with the next heartbeat; then all members join. */
const NOTICED_MS = 600;
const SESSION_MS = 10_000;
/** A member that is refused joins again after 5 s. */
const REFUSED_MS = 6_000;

const named = (name: string) => ({ instanceId: `worker-${name}` });

describe('a member of the group', () => {
  it('gets all partitions when it is the first', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    expect(a.assigned).toMatchObject([{ partitions: ALL, added: ALL, removed: [], generation: 1 }]);
    expect(a.last.atMs).toBeLessThan(50);
    expect(a.member.joined).toBe(true);
    expect(a.member.generation).toBe(1);
  });

  it('hands half of its partitions to a joining member, and keeps the others throughout', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    const beganMs = stage.nowMs;
    const b = stage.member('b').start();
    await stage.settled(a, b);
    expect(stage.nowMs - beganMs).toBeLessThan(NOTICED_MS);
    expect(b.held).toHaveLength(6);
    expect(a.lost).toEqual([]);
    expect(a.last.added).toEqual([]);
    expect(a.last.removed).toEqual(b.held);
    expect(a.last.atMs - b.last.atMs).toBeLessThan(5);
  });

  it('takes over from a leaving member within a heartbeat, and nothing else moves', async () => {
    const stage = new GroupStage();
    const [a, b, c] = await stage.members(3);
    const [heldByA, heldByB] = [a.held, b.held];
    const beganMs = stage.nowMs;
    await c.leave();
    await stage.settled(a, b);
    expect(stage.nowMs - beganMs).toBeLessThan(NOTICED_MS);
    expect([a.last.removed, b.last.removed]).toEqual([[], []]);
    expect(a.held).toEqual(expect.arrayContaining([...heldByA]));
    expect(b.held).toEqual(expect.arrayContaining([...heldByB]));
  });

  it('takes over from a crashed member when its session is over', async () => {
    const stage = new GroupStage();
    const [a, b, c] = await stage.members(3);
    const beganMs = stage.nowMs;
    c.crash();
    await stage.settled(a, b);
    expect(stage.nowMs - beganMs).toBeLessThan(SESSION_MS + NOTICED_MS);
    expect([...a.lost, ...b.lost]).toEqual([]);
    expect([a.last.removed, b.last.removed]).toEqual([[], []]);
  });

  it('keeps what it has during a rebalance that waits for a crashed member', async () => {
    const stage = new GroupStage();
    const [a, b] = await stage.members(2);
    const held = a.held;
    b.crash();
    const again = stage.member('b-again').start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    await stage.pass(5_000);
    expect(stage.group.state).toBe('PreparingRebalance');
    expect(a.member.joined).toBe(true);
    expect(a.held).toEqual(held);
    await stage.settled(a, again);
    expect(a.lost).toEqual([]);
    expect(a.last).toMatchObject({ partitions: held, added: [], removed: [] });
  });

  it('keeps sending heartbeats while the coordinator holds its JoinGroup', async () => {
    const stage = new GroupStage();
    const [a, b] = await stage.members(2);
    b.crash();
    stage.member('b-again').start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    await stage.pass(1_000);
    const before = a.called('heartbeat').length;
    await stage.pass(4_000);
    expect(a.called('joinGroup').at(-1)?.endedMs).toBeUndefined();
    expect(a.called('heartbeat').length - before).toBe(8);
  });

  it('gets back what it had when it is removed and rejoins', async () => {
    const stage = new GroupStage();
    const [a, b] = await stage.members(2);
    const [heldByA, heldByB] = [a.held, b.held];
    b.isReachable = false;
    await stage.until(() => a.held.length === PARTITIONS, 'a take-over');
    b.isReachable = true;
    await stage.settled(a, b);
    expect([a.held, b.held]).toEqual([heldByA, heldByB]);
    expect(b.lost).toHaveLength(1);
  });

  it('does not notice a consumer with another assigner, which the coordinator rejects', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    const { generation } = stage.group;
    const other = new OtherMember(stage, { protocol: 'RoundRobinAssigner' }).start();
    await stage.until(() => other.error !== undefined, 'a rejection');
    await stage.pass(10_000);
    expect(kafkaErrorCode(other.error)).toBe('INCONSISTENT_GROUP_PROTOCOL');
    expect([a.held, stage.group.generation, a.warnings]).toEqual([ALL, generation, []]);
  });

  it('is rejected while the group has a consumer with another assigner, and joins once that has left', async () => {
    const stage = new GroupStage();
    const other = new OtherMember(stage, { protocol: 'RoundRobinAssigner' }).start();
    await stage.until(() => stage.group.state === 'Stable', 'a foreign group');
    const a = stage.member('a').start();
    await stage.pass(20_000);
    expect([a.held, a.assigned]).toEqual([[], []]);
    expect(a.called('joinGroup').map(({ errorCode }) => errorCode)).toContain('INCONSISTENT_GROUP_PROTOCOL');
    expect(a.warnings).toContain('joining the group failed, retrying');
    await stage.runtime.until(other.leave());
    await stage.settled(a);
    expect(a.held).toEqual(ALL);
  });

  it('names the consumer with another assigner that keeps it out', async () => {
    const stage = new GroupStage();
    new OtherMember(stage, { protocol: 'RoundRobinAssigner' }).start();
    await stage.until(() => stage.group.state === 'Stable', 'a foreign group');
    const named: (readonly string[])[] = [];
    stage.member('a', { onForeign: (names) => named.push(names) }).start();
    await stage.until(() => named.length > 0, 'a name');
    expect(named).toEqual([[expect.stringMatching(/^'.+' at 127\.0\.0\.1$/)]]);
  });

  it('loses its partitions and leaves when a consumer of the new protocol converts the group, names it, and joins once it has left', async () => {
    const stage = new GroupStage();
    const named: (readonly string[])[] = [];
    const onForeign = (names: readonly string[]) => named.push(names);
    const [a] = await stage.members(1, () => ({ onForeign }));
    stage.group.convert('rdkafka');
    await stage.until(() => a.lost.length > 0, 'a loss');
    expect([a.held, a.lost.map(({ errorCode }) => errorCode)]).toEqual([[], ['FOREIGN_MEMBER']]);
    await stage.pass(20_000);
    expect([a.held, stage.group.members]).toEqual([[], []]);
    expect(new Set(named.flat())).toEqual(new Set(["'rdkafka' at 127.0.0.1"]));
    const beganMs = stage.nowMs;
    stage.group.revert();
    await stage.settled(a);
    expect(stage.nowMs - beganMs).toBeLessThan(REFUSED_MS);
    expect(a.held).toEqual(ALL);
  });

  it('a static one leaves a converted group, too, and joins again', async () => {
    const stage = new GroupStage();
    const [a, b] = await stage.members(2, named);
    stage.group.convert('rdkafka');
    await stage.until(() => a.lost.length > 0 && b.lost.length > 0, 'two losses');
    await stage.pass(10_000);
    stage.group.revert();
    await stage.settled(a, b);
    expect([...a.held, ...b.held].sort((one, other) => one - other)).toEqual(ALL);
    expect([...a.fenced, ...b.fenced]).toEqual([]);
  });

  it('does not take partitions that no worker assigned, and leaves', async () => {
    const stage = new GroupStage();
    const assignment = encodeAssignment({ assigned: [{ topic: TOPIC, partitions: ALL }], userData: null });
    const other = new OtherMember(stage, { assignment }).start();
    await stage.pass(100);
    const b = stage.member('b').start();
    await stage.until(() => b.called('leaveGroup').length > 0, 'a leave');
    expect([b.held, b.assigned]).toEqual([[], []]);
    await stage.runtime.until(other.leave());
    await stage.settled(b);
    expect(b.held).toEqual(ALL);
  });

  it('treats a malformed assignment as empty, and warns', async () => {
    const stage = new GroupStage();
    new OtherMember(stage, { assignment: Buffer.from('nonsense') }).start();
    await stage.pass(100);
    const b = stage.member('b').start();
    await stage.until(() => b.assigned.length > 0, 'an assignment');
    expect(b.last.partitions).toEqual([]);
    expect(b.warnings).toEqual(["the group leader's assignment is malformed; no partition is served"]);
    expect(stage.group.state).toBe('Stable');
  });
});

describe('a static member', () => {
  it('takes its partitions back after a restart, and no other member notices', async () => {
    const stage = new GroupStage();
    const [a, b, c] = await stage.members(3, named);
    const [held, generation] = [c.held, stage.group.generation];
    c.crash();
    const again = stage.member('c', named('c')).start();
    const beganMs = stage.nowMs;
    await stage.until(() => again.held.length > 0, 'a return');
    expect(stage.nowMs - beganMs).toBeLessThan(50);
    expect(again.held).toEqual(held);
    await stage.pass(2 * SESSION_MS);
    expect(stage.group.generation).toBe(generation);
    expect([...a.lost, ...b.lost, ...again.lost]).toEqual([]);
    expect(again.assigned).toHaveLength(1);
  });

  it('assigns nothing after a restart, even if it was the leader', async () => {
    const stage = new GroupStage();
    const [a, b] = await stage.members(2, named);
    const leader = a.called('syncGroup').at(-1)?.request as { assignments: readonly unknown[] };
    expect(leader.assignments).toHaveLength(2);
    const [held, generation] = [a.held, stage.group.generation];
    a.crash();
    const again = stage.member('a', named('a')).start();
    await stage.settled(again, b);
    expect(again.called('syncGroup').map(({ request }) => request)).toMatchObject([{ assignments: [] }]);
    expect(again.held).toEqual(held);
    expect(stage.group.generation).toBe(generation);
    const c = stage.member('c', named('c')).start();
    await stage.settled(again, b, c);
    expect([again.last.added, b.last.added]).toEqual([[], []]);
  });

  it('gets back what it had when it restarts during a rebalance', async () => {
    const stage = new GroupStage();
    const [a, b, c] = await stage.members(3, named);
    const held = { a: a.held, b: b.held, c: c.held };
    c.crash();
    const d = stage.member('d', named('d')).start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    const again = stage.member('c', named('c')).start();
    await stage.settled(a, b, again, d);
    expect(held.c).toEqual(expect.arrayContaining([...again.held]));
    expect([a, b].flatMap((one) => one.last.added)).toEqual([]);
  });

  it('hands over its partitions immediately when it leaves', async () => {
    const stage = new GroupStage();
    const [a, b] = await stage.members(2, named);
    const beganMs = stage.nowMs;
    await b.leave();
    await stage.settled(a);
    expect(stage.nowMs - beganMs).toBeLessThan(NOTICED_MS);
  });

  it('moves only its own partitions in each of ten rolling restarts', async () => {
    const stage = new GroupStage();
    const members: StagedMember[] = [...(await stage.members(3, named))];
    for (let restart = 0; restart < 10; restart += 1) {
      const at = restart % 3;
      const others = members.filter((_, i) => i !== at);
      await members[at]?.leave();
      await stage.settled(...others);
      expect(others.map(({ last }) => [last.added.length, last.removed.length])).toEqual([
        [2, 0],
        [2, 0],
      ]);
      const again = stage.member('abc'[at] ?? '', named('abc'[at] ?? '')).start();
      members[at] = again;
      await stage.settled(...members);
      expect(others.map(({ last }) => [last.added.length, last.removed.length])).toEqual([
        [0, 2],
        [0, 2],
      ]);
    }
  });

  it('gets back what it had after a clean restart', async () => {
    const stage = new GroupStage();
    const [a, b, c] = await stage.members(3, named);
    const held = [a.held, b.held, c.held];
    await c.leave();
    await stage.settled(a, b);
    const again = stage.member('c', named('c')).start();
    await stage.settled(a, b, again);
    expect([a.held, b.held, again.held]).toEqual(held);
  });

  it('ends permanently when another process takes its instance ID', async () => {
    const stage = new GroupStage();
    const [a, b] = await stage.members(2, named);
    const thief = stage.member('b-twice', named('b')).start();
    await stage.until(() => b.fenced.length > 0, 'a fenced member');
    expect(b.fenced).toEqual(['FENCED_INSTANCE_ID']);
    expect(b.lost).toMatchObject([{ errorCode: 'FENCED_INSTANCE_ID' }]);
    const before = b.calls.length;
    await stage.pass(2 * SESSION_MS);
    expect(b.calls).toHaveLength(before);
    expect(await b.commit({ 0: 1 })).toBe('REBALANCE_IN_PROGRESS');
    await stage.settled(a, thief);
  });
});

const AFTER_MS = 5_000;

function rejoining() {
  const runtime = new VirtualRuntime();
  const begunMs: number[] = [];
  const schedule = new Rejoining(runtime, AFTER_MS, () => begunMs.push(runtime.monotonicMs()));
  return { schedule, begunMs, pass: (ms: number) => runtime.until(runtime.sleep(ms)) };
}

describe('a request to rejoin', () => {
  it('waits until the generation has lasted for its minimum time', async () => {
    const { schedule, begunMs, pass } = rejoining();
    await pass(100);
    schedule.joined();
    schedule.request();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([100 + AFTER_MS]);
  });

  it('counts from the latest generation', async () => {
    const { schedule, begunMs, pass } = rejoining();
    schedule.joined();
    schedule.request();
    await pass(3_000);
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([3_000 + AFTER_MS]);
  });

  it('is fulfilled when the report is read, and only then', async () => {
    const { schedule, begunMs, pass } = rejoining();
    schedule.request();
    await pass(1);
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toHaveLength(2);
    schedule.watching(() => 'report')();
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toHaveLength(2);
  });

  it('ends with the membership', async () => {
    const { schedule, begunMs, pass } = rejoining();
    schedule.request();
    schedule.end();
    schedule.joined();
    await pass(2 * AFTER_MS);
    expect(begunMs).toEqual([]);
  });
});

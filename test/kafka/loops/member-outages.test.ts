import { describe, expect, it } from 'vitest';
import { GROUP, GroupStage, PARTITIONS } from './group-stage.ts';

const SESSION_MS = 10_000;
const JOIN_DEADLINE_MS = 15_000;

describe('a member whose coordinator fails', () => {
  it('stays a member while the coordinator is silent for less than a session', async () => {
    const stage = new GroupStage({ nodes: 3, fenceAfterMs: 60_000 });
    const [a] = await stage.members(1);
    const node = stage.coordinator;
    stage.kafka.freeze(node);
    await stage.pass(8_000);
    stage.kafka.thaw(node);
    await stage.pass(SESSION_MS);
    expect([a.lost, a.assigned.length]).toEqual([[], 1]);
    expect(a.warnings).toEqual(['the coordinator of the group does not answer']);
  });

  it.each(['freeze', 'black hole'])('continues with another broker after a %s, without a rebalance', async (kind) => {
    const stage = new GroupStage({ nodes: 3, fenceAfterMs: 4_000 });
    const [a, b] = await stage.members(2);
    const { generation } = stage.group;
    const node = stage.coordinator;
    if (kind === 'freeze') stage.kafka.freeze(node);
    else {
      stage.network.blackHoled.add(node);
      stage.kafka.fence(node);
    }
    await stage.pass(3 * SESSION_MS);
    expect(stage.coordinator).not.toBe(node);
    expect(stage.group.generation).toBe(generation);
    expect([...a.lost, ...b.lost]).toEqual([]);
    expect(await stage.runtime.until(a.commit({ [a.held[0] ?? 0]: 5 }))).toBe('ok');
  });

  it('notices within a session of 12 s that another broker coordinates the group after 9 s', async () => {
    const stage = new GroupStage({ nodes: 3, fenceAfterMs: 9_000 });
    const [a] = await stage.members(1, () => ({ sessionTimeoutMs: 12_000 }));
    await stage.pass(2_000);
    stage.kafka.freeze(stage.coordinator);
    await stage.pass(30_000);
    expect([a.lost, a.assigned.length]).toEqual([[], 1]);
  });

  it('joins as soon as another broker coordinates the group when the first one was silent from the start', async () => {
    const stage = new GroupStage({ nodes: 3, fenceAfterMs: 3_000 });
    stage.kafka.freeze(stage.coordinator);
    const a = stage.member('a').start();
    const beganMs = stage.nowMs;
    await stage.settled(a);
    expect(stage.nowMs - beganMs).toBeLessThan(4_000);
  });

  it('continues while a new coordinator loads the group, without a rebalance', async () => {
    const stage = new GroupStage({ nodes: 3, groups: { loadMs: () => 3_000 } });
    const [a, b] = await stage.members(2);
    const { generation } = stage.group;
    for (let move = 0; move < 3; move += 1) {
      stage.kafka.moveCoordinator(GROUP);
      await stage.pass(5_000);
    }
    expect(stage.group.generation).toBe(generation);
    expect([...a.lost, ...b.lost]).toEqual([]);
    expect(a.calls.filter(({ errorCode }) => errorCode === 'GROUP_LOAD_IN_PROGRESS').length).toBeGreaterThan(0);
  });

  it('gives up its partitions when no heartbeat was answered for a session, and rejoins when one is', async () => {
    const stage = new GroupStage({ fenceAfterMs: 600_000 });
    const [a] = await stage.members(1);
    const node = stage.coordinator;
    await stage.pass(2_000);
    stage.kafka.freeze(node);
    const frozenMs = stage.nowMs;
    await stage.until(() => a.lost.length > 0, 'a loss');
    const confirmedMs = a.called('heartbeat').findLast(({ endedMs }) => (endedMs ?? 1e9) <= frozenMs)?.sentMs ?? 0;
    expect(a.lost).toEqual([{ atMs: confirmedMs + SESSION_MS, errorCode: 'NO_RESPONSE' }]);
    expect(a.member.joined).toBe(false);
    expect(await stage.runtime.until(a.commit({ 0: 1 }))).toBe('REBALANCE_IN_PROGRESS');
    stage.kafka.thaw(node);
    await stage.settled(a);
    expect(a.last.added).toHaveLength(PARTITIONS);
  });

  it('gives up its partitions after a session even while the coordinator holds its JoinGroup', async () => {
    const stage = new GroupStage({ fenceAfterMs: 600_000 });
    const [a, b] = await stage.members(2);
    b.crash();
    stage.member('c').start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    await stage.pass(1_000);
    stage.kafka.freeze(stage.coordinator);
    const frozenMs = stage.nowMs;
    await stage.until(() => a.lost.length > 0, 'a loss');
    expect(stage.nowMs - frozenMs).toBeLessThanOrEqual(SESSION_MS + 5);
    expect(stage.nowMs - frozenMs).toBeGreaterThan(SESSION_MS - 600);
  });

  it('joins elsewhere long before the deadline of a JoinGroup that a silent coordinator holds', async () => {
    const stage = new GroupStage({ nodes: 3, fenceAfterMs: 3_000 });
    const [a, b] = await stage.members(2);
    b.crash();
    const c = stage.member('c').start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    await stage.pass(1_000);
    expect(a.called('joinGroup').at(-1)?.endedMs).toBeUndefined();
    stage.network.blackHoled.add(stage.coordinator);
    stage.kafka.freeze(stage.coordinator);
    const frozenMs = stage.nowMs;
    await stage.until(() => a.called('joinGroup').some(({ sentMs }) => sentMs > frozenMs), 'another join');
    expect(stage.nowMs - frozenMs).toBeLessThan(6_000);
    await stage.settled(a, c);
    expect(a.lost).toEqual([]);
  });

  it('rejoins when the answer to its SyncGroup is lost, and keeps what it has', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    stage.network.script = (call, way) => (call === 'syncGroup' && way === 'back' ? 'reset' : undefined);
    const b = stage.member('b').start();
    await stage.pass(1_000);
    expect(a.member.joined).toBe(true);
    stage.network.script = () => undefined;
    await stage.settled(a, b);
    expect(a.lost).toEqual([]);
    expect(a.last.added).toEqual([]);
  });

  it.each(['frozen', 'down'])(
    'retries at most a few times a second and warns rarely while every broker is %s',
    async (kind) => {
      const stage = new GroupStage({ nodes: 2, fenceAfterMs: 600_000 });
      const [a] = await stage.members(1);
      for (const node of [1, 2]) kind === 'frozen' ? stage.kafka.freeze(node) : stage.kafka.crash(node);
      const [before, beganMs] = [a.calls.length + a.dials, stage.nowMs];
      const seconds = () => (stage.nowMs - beganMs) / 1_000;
      for (const ms of [SESSION_MS / 2, 12 * SESSION_MS]) {
        await stage.pass(ms);
        expect((a.calls.length + a.dials - before) / seconds()).toBeLessThan(12);
      }
      const byMessage = Map.groupBy(a.warnings, (message) => message);
      for (const warnings of byMessage.values()) expect(warnings.length).toBeLessThanOrEqual(seconds() / 10 + 1);
      expect(byMessage.size).toBe(2);
    },
  );

  it('waits five seconds between attempts when the coordinator rejects it permanently', async () => {
    const stage = new GroupStage();
    stage.kafka.refuses = (call) => (call === 'joinGroup' ? 'GROUP_AUTHORIZATION_FAILED' : undefined);
    const a = stage.member('a').start();
    await stage.pass(31_000);
    expect(a.called('joinGroup')).toHaveLength(7);
    stage.kafka.refuses = () => undefined;
    await stage.settled(a);
  });

  it('can start without brokers, and joins when they come up', async () => {
    const stage = new GroupStage();
    stage.kafka.crash(1);
    const a = stage.member('a').start();
    await stage.pass(60_000);
    stage.kafka.restart(1);
    const beganMs = stage.nowMs;
    await stage.settled(a);
    expect(stage.nowMs - beganMs).toBeLessThan(1_500);
  });
});

describe('leaving', () => {
  it('takes at most a second when the coordinator is silent, and nothing is sent afterwards', async () => {
    const stage = new GroupStage({ fenceAfterMs: 600_000 });
    const [a] = await stage.members(1);
    stage.kafka.freeze(stage.coordinator);
    const beganMs = stage.nowMs;
    await stage.runtime.until(a.member.leave());
    expect(stage.nowMs - beganMs).toBeLessThanOrEqual(1_000);
    const before = a.calls.length;
    await stage.pass(JOIN_DEADLINE_MS);
    expect(a.calls).toHaveLength(before);
    expect(a.lost).toEqual([]);
  });

  it('takes at most a second when the coordinator does not answer the first JoinGroup', async () => {
    const stage = new GroupStage();
    stage.network.script = (call, way) => (call === 'joinGroup' && way === 'back' ? 'lost' : undefined);
    const a = stage.member('a').start();
    await stage.pass(1_000);
    const beganMs = stage.nowMs;
    await stage.runtime.until(a.member.leave());
    expect(stage.nowMs - beganMs).toBe(1_000);
  });

  it('is one round trip when the coordinator answers, and leaves no timer behind', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    const beganMs = stage.nowMs;
    await a.leave();
    expect(stage.nowMs - beganMs).toBeLessThan(10);
    expect(a.called('leaveGroup')).toHaveLength(1);
    await stage.pass(100);
    expect(stage.runtime.pending).toBe(0);
  });

  it.each([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])(
    '%i ms after the start leaves no member in the group',
    async (ms) => {
      const stage = new GroupStage();
      const [a] = await stage.members(1);
      const b = stage.member('b').start();
      await stage.pass(ms);
      await b.leave();
      await stage.pass(1_200);
      const c = stage.member('c').start();
      const beganMs = stage.nowMs;
      await stage.settled(a, c);
      expect(stage.nowMs - beganMs).toBeLessThan(700);
    },
  );

  it('cancels a JoinGroup that the coordinator holds, without waiting for the other members', async () => {
    const stage = new GroupStage();
    const [a, b] = await stage.members(2);
    b.crash();
    const c = stage.member('c', { instanceId: 'static' }).start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    await stage.pass(1_000);
    const beganMs = stage.nowMs;
    await stage.runtime.until(c.member.leave());
    expect(stage.nowMs - beganMs).toBeLessThan(10);
    expect(c.called('joinGroup').at(-1)?.errorCode).toBe('CONNECTION_LOST');
    await stage.settled(a);
  });

  it('also ends a member that has not started', async () => {
    const stage = new GroupStage();
    const a = stage.member('a');
    await a.leave();
    a.start();
    await stage.pass(1_000);
    expect(a.calls).toEqual([]);
  });
});

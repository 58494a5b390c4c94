import { describe, expect, it } from 'vitest';
import type { OffsetCommitRequest } from '../../../src/kafka/wire/group-apis.ts';
import { type Call, GroupStage, PARTITIONS, type StagedMember } from './group-stage.ts';

const SESSION_MS = 10_000;

/** Delays the answers to commits. */
function delayCommits(stage: GroupStage, delayMs: number): void {
  stage.network.script = (call, way) => (call === 'offsetCommit' && way === 'back' ? delayMs : undefined);
}

const generationOf = ({ request }: Call) => (request as OffsetCommitRequest).generation;
const joinsAfter = (member: StagedMember, atMs: number) =>
  member.called('joinGroup').filter(({ sentMs }) => sentMs > atMs);

describe('commits of a member', () => {
  it('are kept by the group, in the generation of the assignment', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    expect(await stage.runtime.until(a.commit({ 3: 17, 4: 9 }))).toBe('ok');
    expect([stage.committed(3), stage.committed(4)]).toEqual([17, 9]);
    expect(a.called('offsetCommit').map(generationOf)).toEqual([1]);
    const committed = await stage.runtime.until(a.member.fetchCommitted([3, 4, 5]));
    expect([...committed]).toEqual([
      [3, { offset: 17, metadata: '' }],
      [4, { offset: 9, metadata: '' }],
      [5, undefined],
    ]);
  });

  it('are sent one after the other', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    delayCommits(stage, 300);
    const both = await stage.runtime.until(Promise.all([a.commit({ 0: 1 }), a.commit({ 0: 2 })]));
    expect(both).toEqual(['ok', 'ok']);
    const [first, second] = a.called('offsetCommit');
    expect(second?.sentMs).toBeGreaterThanOrEqual(first?.endedMs ?? Number.POSITIVE_INFINITY);
    expect(stage.committed(0)).toBe(2);
  });

  it('have ended before JoinGroup is sent, and none starts before the next assignment', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    delayCommits(stage, 900);
    const b = stage.member('b').start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    const late = a.commit({ 0: 1 });
    await stage.until(() => joinsAfter(a, 100).length > 0, 'a join');
    const refused = await stage.runtime.until(a.commit({ 0: 2 }));
    await stage.settled(a, b);
    expect(await late).toBe('ok');
    expect(refused).toBe('REBALANCE_IN_PROGRESS');
    expect(a.called('offsetCommit')).toHaveLength(1);
    expect(joinsAfter(a, 100)[0]?.sentMs).toBeGreaterThanOrEqual(a.called('offsetCommit')[0]?.endedMs ?? 1e9);
  });

  it('have ended before JoinGroup is sent, even when the membership was lost', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    const delays: Readonly<Record<string, number>> = { heartbeat: 100, offsetCommit: 800 };
    stage.network.script = (call, way) => (way === 'back' ? delays[call] : undefined);
    stage.kafka.refuses = (call) => (call === 'heartbeat' && a.lost.length === 0 ? 'ILLEGAL_GENERATION' : undefined);
    const beats = a.called('heartbeat').length;
    await stage.until(() => a.called('heartbeat').length > beats, 'a heartbeat in flight');
    const commit = a.commit({ 0: 1 });
    await stage.until(() => a.lost.length > 0, 'a loss');
    await stage.settled(a);
    expect(await stage.runtime.until(commit)).toBe('ok');
    const endedMs = a.called('offsetCommit')[0]?.endedMs ?? 1e9;
    expect(endedMs).toBeGreaterThan(a.lost[0]?.atMs ?? 1e9);
    expect(joinsAfter(a, 100)[0]?.sentMs).toBeGreaterThanOrEqual(endedMs);
  });

  it('are sent one last time before rejoining, in the ending generation', async () => {
    const stage = new GroupStage();
    let next = 0;
    const a: StagedMember = stage.member('a', {
      beforeRejoin: async () => {
        next += 1;
        await a.member.commit(new Map([[1, { offset: next, metadata: '' }]]));
      },
    });
    await stage.settled(a.start());
    const b = stage.member('b').start();
    await stage.settled(a, b);
    expect(stage.committed(1)).toBe(1);
    expect(a.called('offsetCommit').map(generationOf)).toEqual([1]);
    expect(await stage.runtime.until(a.commit({ [a.held[0] ?? 0]: 40 }))).toBe('ok');
    expect(a.called('offsetCommit').map(generationOf)).toEqual([1, 2]);
  });

  it('delay a join by no more than a second when the last one hangs', async () => {
    const stage = new GroupStage();
    const a = stage.member('a', { beforeRejoin: () => new Promise(() => {}) });
    await stage.settled(a.start());
    const b = stage.member('b').start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    const beganMs = stage.nowMs;
    await stage.settled(a, b);
    expect(stage.nowMs - beganMs).toBeLessThan(1_600);
  });

  it('that are queued are not sent once a rebalance has started', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    const delays: Readonly<Record<string, number>> = { heartbeat: 100, offsetCommit: 400 };
    stage.network.script = (call, way) => (way === 'back' ? delays[call] : undefined);
    const b = stage.member('b').start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    const beats = a.called('heartbeat').length;
    await stage.until(() => a.called('heartbeat').length > beats, 'a heartbeat in flight');
    const both = Promise.all([a.commit({ 0: 1 }), a.commit({ 0: 2 })]);
    await stage.settled(a, b);
    expect(await both).toEqual(['ok', 'REBALANCE_IN_PROGRESS']);
    expect(stage.committed(0)).toBe(1);
  });

  it('are rejected for a partition of another member', async () => {
    const stage = new GroupStage();
    const [a, b] = await stage.members(2);
    const [foreign = 0] = b.held;
    expect(await stage.runtime.until(a.commit({ [foreign]: 1 }))).toMatch('RangeError');
    expect(a.called('offsetCommit')).toEqual([]);
  });

  it('make the member rejoin immediately when they are answered by a rebalance', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1, () => ({ heartbeatMs: 3_000 }));
    const b = stage.member('b').start();
    await stage.until(() => stage.group.state === 'PreparingRebalance', 'a rebalance');
    stage.kafka.refuses = (call) => (call === 'offsetCommit' ? 'REBALANCE_IN_PROGRESS' : undefined);
    const beganMs = stage.nowMs;
    expect(await stage.runtime.until(a.commit({ 0: 1 }))).toBe('REBALANCE_IN_PROGRESS');
    await stage.settled(a, b);
    expect(stage.nowMs - beganMs).toBeLessThan(50);
  });

  it.each(['UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION'])(
    'end the membership when they are answered by %s',
    async (errorCode) => {
      const stage = new GroupStage();
      const [a] = await stage.members(1);
      stage.kafka.refuses = (call) => (call === 'offsetCommit' ? errorCode : undefined);
      expect(await stage.runtime.until(a.commit({ 0: 1 }))).toBe(errorCode);
      expect(a.lost).toMatchObject([{ errorCode }]);
      expect(a.member.joined).toBe(false);
      expect(await stage.runtime.until(a.commit({ 0: 1 }))).not.toBe('ok');
      expect(a.called('offsetCommit')).toHaveLength(1);
      stage.kafka.refuses = () => undefined;
      await stage.settled(a);
      expect(a.last.added).toHaveLength(PARTITIONS);
    },
  );

  it('end a static member permanently if they show that another process has replaced it', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1, () => ({ instanceId: 'worker', heartbeatMs: 3_000 }));
    const thief = stage.member('thief', { instanceId: 'worker' }).start();
    await stage.settled(thief);
    expect(await stage.runtime.until(a.commit({ 0: 1 }))).toBe('UNKNOWN_MEMBER_ID');
    await stage.pass(20);
    expect(a.fenced).toEqual(['FENCED_INSTANCE_ID']);
    expect(a.lost).toHaveLength(1);
    expect(thief.lost).toEqual([]);
  });

  it('that take long delay no heartbeat', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1, () => ({ sessionTimeoutMs: 6_000 }));
    delayCommits(stage, 1_900);
    const beganMs = stage.nowMs;
    while (stage.nowMs - beganMs < 2 * SESSION_MS) expect(await stage.runtime.until(a.commit({ 0: 1 }))).toBe('ok');
    const waits = a.called('heartbeat').map(({ sentMs, endedMs }) => (endedMs ?? stage.nowMs) - sentMs);
    expect(waits.length).toBeGreaterThan(30);
    expect(Math.max(...waits)).toBeLessThan(10);
  });

  it('without an answer time out, and affect neither the membership nor the next commit', async () => {
    const stage = new GroupStage();
    const [a] = await stage.members(1);
    delayCommits(stage, 60_000);
    const beganMs = stage.nowMs;
    expect(await stage.runtime.until(a.commit({ 0: 1 }))).toBe('NO_RESPONSE');
    expect(stage.nowMs - beganMs).toBeLessThanOrEqual(2_000);
    delayCommits(stage, 1);
    expect(await stage.runtime.until(a.commit({ 0: 2 }))).toBe('ok');
    await stage.pass(2 * SESSION_MS);
    expect([a.lost, a.assigned.length]).toEqual([[], 1]);
  });
});

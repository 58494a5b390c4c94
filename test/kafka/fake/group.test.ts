import { describe, expect, it } from 'vitest';
import { GROUP, Joiner, nameOf, Stage } from './stage.ts';

/** A group of `count` members in its first generation. */
async function groupOf(count: number, instanceIds: readonly string[] = []) {
  const stage = new Stage({ nodes: 1, groups: { initialDelayMs: 100 } });
  const joiners: Joiner[] = [];
  for (let i = 0; i < count; i += 1) joiners.push(await Joiner.make(stage));
  const fieldsOf = (i: number) => (instanceIds[i] === undefined ? {} : { instanceId: instanceIds[i] });
  await stage.outcome(Promise.all(joiners.map((joiner, i) => joiner.join(fieldsOf(i)))));
  const assigned = await stage.outcome(Promise.all(joiners.map((joiner) => joiner.sync())));
  const group = stage.kafka.cluster.groups.get(GROUP);
  if (group === undefined) throw new Error('the group is not there');
  return { stage, joiners, assigned, group, groups: stage.kafka.cluster.groups };
}

/** Keeps members alive while virtual time passes. */
async function beat(stage: Stage, joiners: readonly Joiner[], times: number): Promise<string[]> {
  let last: string[] = [];
  for (let i = 0; i < times; i += 1) {
    await stage.pass(3_000);
    last = [];
    for (const joiner of joiners) last.push(await joiner.heartbeat());
  }
  return last;
}

describe('a simulated group', () => {
  it('gives a new member an ID to join with, and each member what the leader assigned', async () => {
    const { joiners, assigned, group } = await groupOf(3);
    expect(group.state).toBe('Stable');
    expect(assigned).toEqual(joiners.map(({ memberId }) => `for ${memberId}`));
    expect(new Set(joiners.map(({ answer }) => answer?.generation))).toEqual(new Set([1]));
    expect(joiners.map(({ answer }) => answer?.members.length)).toEqual([3, 0, 0]);
  });

  it('signals a new member to the others by their heartbeats, and waits for all of them', async () => {
    const { stage, joiners, group } = await groupOf(2);
    const [one, two] = joiners as [Joiner, Joiner];
    const third = await Joiner.make(stage);
    const joining = third.join();
    await stage.pass(1_000);
    expect(group.state).toBe('PreparingRebalance');
    expect(await one.heartbeat()).toBe('REBALANCE_IN_PROGRESS');
    expect(await one.commit(5)).toBe('ok');
    const rejoining = one.join();
    await stage.pass(100);
    expect(group.state).toBe('PreparingRebalance');
    await stage.outcome(Promise.all([joining, rejoining, two.join()]));
    expect(group.state).toBe('CompletingRebalance');
    expect(await one.commit(6)).toBe('REBALANCE_IN_PROGRESS');
    await stage.outcome(Promise.all([one, two, third].map((joiner) => joiner.sync())));
    expect([group.state, group.generation, await one.commit(7)]).toEqual(['Stable', 2, 'ok']);
  });

  it('continues without a member that does not rejoin within the rebalance timeout', async () => {
    const { stage, joiners, group } = await groupOf(2);
    const [one, two] = joiners as [Joiner, Joiner];
    const third = await Joiner.make(stage);
    const joining = Promise.all([third.join(), one.join()]);
    const beating = async (): Promise<void> => {
      for (let i = 0; i < 6; i += 1) await beat(stage, [two], 1);
    };
    await beating();
    expect(group.members).toHaveLength(3);
    await stage.outcome(joining);
    expect([group.members.length, await two.heartbeat()]).toEqual([2, 'UNKNOWN_MEMBER_ID']);
  });

  it('removes a member that is silent for a session, and not earlier', async () => {
    const { stage, joiners, group } = await groupOf(2);
    const [one, two] = joiners as [Joiner, Joiner];
    expect(await beat(stage, [one], 3)).toEqual(['ok']);
    expect(group.members).toHaveLength(2);
    expect(await beat(stage, [one], 1)).toEqual(['REBALANCE_IN_PROGRESS']);
    await stage.outcome(one.join());
    expect(group.members.map(({ memberId }) => memberId)).toEqual([one.memberId]);
    expect(await two.commit(9)).toBe('UNKNOWN_MEMBER_ID');
  });

  it('rejects commits and heartbeats of an old generation', async () => {
    const { stage, joiners, groups } = await groupOf(1);
    const [one] = joiners as [Joiner];
    const old = one.answer;
    expect(await one.commit(3)).toBe('ok');
    await stage.outcome(one.join());
    await stage.outcome(one.sync());
    const now = one.answer;
    one.answer = old;
    expect([await one.commit(4), await one.heartbeat()]).toEqual(['ILLEGAL_GENERATION', 'ILLEGAL_GENERATION']);
    one.answer = now;
    expect(groups.committed(GROUP, 't', 0)).toBe(3);
  });

  it('can be left immediately, and accepts outside commits while it is empty', async () => {
    const { stage, joiners, group } = await groupOf(2);
    const [one, two] = joiners as [Joiner, Joiner];
    await stage.outcome(two.link.call('leaveGroup', two.identity));
    expect(await one.heartbeat()).toBe('REBALANCE_IN_PROGRESS');
    const outside = {
      groupId: GROUP,
      memberId: '',
      generation: -1,
      partitions: [{ topic: 't', partition: 0, offset: 1 }],
    };
    const refused = await stage.outcome(one.link.call('offsetCommit', outside));
    await stage.outcome(one.link.call('leaveGroup', one.identity));
    expect(group.state).toBe('Empty');
    const taken = await stage.outcome(one.link.call('offsetCommit', outside));
    expect([refused, taken].map(({ partitions }) => partitions[0]?.errorCode)).toEqual([
      'UNKNOWN_MEMBER_ID',
      undefined,
    ]);
  });

  it('lets a static member return without a rebalance, and fences the previous one', async () => {
    const { stage, joiners, group } = await groupOf(2, ['i1', 'i2']);
    const [one, two] = joiners as [Joiner, Joiner];
    const again = await Joiner.make(stage);
    const answer = await stage.outcome(again.join({ instanceId: 'i2' }));
    expect([answer.generation, answer.memberId === two.memberId]).toEqual([1, false]);
    expect(await stage.outcome(again.sync())).toBe(`for ${two.memberId}`);
    expect([group.state, await one.heartbeat()]).toEqual(['Stable', 'ok']);
    const fenced = two.link.call('heartbeat', { ...two.identity, instanceId: 'i2' });
    expect(await stage.outcome(nameOf(fenced))).toBe('FENCED_INSTANCE_ID');
  });

  it('keeps a static member that is away until its session is over', async () => {
    const { stage, joiners, group } = await groupOf(2, ['i1', 'i2']);
    const [one] = joiners as [Joiner];
    expect(await beat(stage, [one], 3)).toEqual(['ok']);
    expect(await beat(stage, [one], 1)).toEqual(['REBALANCE_IN_PROGRESS']);
    expect(group.members).toHaveLength(1);
  });

  it('selects a protocol that all members support, and rejects a member without it', async () => {
    const stage = new Stage();
    const [one, two, three] = [await Joiner.make(stage), await Joiner.make(stage), await Joiner.make(stage)];
    const named = (...names: string[]) => names.map((name) => ({ name, metadata: Buffer.from(name) }));
    await stage.outcome(one.join({ protocols: named('new', 'old') }));
    const joining = two.join({ protocols: named('old') });
    await stage.pass(10);
    await stage.outcome(Promise.all([joining, one.join({ protocols: named('new', 'old') })]));
    expect([one.answer?.protocol, two.answer?.protocol]).toEqual(['old', 'old']);
    expect(await nameOf(stage.outcome(three.join({ protocols: named('new') })))).toBe('INCONSISTENT_GROUP_PROTOCOL');
  });
});

describe('a simulated coordinator', () => {
  it('that moves continues from the last assignment, once it has loaded', async () => {
    const stage = new Stage({ nodes: 2, groups: { loadMs: () => 2_000 } });
    const link = await stage.link();
    const { nodeId } = await stage.outcome(link.call('findCoordinator', { groupId: GROUP }));
    const one = await Joiner.make(stage);
    Object.assign(one, { link: await stage.link(nodeId) });
    await stage.outcome(one.join());
    await stage.outcome(one.sync());
    expect(await one.commit(4)).toBe('ok');
    stage.kafka.cluster.moveCoordinator(GROUP);
    expect(await one.heartbeat()).toBe('NOT_COORDINATOR_FOR_GROUP');
    Object.assign(one, { link: await stage.link(3 - nodeId) });
    expect(await one.heartbeat()).toBe('GROUP_LOAD_IN_PROGRESS');
    await stage.pass(2_000);
    expect(await one.heartbeat()).toBe('ok');
    const answer = await stage.outcome(
      one.link.call('offsetFetch', {
        groupId: GROUP,
        partitions: [0, 1].map((partition) => ({ topic: 't', partition })),
      }),
    );
    expect(answer.partitions.map(({ offset }) => offset)).toEqual([4, -1]);
  });
});

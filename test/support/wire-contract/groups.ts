import { describe, expect, it } from 'vitest';
import { decodeSubscription } from '../../../src/kafka/loops/member-claims.ts';
import { type MemberOptions, TestMember } from './member.ts';
import { eventually, faultFrom, only, type WireStage } from './stage.ts';

export function groupsContract(at: () => WireStage): void {
  const member = (groupId: string, options?: MemberOptions) => new TestMember(at(), groupId, options);
  const described = async (groupId: string) =>
    only((await at().onCoordinator(groupId, (link) => link.call('describeGroups', { groupIds: [groupId] }))).groups);
  const committed = async (groupId: string, topic: string, partitions: readonly number[]) => {
    const wanted = partitions.map((partition) => ({ topic, partition }));
    const answer = await at().onCoordinator(groupId, (link) =>
      link.call('offsetFetch', { groupId, partitions: wanted }),
    );
    return new Map(answer.partitions.map(({ partition, offset }) => [partition, offset]));
  };

  describe('groups', () => {
    it('a new member gets an ID before it joins, and leads when it is alone', async () => {
      const one = member(await at().group());
      const named = await one.joinOnce();
      expect(named.errorCode).toBe('MEMBER_ID_REQUIRED');
      expect(named.memberId).not.toBe('');
      const joined = await one.joinOnce();
      expect(joined.errorCode).toBeUndefined();
      expect([joined.memberId, joined.leaderId, joined.protocol]).toEqual([named.memberId, named.memberId, 'one']);
      expect(joined.members.map(({ memberId }) => memberId)).toEqual([named.memberId]);
      expect(String(decodeSubscription(only(joined.members).metadata).userData)).toMatch(/^of member-/);
      await one.leave();
    });

    it("the leader's assignment reaches the member, and describeGroups returns it", async () => {
      const groupId = await at().group();
      const one = member(groupId);
      await one.join();
      expect(String((await one.sync({ [one.memberId]: 'its share' })).assignment)).toBe('its share');
      expect((await one.heartbeat()).throttleMs).toBe(0);
      const { state, members } = await described(groupId);
      expect([state, String(only(members).assignment)]).toEqual(['Stable', 'its share']);
      await one.leave();
      expect((await described(groupId)).state).toBe('Empty');
    });

    it('a group of the classic protocol, and one that does not exist, are unknown as groups of the new protocol', async () => {
      const groupId = await at().group();
      const one = member(groupId);
      await one.settle();
      for (const asked of [groupId, `${groupId}.none`]) {
        const { groups } = await at().onCoordinator(groupId, (link) =>
          link.call('consumerGroupDescribe', { groupIds: [asked] }),
        );
        expect(groups).toMatchObject([{ groupId: asked, errorCode: 'GROUP_ID_NOT_FOUND', members: [] }]);
      }
      await one.leave();
    });

    it('offsets are kept as committed, and are -1 where none was', async () => {
      const [groupId, topic] = [await at().group(), await at().topic(3)];
      const one = member(groupId);
      await one.settle();
      // biome-ignore format: pairs
      expect(await committed(groupId, topic, [0, 1])).toEqual(new Map([[0, -1], [1, -1]]));
      const { partitions } = await one.commit(topic, { 0: 7, 2: 9 });
      expect(partitions.map(({ errorCode }) => errorCode)).toEqual([undefined, undefined]);
      // biome-ignore format: pairs
      expect(await committed(groupId, topic, [0, 1, 2])).toEqual(new Map([[0, 7], [1, -1], [2, 9]]));
      const asked = { groupId, partitions: [0, 1].map((partition) => ({ topic, partition })) };
      const kept = await at().onCoordinator(groupId, (link) => link.call('offsetFetch', asked));
      expect(kept.partitions.map(({ metadata }) => metadata)).toEqual(['0 at 7', '']);
      await one.commit(topic, { 0: 5 });
      await one.leave();
      expect((await committed(groupId, topic, [0])).get(0)).toBe(5);
    });

    it('a non-member can commit while the group is empty, and not while it has members', async () => {
      const [groupId, topic] = [await at().group(), await at().topic()];
      const outsider = member(groupId);
      expect(only((await outsider.commit(topic, { 0: 3 })).partitions).errorCode).toBeUndefined();
      expect((await committed(groupId, topic, [0])).get(0)).toBe(3);
      const one = member(groupId);
      await one.settle();
      expect(only((await outsider.commit(topic, { 0: 4 })).partitions).errorCode).toBe('UNKNOWN_MEMBER_ID');
      await one.leave();
    });

    it('a second member makes the first rejoin, and each gets its share of the next generation', async () => {
      const groupId = await at().group();
      const [one, two] = [member(groupId), member(groupId)];
      await one.settle();
      const before = one.generation;
      const joining = two.join();
      await one.untilFault('REBALANCE_IN_PROGRESS');
      const [first, second] = await Promise.all([one.join(), joining]);
      expect([first.generation, second.generation]).toEqual([before + 1, before + 1]);
      expect(first.leaderId).toBe(one.memberId);
      expect(new Set(first.members.map(({ memberId }) => memberId))).toEqual(new Set([one.memberId, two.memberId]));
      expect(second.members).toEqual([]);
      const shares = await Promise.all([two.sync(), one.sync({ [one.memberId]: '1', [two.memberId]: '2' })]);
      expect(shares.map(({ assignment }) => String(assignment))).toEqual(['2', '1']);
      await two.leave();
      await one.untilFault('REBALANCE_IN_PROGRESS');
      await one.leave();
    });

    it('the chosen protocol is one that all members offer', async () => {
      const groupId = await at().group();
      const [one, two] = [member(groupId, { protocols: ['new', 'old'] }), member(groupId, { protocols: ['old'] })];
      await one.settle();
      const joining = two.join();
      await one.untilFault('REBALANCE_IN_PROGRESS');
      const [first] = await Promise.all([one.join(), joining]);
      expect(first.protocol).toBe('old');
      const stranger = member(groupId, { protocols: ['strange'] });
      expect(await faultFrom(stranger.join())).toBe('INCONSISTENT_GROUP_PROTOCOL');
      await Promise.all([one.leave(), two.leave()]);
    });

    it('a member of an earlier generation and an unknown member are rejected', async () => {
      const [groupId, topic] = [await at().group(), await at().topic()];
      const one = member(groupId);
      await one.settle();
      const { generation } = one;
      one.generation = generation - 1;
      expect(await faultFrom(one.heartbeat())).toBe('ILLEGAL_GENERATION');
      expect(await faultFrom(one.sync())).toBe('ILLEGAL_GENERATION');
      expect(only((await one.commit(topic, { 0: 1 })).partitions).errorCode).toBe('ILLEGAL_GENERATION');
      const stranger = member(groupId);
      [stranger.memberId, stranger.generation] = ['nobody', generation];
      expect(await faultFrom(stranger.heartbeat())).toBe('UNKNOWN_MEMBER_ID');
      expect(await faultFrom(stranger.leave())).toBe('UNKNOWN_MEMBER_ID');
      expect(only((await stranger.commit(topic, { 0: 1 })).partitions).errorCode).toBe('UNKNOWN_MEMBER_ID');
      expect((await committed(groupId, topic, [0])).get(0)).toBe(-1);
      one.generation = generation;
      await one.leave();
    });

    it('a member that is silent for its session is removed, and the others rejoin', async () => {
      const groupId = await at().group();
      const [one, two] = [member(groupId, { sessionTimeoutMs: 30_000 }), member(groupId, { sessionTimeoutMs: 6_000 })];
      await one.settle();
      const joining = two.join();
      await one.untilFault('REBALANCE_IN_PROGRESS');
      await Promise.all([one.join(), joining]);
      await Promise.all([two.sync(), one.sync()]);
      await one.untilFault('REBALANCE_IN_PROGRESS'); // with no other cause
      const alone = await one.join();
      expect(alone.members.map(({ memberId }) => memberId)).toEqual([one.memberId]);
      expect(await faultFrom(two.heartbeat())).toBe('UNKNOWN_MEMBER_ID');
      await one.leave();
    });

    it('a returning static member has its share again, in the same generation', async () => {
      const groupId = await at().group();
      const [one, two] = [member(groupId, { instanceId: 'a' }), member(groupId, { instanceId: 'b' })];
      await one.settle();
      const joining = two.join();
      await one.untilFault('REBALANCE_IN_PROGRESS');
      const [joined] = await Promise.all([one.join(), joining]);
      expect(new Set(joined.members.map(({ instanceId }) => instanceId))).toEqual(new Set(['a', 'b']));
      await Promise.all([two.sync(), one.sync({ [one.memberId]: '1', [two.memberId]: '2' })]);
      for (const [former, share, other] of [
        [one, '1', two],
        [two, '2', one],
      ] as const) {
        // biome-ignore format: pairs
        const restarted = member(groupId, former.id.instanceId === 'a' ? { instanceId: 'a' } : { instanceId: 'b' });
        const { generation, members } = await restarted.join();
        expect([generation, members]).toEqual([joined.generation, []]);
        expect(String((await restarted.sync()).assignment)).toBe(share);
        expect(restarted.memberId).not.toBe(former.memberId);
        if (other === two) expect(await faultFrom(other.heartbeat())).toEqual({ throttleMs: 0 });
        expect(await faultFrom(restarted.heartbeat())).toEqual({ throttleMs: 0 });
      }
    });

    it.each([
      ['dynamic', {}],
      ['static', { instanceId: 'b' }],
    ])(
      'a %s member of a stable group that joins again starts a rebalance only if its metadata changed',
      async (_, options) => {
        const groupId = await at().group();
        const [one, two] = [member(groupId), member(groupId, options)];
        await one.settle();
        const joining = two.join();
        await one.untilFault('REBALANCE_IN_PROGRESS');
        await Promise.all([one.join(), joining]);
        await Promise.all([two.sync(), one.sync({ [one.memberId]: '1', [two.memberId]: '2' })]);
        const { generation } = one;

        expect((await two.join()).generation).toBe(generation); // same metadata: nothing happens
        expect(await faultFrom(one.heartbeat())).toEqual({ throttleMs: 0 });

        two.says = 'something else';
        const again = two.join();
        await one.untilFault('REBALANCE_IN_PROGRESS');
        const [led] = await Promise.all([one.join(), again]);
        expect([led.generation, two.generation]).toEqual([generation + 1, generation + 1]);
        const said = led.members.map(({ metadata }) => String(decodeSubscription(metadata).userData));
        expect(new Set(said)).toEqual(new Set([one.says, 'something else']));
        const shares = await Promise.all([two.sync(), one.sync({ [one.memberId]: '3', [two.memberId]: '4' })]);
        expect(shares.map(({ assignment }) => String(assignment))).toEqual(['4', '3']);
        await two.leave();
        await one.untilFault('REBALANCE_IN_PROGRESS');
        await one.leave();
      },
    );

    it('a rejoining leader always starts a rebalance', async () => {
      const groupId = await at().group();
      const one = member(groupId, { instanceId: 'a' });
      await one.settle();
      const { generation } = one;
      expect((await one.join()).generation).toBe(generation + 1);
      await one.sync();
      await one.leave();
    });

    it('a member that joins with the instance ID of another replaces it, and the other is fenced', async () => {
      const [groupId, topic] = [await at().group(), await at().topic()];
      const [former, later] = [member(groupId, { instanceId: 'same' }), member(groupId, { instanceId: 'same' })];
      await former.settle();
      expect((await later.join()).generation).toBe(former.generation);
      expect(await faultFrom(former.heartbeat())).toBe('FENCED_INSTANCE_ID');
      expect(await faultFrom(former.join())).toBe('FENCED_INSTANCE_ID');
      expect(only((await former.commit(topic, { 0: 1 })).partitions).errorCode).toBe('UNKNOWN_MEMBER_ID');
      await later.sync();
      expect(only((await later.commit(topic, { 0: 1 })).partitions).errorCode).toBeUndefined();
      await later.leave();
      await eventually(async () => (await described(groupId)).state === 'Empty');
    });

    it('a session time-out that the broker does not allow is rejected', async () => {
      const one = member(await at().group(), { sessionTimeoutMs: 1 });
      expect(await faultFrom(one.join())).toBe('INVALID_SESSION_TIMEOUT');
    });
  });
}

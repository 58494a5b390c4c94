import { describe, expect, it } from 'vitest';
import type { Claims } from '../../../src/kafka/loops/assigner.ts';
import { decodeAssignment, encodeSubscription } from '../../../src/kafka/loops/group-protocol.ts';
import { Leadership } from '../../../src/kafka/loops/leadership.ts';
import { decodeJoining, offeredProtocols, ROUND_ROBIN, STICKY } from '../../../src/kafka/loops/member-claims.ts';
import { SparingLog } from '../../../src/kafka/loops/sparing-log.ts';
import type { JoinAnswer } from '../../../src/kafka/wire/port.ts';

const TOPIC = 'id.requests';
const NOTHING: Claims = { generation: -1, partitions: [] };

type Member = JoinAnswer['members'][number];

function leading(partitions: number) {
  const warnings: string[] = [];
  const log = new SparingLog({ monotonicMs: () => 0 }, (level, fields, message) => {
    if (level === 'warn') warnings.push(`${(fields as { memberId: string }).memberId}: ${message}`);
  });
  const leadership = new Leadership(TOPIC, partitions, log);
  /** One generation: what each member got. */
  const assign = (members: readonly Member[], { protocol = STICKY, generation = 1, confirmed = true } = {}) => {
    const answer = { throttleMs: 0, generation, protocol, leaderId: 'a', memberId: 'a', members };
    const assignments = leadership.assign(answer);
    if (confirmed) leadership.confirm();
    return Object.fromEntries(
      assignments.map(({ memberId, assignment }) => {
        const { assigned } = decodeAssignment(assignment);
        return [memberId, assigned.flatMap((one) => one.partitions)];
      }),
    );
  };
  return { assign, warnings };
}

function member(memberId: string, claims: Claims = NOTHING, instanceId?: string): Member {
  const [sticky] = offeredProtocols(TOPIC, claims, Buffer.alloc(0));
  const metadata = sticky?.metadata ?? Buffer.alloc(0);
  return instanceId === undefined ? { memberId, metadata } : { memberId, instanceId, metadata };
}

describe('what a member says when it joins', () => {
  it('offers our assigner first, and that of earlier releases for groups that have one of them', () => {
    expect(offeredProtocols(TOPIC, NOTHING, Buffer.alloc(0)).map(({ name }) => name)).toEqual([STICKY, ROUND_ROBIN]);
    expect([STICKY, ROUND_ROBIN]).toEqual(['idalloc-sticky', 'RoundRobinAssigner']);
  });

  it('carries what it had with the generation, and data that others interpret', () => {
    const claims = { generation: 9, partitions: [1, 5] };
    const [sticky] = offeredProtocols(TOPIC, claims, Buffer.from('reach'));
    const said = decodeJoining(TOPIC, sticky?.metadata ?? Buffer.alloc(0));
    expect(said).toEqual({ topics: [TOPIC], claims, extra: Buffer.from('reach') });
  });

  it('takes user data of somebody else for none', () => {
    for (const userData of [null, Buffer.alloc(0), Buffer.from([9, 0, 0, 0, 7]), Buffer.from([1, 0])]) {
      const metadata = encodeSubscription({ topics: [TOPIC], userData, owned: [{ topic: TOPIC, partitions: [3] }] });
      expect(decodeJoining(TOPIC, metadata).claims).toEqual({ generation: -1, partitions: [3] });
    }
  });
});

describe('the leader of the group', () => {
  it('leaves members what they have', () => {
    const { assign } = leading(4);
    const members = [
      member('a', { generation: 3, partitions: [1, 3] }),
      member('b', { generation: 3, partitions: [0, 2] }),
    ];
    expect(assign(members)).toEqual({ a: [1, 3], b: [0, 2] });
  });

  it('gives nothing to a member that it does not understand, or that reads other topics, and warns', () => {
    const { assign, warnings } = leading(4);
    const foreign = encodeSubscription({
      topics: ['other'],
      userData: null,
      owned: [{ topic: 'other', partitions: [0] }],
    });
    const plan = assign([
      member('a'),
      { memberId: 'odd', metadata: Buffer.from('no subscription') },
      { memberId: 'empty', metadata: Buffer.alloc(0) },
      { memberId: 'foreign', metadata: foreign },
      member('b'),
    ]);
    expect(plan).toEqual({ a: [0, 2], b: [1, 3], odd: [], empty: [], foreign: [] });
    expect(warnings).toEqual([
      'odd: the subscription of a member of the group is malformed; it gets no partitions',
      'foreign: a member of the group subscribes to other topics and gets no partitions',
    ]);
  });

  it('gives partitions by their topics to a member of another kind that subscribes to ours', () => {
    const { assign } = leading(4);
    const java = encodeSubscription({ topics: ['other', TOPIC], userData: null });
    expect(assign([member('a'), { memberId: 'java', metadata: java }])).toEqual({ a: [0, 2], java: [1, 3] });
  });

  it('deals out as an earlier release does while the group has one of its members', () => {
    const { assign } = leading(5);
    const metadata = encodeSubscription({ topics: [TOPIC], userData: Buffer.alloc(0) });
    const plan = assign(
      [
        { memberId: 'b', metadata },
        { memberId: 'a', metadata },
      ],
      { protocol: ROUND_ROBIN },
    );
    expect(plan).toEqual({ a: [0, 2, 4], b: [1, 3] });
  });

  it('gives a static member back what it had, though it claims nothing after its restart', () => {
    const { assign } = leading(6);
    const before = assign([member('a', NOTHING, 'i-a'), member('b', NOTHING, 'i-b'), member('c', NOTHING, 'i-c')]);
    const without = assign(
      [
        member('a', { generation: 1, partitions: before.a ?? [] }, 'i-a'),
        member('b', { generation: 1, partitions: before.b ?? [] }, 'i-b'),
      ],
      { generation: 2 },
    );
    const again = assign(
      [
        member('a', { generation: 2, partitions: without.a ?? [] }, 'i-a'),
        member('b', { generation: 2, partitions: without.b ?? [] }, 'i-b'),
        member('c-again', NOTHING, 'i-c'),
      ],
      { generation: 3 },
    );
    expect(again).toEqual({ a: before.a, b: before.b, 'c-again': before.c });
  });

  it('believes members about what they have, and not what it proposed in vain', () => {
    const { assign } = leading(4);
    assign([member('a', NOTHING, 'i-a'), member('b', NOTHING, 'i-b')], { generation: 5, confirmed: false });
    const held = { generation: 4, partitions: [0, 1] };
    const plan = assign([member('a', held, 'i-a'), member('b', { generation: 4, partitions: [2, 3] }, 'i-b')], {
      generation: 6,
    });
    expect(plan).toEqual({ a: [0, 1], b: [2, 3] });
  });
});

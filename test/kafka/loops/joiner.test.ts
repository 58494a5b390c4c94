import { describe, expect, it } from 'vitest';
import { Leadership } from '../../../src/kafka/loops/joiner.ts';
import {
  decodeAssignment,
  decodeJoining,
  decodeStandbys,
  encodeJoining,
  encodeSubscription,
} from '../../../src/kafka/loops/member-claims.ts';
import type { Claims, CopyReport } from '../../../src/kafka/loops/planner.ts';
import type { WireLog } from '../../../src/kafka/wire/broker.ts';
import type { JoinGroupResponse } from '../../../src/kafka/wire/group-apis.ts';

const TOPIC = 'id.requests';
const NOTHING: Claims = { generation: -1, partitions: [], standbys: [], warmups: [] };

type Member = JoinGroupResponse['members'][number];

/** The claims of a member without standbys and warm-ups. */
const had = (generation: number, partitions: readonly number[]): Claims => ({ ...NOTHING, generation, partitions });

function leading(partitions: number) {
  const warnings: string[] = [];
  const log: WireLog = (level, fields, message) => {
    if (level === 'warn') warnings.push(`${(fields as { memberId: string }).memberId}: ${message}`);
  };
  const leadership = new Leadership({ topic: TOPIC, partitions, standbys: 1, acceptableLag: 100 }, log);
  /** One generation: what each member got. */
  const lead = (members: readonly Member[], { generation = 1, confirmed = true } = {}) => {
    const answer = { throttleMs: 0, generation, protocol: 'any', leaderId: 'a', memberId: 'a', members };
    const assignments = leadership.assign(answer);
    if (confirmed) leadership.confirm();
    return assignments.map(({ memberId, assignment }) => {
      const { assigned, userData } = decodeAssignment(assignment);
      return { memberId, owned: assigned.flatMap((one) => one.partitions), userData: userData ?? Buffer.alloc(0) };
    });
  };
  const assign = (...args: Parameters<typeof lead>) =>
    Object.fromEntries(lead(...args).map(({ memberId, owned }) => [memberId, owned]));
  return { lead, assign, warnings };
}

function member(
  memberId: string,
  claims: Claims = NOTHING,
  instanceId?: string,
  copies: CopyReport = new Map(),
): Member {
  const metadata = encodeJoining(TOPIC, claims, { copies, unreached: [] });
  return instanceId === undefined ? { memberId, metadata } : { memberId, instanceId, metadata };
}

describe('the subscription of a joining member', () => {
  it('contains what it had with the generation, how complete its copies are, and which partitions it does not reach', () => {
    const claims = { generation: 9, partitions: [1, 5], standbys: [2, 7], warmups: [7] };
    const copies = new Map([[1, { end: 40, logEnd: 41 }]]);
    const report = { copies, unreached: [5] };
    expect(decodeJoining(TOPIC, encodeJoining(TOPIC, claims, report))).toEqual({ topics: [TOPIC], claims, ...report });
  });

  it('keeps its claims, and counts as having no copies, if the report is of a later release, or damaged', () => {
    for (const report of ['02', '0102', 'ff00', '00']) {
      const userData = Buffer.concat([Buffer.from([1, 0, 0, 0, 9]), Buffer.from(report, 'hex')]);
      const metadata = encodeSubscription({ topics: [TOPIC], userData, owned: [{ topic: TOPIC, partitions: [3] }] });
      expect(decodeJoining(TOPIC, metadata)).toEqual({
        topics: [TOPIC],
        claims: had(9, [3]),
        copies: new Map(),
        unreached: [],
      });
    }
  });

  it('ignores user data of other clients', () => {
    for (const userData of [null, Buffer.alloc(0), Buffer.from([9, 0, 0, 0, 7]), Buffer.from([1, 0])]) {
      const metadata = encodeSubscription({ topics: [TOPIC], userData, owned: [{ topic: TOPIC, partitions: [3] }] });
      expect(decodeJoining(TOPIC, metadata).claims).toEqual(had(-1, [3]));
    }
  });
});

describe('the leader of the group', () => {
  it('lets members keep what they have', () => {
    const { assign } = leading(4);
    const members = [member('a', had(3, [1, 3])), member('b', had(3, [0, 2]))];
    expect(assign(members)).toEqual({ a: [1, 3], b: [0, 2] });
  });

  it('gives nothing to a member with a malformed subscription or other topics, and warns', () => {
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
      "odd: a group member's subscription is malformed; it gets no partitions",
      "empty: a group member's subscription is malformed; it gets no partitions",
      'foreign: a group member subscribes to other topics; it gets no partitions',
    ]);
  });

  it('returns to a static member what it had, though it claims nothing after its restart', () => {
    const { assign } = leading(6);
    const before = assign([member('a', NOTHING, 'i-a'), member('b', NOTHING, 'i-b'), member('c', NOTHING, 'i-c')]);
    const without = assign([member('a', had(1, before.a ?? []), 'i-a'), member('b', had(1, before.b ?? []), 'i-b')], {
      generation: 2,
    });
    const again = assign(
      [
        member('a', had(2, without.a ?? []), 'i-a'),
        member('b', had(2, without.b ?? []), 'i-b'),
        member('c-again', NOTHING, 'i-c'),
      ],
      { generation: 3 },
    );
    expect(again).toEqual({ a: before.a, b: before.b, 'c-again': before.c });
  });

  it('remembers a thousand static members, those that were there last', () => {
    for (const [others, expected] of [
      [998, { 'a-again': [2, 3], x: [0, 1] }],
      [999, { 'a-again': [0, 2], x: [1, 3] }],
    ] as const) {
      const { assign } = leading(4);
      assign([member('a', had(0, [2, 3]), 'i-a'), member('b', had(0, [0, 1]), 'i-b')]);
      for (let nth = 0; nth < others; nth += 1)
        assign([member(`m${nth}`, NOTHING, `i-m${nth}`)], { generation: 2 + nth });
      expect(assign([member('a-again', NOTHING, 'i-a'), member('x', NOTHING, 'i-x')], { generation: 2_000 })).toEqual(
        expected,
      );
    }
  });

  it('trusts the claims of members over assignments that never took effect', () => {
    const { assign } = leading(4);
    assign([member('a', NOTHING, 'i-a'), member('b', NOTHING, 'i-b')], { generation: 5, confirmed: false });
    const held = had(4, [0, 1]);
    const plan = assign([member('a', held, 'i-a'), member('b', had(4, [2, 3]), 'i-b')], {
      generation: 6,
    });
    expect(plan).toEqual({ a: [0, 1], b: [2, 3] });
  });

  it('assigns each member its standbys, and marks those that it will own', () => {
    const { lead } = leading(2);
    const complete = { end: 1_000, logEnd: 1_000 };
    const copiesOfA = new Map([0, 1].map((partition) => [partition, complete]));
    const plan = lead([member('a', had(1, [0, 1]), 'i-a', copiesOfA), member('b', NOTHING, 'i-b', new Map())]);
    expect(plan.map(({ owned }) => owned)).toEqual([[0, 1], []]);
    expect(plan.map(({ userData }) => decodeStandbys(userData))).toEqual([
      undefined,
      { standbys: [0, 1], warmups: [1] },
    ]);
  });

  it('remembers the promised warm-ups of a restarting static member', () => {
    const { lead } = leading(2);
    const complete = new Map([0, 1].map((partition) => [partition, { end: 1_000, logEnd: 1_000 }]));
    const inPart = new Map([0, 1].map((partition) => [partition, { end: 500 + partition, logEnd: 1_000 }]));
    const a = (generation: number) => member('a', had(generation, [0, 1]), 'i-a', complete);
    lead([a(1), member('b', { ...NOTHING, generation: 1, warmups: [0] }, 'i-b', inPart)], { generation: 2 });
    const [, b] = lead([a(2), member('b-again', NOTHING, 'i-b', inPart)], { generation: 3 });
    expect(b?.userData && decodeStandbys(b.userData)).toEqual({ standbys: [0, 1], warmups: [0] });
  });
});

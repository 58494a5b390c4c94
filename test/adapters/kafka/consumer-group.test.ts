import { describe, expect, test } from 'vitest';
import { committedOffsets, describeGroup, setOffsets } from '../../../src/adapters/kafka/consumer-group.ts';
import type {
  ConsumerGroupDescribeResponse,
  DescribeGroupsResponse,
  OffsetCommitRequest,
} from '../../../src/kafka/wire/group-apis.ts';
import { kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { Answers } from '../../support/scripted-link.ts';
import { CONTROLLER as COORDINATOR, failing, scriptedBrokers } from './scripted-brokers.ts';

type Group = DescribeGroupsResponse['groups'][number];

const STABLE: Group = {
  groupId: 'g',
  state: 'Stable',
  members: [{ memberId: 'm-1', clientId: 'idalloc', clientHost: '/192.0.2.1', assignment: Buffer.alloc(0) }],
};

function coordinator(link: Answers) {
  return scriptedBrokers({ link: () => link });
}

function describing(...groups: readonly Group[]): Answers {
  return { describeGroups: async () => ({ throttleMs: 0, groups }) };
}

const UNKNOWN = { groupId: 'g', errorCode: 'GROUP_ID_NOT_FOUND', state: '', members: [] };
const modern = (group: ConsumerGroupDescribeResponse['groups'][number]): Answers => ({
  consumerGroupDescribe: async () => ({ throttleMs: 0, groups: [group] }),
});
const OLDER: Answers = { consumerGroupDescribe: failing('UNSUPPORTED_VERSION') };

const fetching = (
  partitions: readonly { partition: number; offset: number; metadata?: string; errorCode?: string }[],
): Answers => ({
  offsetFetch: async () => ({
    throttleMs: 0,
    partitions: partitions.map((one) => ({ topic: 't', metadata: '', ...one })),
  }),
});

describe('describeGroup', () => {
  test("asks the group's coordinator for its state and members", async () => {
    const brokers = coordinator(describing(STABLE));
    expect(await describeGroup(brokers, 'g')).toMatchObject({
      state: 'Stable',
      members: [{ clientHost: '/192.0.2.1' }],
    });
    expect(brokers.called).toEqual([COORDINATOR]);
  });

  test.each([
    ['that is dead', { groupId: 'g', state: 'Dead', members: [] }],
    ['that is unknown to the coordinator', { groupId: 'g', errorCode: 'GROUP_ID_NOT_FOUND', state: '', members: [] }],
  ])('returns undefined for a group %s', async (_, group) => {
    expect(await describeGroup(coordinator({ ...describing(group), ...OLDER }), 'g')).toBeUndefined();
    expect(await describeGroup(coordinator({ ...describing(group), ...modern(UNKNOWN) }), 'g')).toBeUndefined();
  });

  test('tells members that are not workers: all of a group with another assigner, and of a converted group those of the new protocol', async () => {
    const [member] = STABLE.members as [Group['members'][number]];
    const consumer = { ...member, memberId: 'm-2', clientId: 'rdkafka' };
    const names = async (answers: Answers) => {
      const found = await describeGroup(coordinator(answers), 'g');
      return found?.foreign.map(({ memberId }) => memberId);
    };
    expect(await names(describing({ ...STABLE, protocol: 'idalloc-sticky' }))).toEqual([]);
    expect(await names(describing({ ...STABLE, protocol: '', state: 'PreparingRebalance' }))).toEqual([]);
    expect(await names(describing({ ...STABLE, protocol: 'range' }))).toEqual(['m-1']);
    const members = [
      { ...member, isClassic: true },
      { ...consumer, isClassic: false },
    ];
    const converted = modern({ groupId: 'g', state: 'Stable', members });
    expect(await names({ ...describing(UNKNOWN), ...converted })).toEqual(['m-2']);
  });

  test('fails if a group of the new protocol may not be described', async () => {
    const refused = { ...UNKNOWN, errorCode: 'TOPIC_AUTHORIZATION_FAILED' };
    const brokers = coordinator({ ...describing(UNKNOWN), ...modern(refused) });
    const error = await describeGroup(brokers, 'g').catch((thrown: unknown) => thrown);
    expect(kafkaErrorCode(error)).toBe('TOPIC_AUTHORIZATION_FAILED');
  });

  test('looks up the coordinator again while it loads its groups, or has moved', async () => {
    const refusals = ['GROUP_LOAD_IN_PROGRESS', 'NOT_COORDINATOR_FOR_GROUP', 'NO_RESPONSE'];
    const brokers = coordinator({
      describeGroups: async () => {
        const errorCode = refusals.shift();
        if (errorCode === 'NO_RESPONSE') return failing(errorCode)();
        const group = errorCode === undefined ? STABLE : { groupId: 'g', errorCode, state: '', members: [] };
        return { throttleMs: 0, groups: [group] };
      },
    });
    expect(await describeGroup(brokers, 'g')).toMatchObject({ state: 'Stable' });
    expect(brokers.asked).toEqual(['g', 'g', 'g', 'g']);
  });

  test('fails immediately if this user may not describe the group', async () => {
    const brokers = coordinator({ describeGroups: failing('GROUP_AUTHORIZATION_FAILED') });
    const error = await describeGroup(brokers, 'g').catch((thrown: unknown) => thrown);
    expect([kafkaErrorCode(error), brokers.nowMs()]).toEqual(['GROUP_AUTHORIZATION_FAILED', 0]);
  });
});

describe('committedOffsets', () => {
  test('are returned for the partitions that have one, with what a worker says that committed it', async () => {
    const brokers = coordinator(
      fetching([
        { partition: 0, offset: 17, metadata: '{"small":20,"debtors":[]}' },
        { partition: 1, offset: -1 },
        { partition: 2, offset: 0 },
      ]),
    );
    expect(await committedOffsets(brokers, 'g', 't', [0, 1, 2])).toEqual(
      new Map([
        [0, { offset: 17, position: { next: 17, small: 20, last: undefined } }],
        [2, { offset: 0, position: undefined }],
      ]),
    );
  });

  test('are empty for a topic that does not exist', async () => {
    const brokers = coordinator(fetching([{ partition: 0, offset: -1, errorCode: 'UNKNOWN_TOPIC_OR_PARTITION' }]));
    expect(await committedOffsets(brokers, 'g', 't', [0])).toEqual(new Map());
  });

  test('are an error, not empty, if this user may not read them', async () => {
    const brokers = coordinator(fetching([{ partition: 0, offset: -1, errorCode: 'TOPIC_AUTHORIZATION_FAILED' }]));
    const error = await committedOffsets(brokers, 'g', 't', [0]).catch((thrown: unknown) => thrown);
    expect(kafkaErrorCode(error)).toBe('TOPIC_AUTHORIZATION_FAILED');
  });
});

describe('setOffsets', () => {
  const offsets = new Map([
    [0, 5],
    [3, 0],
  ]);
  const OFFSETS = { clusterId: 'one', offsets };

  function committing(...faults: readonly (string | undefined)[]) {
    const requests: OffsetCommitRequest[] = [];
    const left = [...faults];
    const brokers = coordinator({
      metadata: async () => ({ throttleMs: 0, clusterId: 'one', controllerId: 1, brokers: [], topics: [] }),
      offsetCommit: async (request) => {
        requests.push(request);
        const errorCode = left.shift();
        const partitions = request.partitions.map(({ topic, partition }) => ({
          topic,
          partition,
          ...(errorCode && { errorCode }),
        }));
        return { throttleMs: 0, partitions };
      },
    });
    return { brokers, requests };
  }

  test('commits from outside the group: no member, no generation, and as a worker would', async () => {
    const { brokers, requests } = committing(undefined);
    await setOffsets(brokers, 'g', 't', OFFSETS);
    expect(requests).toEqual([
      {
        groupId: 'g',
        generation: -1,
        memberId: '',
        partitions: [
          { topic: 't', partition: 0, offset: 5, metadata: '{"small":5}' },
          { topic: 't', partition: 3, offset: 0, metadata: '{"small":0}' },
        ],
      },
    ]);
  });

  test.each(['UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION', 'REBALANCE_IN_PROGRESS'])(
    'is GROUP_ACTIVE when a member has joined meanwhile: %s',
    async (errorCode) => {
      const { brokers, requests } = committing(errorCode);
      await expect(setOffsets(brokers, 'g', 't', OFFSETS)).rejects.toMatchObject({ code: 'GROUP_ACTIVE' });
      expect(requests).toHaveLength(1);
    },
  );

  test('commits nothing to a coordinator of another cluster', async () => {
    const { brokers, requests } = committing(undefined);
    const others = { clusterId: 'other', offsets };
    await expect(setOffsets(brokers, 'g', 't', others)).rejects.toMatchObject({ code: 'CLUSTER_CHANGED' });
    expect(requests).toEqual([]);
  });

  test('is retried after a transient fault', async () => {
    const { brokers, requests } = committing('NOT_COORDINATOR_FOR_GROUP', undefined);
    await setOffsets(brokers, 'g', 't', OFFSETS);
    expect(requests).toHaveLength(2);
  });

  test.each([
    ['GROUP_AUTHORIZATION_FAILED', 0],
    ['GROUP_COORDINATOR_NOT_AVAILABLE', 10_000],
  ])('is KAFKA_UNAVAILABLE on %s', async (errorCode, afterMs) => {
    const { brokers } = committing(...Array(200).fill(errorCode));
    await expect(setOffsets(brokers, 'g', 't', OFFSETS)).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    expect(brokers.nowMs()).toBe(afterMs);
  });
});

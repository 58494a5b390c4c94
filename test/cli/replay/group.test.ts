import { expect, test } from 'vitest';
import type { Source } from '../../../src/adapters/kafka/topics/offsets.ts';
import { forwardedSince, setBack } from '../../../src/cli/replay/group.ts';
import { HOPS, ORIGIN } from '../../../src/codec/request-origin.ts';
import { loadKafkaConfig } from '../../../src/config/config.ts';
import type { OffsetCommitRequest } from '../../../src/kafka/wire/group-apis.ts';
import { scriptedBrokers } from '../../adapters/kafka/scripted-brokers.ts';
import { MemoryLogs } from '../../adapters/kafka/topics/memory-logs.ts';

const config = loadKafkaConfig({ KAFKA_BROKERS: 'b:1' });
const topic = config.topics.requests;
const FORWARDED = { [ORIGIN]: '0/4/1780416300000', [HOPS]: '1' };
const context = { stop: new AbortController().signal };

function since(logs: MemoryLogs, ends: readonly number[]) {
  const tools = { source: logs.source, config, context };
  return logs.runtime.until(forwardedSince(tools, new Map(ends.entries())));
}

test('waits for requests that were forwarded since the replay began, up to the last of each partition, but not for new ones', async () => {
  const logs = new MemoryLogs().append(topic, 0, 5).append(topic, 1, 3).append(topic, 2, 0);
  logs.append(topic, 1, 2, FORWARDED).append(topic, 1, 4).append(topic, 0, 7).append(topic, 2, 1, FORWARDED);
  expect(await since(logs, [5, 3, 0])).toEqual({
    count: 3,
    due: [
      { partition: 1, from: 3, to: 5 },
      { partition: 2, from: 0, to: 1 },
    ],
  });
});

test('ignores requests that were forwarded before, or resent from the dead letters', async () => {
  const logs = new MemoryLogs().append(topic, 0, 2, FORWARDED);
  logs.append(topic, 0, 2, { [ORIGIN]: '0/4/1780416300000' });
  expect(await since(logs, [2])).toEqual({ count: 0, due: [] });
});

test('does not wait for requests that retention deleted meanwhile', async () => {
  const logs = new MemoryLogs().append(topic, 0, 2).append(topic, 0, 2, FORWARDED).append(topic, 0, 1);
  expect(await since(logs.trim(topic, 0, 4), [2])).toEqual({ count: 0, due: [] });
});

test('an offset that is set back is from a worker only if the one before was: else workers still find out what is answered', async () => {
  const offsets = new Map([
    [0, { offset: 80, metadata: '{"small":80}' }],
    [1, { offset: 90, metadata: '' }],
  ]);
  const commits: OffsetCommitRequest['partitions'][] = [];
  const link = {
    describeGroups: async () => ({ throttleMs: 0, groups: [{ groupId: config.groupId, state: 'Empty', members: [] }] }),
    offsetFetch: async () => ({
      throttleMs: 0,
      partitions: [...offsets].map(([partition, committed]) => ({ topic, partition, ...committed })),
    }),
    offsetCommit: async ({ partitions }: OffsetCommitRequest) => {
      commits.push(partitions);
      for (const { partition, offset, metadata = '' } of partitions) offsets.set(partition, { offset, metadata });
      return { throttleMs: 0, partitions };
    },
  };
  const plan = [0, 1].map((partition) => ({ partition, from: 30, to: 80, maybeForgotten: 0, gone: 0 }));
  await setBack(scriptedBrokers({ link: () => link }) as unknown as Source, config, plan);
  expect(commits.flat()).toEqual([
    { topic, partition: 0, offset: 30, metadata: '{"small":30}' },
    { topic, partition: 1, offset: 30, metadata: '' },
  ]);
});

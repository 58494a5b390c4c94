import { expect, test } from 'vitest';
import { forwardedSince } from '../../../src/cli/replay/group.ts';
import type { PartitionPlan } from '../../../src/cli/replay/plan.ts';
import { HOPS, ORIGIN } from '../../../src/codec/request-headers.ts';
import { loadKafkaConfig } from '../../../src/config/config.ts';
import { MemoryLogs } from '../../adapters/kafka/topics/memory-logs.ts';

const config = loadKafkaConfig({ KAFKA_BROKERS: 'b:1' });
const topic = config.topics.requests;
const FORWARDED = { [ORIGIN]: '0/4/1780416300000', [HOPS]: '1' };
const context = { stop: new AbortController().signal };

const PLAN = { partition: 0, from: 4, to: 5, below: 5, small: 5, maybeForgotten: 0, gone: 0 };

function since(logs: MemoryLogs, ends: readonly number[], plan: readonly PartitionPlan[] = [PLAN]) {
  const tools = { source: logs.source, config, context };
  return logs.runtime.until(forwardedSince(tools, new Map(ends.entries()), plan));
}

test('waits for requests that were forwarded since the replay began, up to the last of each partition, but not for new ones', async () => {
  const logs = new MemoryLogs().append(topic, 0, 5).append(topic, 1, 3).append(topic, 2, 0);
  logs.append(topic, 1, 2, FORWARDED).append(topic, 1, 4).append(topic, 0, 7).append(topic, 2, 1, FORWARDED);
  expect(await since(logs, [5, 3, 0])).toEqual({
    count: 3,
    copies: new Map([
      [1, new Set([3, 4])],
      [2, new Set([0])],
    ]),
    due: [
      { partition: 1, from: 3, to: 5 },
      { partition: 2, from: 0, to: 1 },
    ],
  });
});

test('ignores requests that were forwarded before, or resent from the dead letters', async () => {
  const logs = new MemoryLogs().append(topic, 0, 2, FORWARDED);
  logs.append(topic, 0, 2, { [ORIGIN]: '0/4/1780416300000' });
  expect(await since(logs, [2])).toEqual({ count: 0, due: [], copies: new Map() });
});

test('does not wait for requests that retention deleted meanwhile', async () => {
  const logs = new MemoryLogs().append(topic, 0, 2).append(topic, 0, 2, FORWARDED).append(topic, 0, 1);
  expect(await since(logs.trim(topic, 0, 4), [2])).toEqual({ count: 0, due: [], copies: new Map() });
});

test('tells copies of requests that are read again from those of others', async () => {
  const logs = new MemoryLogs().append(topic, 0, 0).append(topic, 1, 2, FORWARDED);
  const forwarded = await since(logs, [0, 0], [{ ...PLAN, from: 5 }]);
  expect(forwarded).toMatchObject({ count: 2, copies: new Map() });
});

import { describe, expect, test } from 'vitest';
import {
  OF_REQUESTS,
  offsetsAtTime,
  type Source,
  wholeTopic,
  wholeTopics,
} from '../../../../src/adapters/kafka/topics/offsets.ts';
import type { Cluster } from '../../../../src/kafka/wire/cluster.ts';
import { KafkaError } from '../../../../src/kafka/wire/kafka-error.ts';
import type { BrokerLink } from '../../../../src/kafka/wire/port.ts';
import type { ListOffsetsRequest } from '../../../../src/kafka/wire/record-apis.ts';
import { scriptedLink } from '../../../support/scripted-link.ts';
import { VirtualRuntime } from '../../../support/virtual-runtime.ts';

interface Partition {
  readonly start: number;
  readonly end: number;
  /** Offsets by time, rising. */
  readonly times?: readonly (readonly [timeMs: number, offset: number])[];
}

const START = -2;
const END = -1;

/** A topic whose partition n is led by broker n + 1. */
function topic(partitions: readonly Partition[], faults: string[] = []) {
  const runtime = new VirtualRuntime();
  const asked: ListOffsetsRequest[] = [];
  const link = scriptedLink({
    listOffsets: async (request: ListOffsetsRequest) => {
      asked.push(request);
      const errorCode = faults.shift();
      const answers = request.partitions.map(({ topic, partition, timestampMs }) => {
        return {
          topic,
          partition,
          offset: offsetAt(partitions[partition], timestampMs),
          ...(errorCode && { errorCode }),
        };
      });
      return { throttleMs: 0, partitions: answers };
    },
  });
  const doubts: string[] = [];
  const cluster = {
    partitions: async () => partitions.length,
    leader: async (_topic: string, partition: number) => partition + 1,
    call: async (_node: number, _lane: string, _timeoutMs: number, use: (link: BrokerLink) => Promise<unknown>) =>
      use(link),
    markStale: (name: string) => void doubts.push(name),
  };
  const source: Source = { cluster: cluster as unknown as Cluster, runtime };
  return { source, runtime, asked, doubts };
}

function offsetAt(partition: Partition | undefined, timestampMs: number): number {
  const { start, end, times = [] } = partition ?? { start: -1, end: -1 };
  if (timestampMs === START || timestampMs === END) return timestampMs === START ? start : end;
  return times.find(([timeMs]) => timeMs >= timestampMs)?.[1] ?? -1;
}

function failing(errorCode: string) {
  const runtime = new VirtualRuntime();
  const partitions = async () => {
    throw new KafkaError(errorCode, `topic t: ${errorCode}`);
  };
  return { source: { cluster: { partitions } as unknown as Cluster, runtime }, runtime };
}

describe('wholeTopic', () => {
  test('is a span for each partition, from its start to its end', async () => {
    const { source, runtime, asked } = topic([
      { start: 3, end: 20 },
      { start: 0, end: 0 },
    ]);
    expect(await runtime.until(wholeTopic(source, 't'))).toEqual([
      { topic: 't', partition: 0, from: 3, to: 20 },
      { topic: 't', partition: 1, from: 0, to: 0 },
    ]);
    // A transaction left open in the ledger must not hide the entries after it.
    expect(new Set(asked.map(({ isolation }) => isolation))).toEqual(new Set(['read_uncommitted']));
  });

  test('ends before the first open transaction, where it is asked for as workers read requests', async () => {
    const { source, runtime, asked } = topic([{ start: 3, end: 20 }]);
    await runtime.until(wholeTopics(source, ['t'], OF_REQUESTS));
    expect(new Set(asked.map(({ isolation }) => isolation))).toEqual(new Set(['read_committed']));
  });

  test('is retried when a leader has moved', async () => {
    const { source, runtime, doubts } = topic([{ start: 3, end: 20 }], ['NOT_LEADER_FOR_PARTITION']);
    expect(await runtime.until(wholeTopic(source, 't'))).toHaveLength(1);
    expect(doubts).toContain('t');
  });

  test.each(['UNKNOWN_TOPIC_OR_PARTITION', 'TOPIC_AUTHORIZATION_FAILED'])(
    "of a topic that this user can't see is TOPIC_INVALID, immediately: %s",
    async (errorCode) => {
      const { source, runtime } = failing(errorCode);
      await expect(runtime.until(wholeTopic(source, 'id.typo'))).rejects.toMatchObject({
        code: 'TOPIC_INVALID',
        message: expect.stringContaining("topic 'id.typo' does not exist"),
      });
      expect(runtime.monotonicMs()).toBe(0);
    },
  );

  test('is KAFKA_UNAVAILABLE when no leader answers for 10 s', async () => {
    const { source, runtime } = topic([{ start: 3, end: 20 }], Array(300).fill('LEADER_NOT_AVAILABLE'));
    await expect(runtime.until(wholeTopic(source, 't'))).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    expect(runtime.monotonicMs()).toBe(10_000);
  });
});

describe('offsetsAtTime', () => {
  test('are those of the first records that are not older, or the end of the partition', async () => {
    const { source, runtime } = topic([
      {
        start: 0,
        end: 20,
        times: [
          [1_000, 4],
          [2_000, 9],
        ],
      },
      { start: 0, end: 7, times: [[1_000, 2]] },
      { start: 5, end: 5 },
    ]);
    expect(await runtime.until(offsetsAtTime(source, 't', 1_500))).toEqual(
      new Map([
        [0, 9],
        [1, 7],
        [2, 5],
      ]),
    );
  });

  test('of a time before 1970 are the starts of the partitions, not their ends', async () => {
    const { source, runtime, asked } = topic([{ start: 3, end: 20, times: [[1_000, 3]] }]);
    expect(await runtime.until(offsetsAtTime(source, 't', -1))).toEqual(new Map([[0, 3]]));
    expect(asked[0]?.partitions[0]?.timestampMs).toBe(0);
  });
});

import { describe, expect, test } from 'vitest';
import {
  OF_REQUESTS,
  offsetsAtTime,
  readRecord,
  readSpans,
  type Source,
  type Span,
  type TopicRecord,
  wholeTopic,
  wholeTopics,
} from '../../../../src/adapters/kafka/topics/spans.ts';
import type { Cluster } from '../../../../src/kafka/wire/cluster.ts';
import { KafkaError } from '../../../../src/kafka/wire/kafka-error.ts';
import type { BrokerLink } from '../../../../src/kafka/wire/port.ts';
import type { ListOffsetsRequest } from '../../../../src/kafka/wire/record-apis.ts';
import { scriptedLink } from '../../../support/scripted-link.ts';
import { VirtualRuntime } from '../../../support/virtual-runtime.ts';
import { MemoryLogs } from './memory-logs.ts';

interface Options {
  readonly signal?: AbortSignal;
  readonly take?: (record: TopicRecord) => boolean;
  readonly onTake?: (logs: MemoryLogs) => void;
}

/** Reads spans of logs in memory; `seen` are the positions of the records in the order in which they were taken. */
function read(logs: MemoryLogs, spans: readonly Span[], { signal, take, onTake }: Options = {}) {
  const seen: string[] = [];
  const progress: number[] = [];
  const reading = readSpans(logs.source, spans, {
    signal: signal ?? new AbortController().signal,
    take: (record) => {
      seen.push(`${record.topic}/${record.partition}:${record.offset}`);
      onTake?.(logs);
      return take?.(record);
    },
    onProgress: (done) => progress.push(done),
  });
  reading.catch(() => undefined); // each test awaits it later
  return { seen, progress, done: logs.runtime.until(reading) };
}

const span = (topic: string, partition: number, from: number, to: number): Span => ({ topic, partition, from, to });
const places = (topic: string, partition: number, from: number, to: number) =>
  Array.from({ length: to - from }, (_, i) => `${topic}/${partition}:${from + i}`);

describe('readSpans', () => {
  test('takes every record of each span in log order, and no others', async () => {
    const logs = new MemoryLogs().append('a', 0, 2_500).append('a', 1, 100).append('b', 0, 100);
    const { seen, progress, done } = read(logs, [span('a', 0, 7, 2_400), span('a', 1, 0, 3), span('b', 0, 40, 100)]);
    await done;
    const of = (topic: string, partition: number) => seen.filter((place) => place.startsWith(`${topic}/${partition}:`));
    expect(of('a', 0)).toEqual(places('a', 0, 7, 2_400));
    expect(of('a', 1)).toEqual(places('a', 1, 0, 3));
    expect(of('b', 0)).toEqual(places('b', 0, 40, 100));
    expect(progress).toEqual(progress.toSorted((a, b) => a - b));
    expect(progress.at(-1)).toBe(2_393 + 3 + 60);
  });

  test('reads what producers have not committed, unless it is told otherwise', async () => {
    for (const [asked, isolation] of [
      [{}, 'read_uncommitted'],
      [{ isolation: OF_REQUESTS }, 'read_committed'],
    ] as const) {
      const logs = new MemoryLogs().append('a', 0, 1);
      const { signal } = new AbortController();
      const reading = readSpans(logs.source, [span('a', 0, 0, 1)], { signal, take: () => undefined, ...asked });
      await logs.runtime.until(reading);
      expect([...logs.isolations]).toEqual([isolation]);
    }
  });

  test('returns each record with its topic, partition, key, value, headers and time', async () => {
    const logs = new MemoryLogs().append('a', 3, 1);
    const taken: TopicRecord[] = [];
    await read(logs, [span('a', 3, 0, 1)], { take: (record) => taken.push(record) === 0 }).done;
    expect(taken).toEqual([
      {
        topic: 'a',
        partition: 3,
        offset: 0,
        key: Buffer.from('key 0'),
        value: Buffer.from('value 0'),
        headers: { n: Buffer.from('0') },
        timestampMs: expect.any(Number),
      },
    ]);
  });

  test('makes no request when there is nothing to read', async () => {
    const logs = new MemoryLogs().append('a', 0, 5);
    await read(logs, [span('a', 0, 5, 5), span('b', 0, 0, 0)]).done;
    expect(logs.fetches).toBe(0);
  });

  test('ends as soon as `take` returns true, and takes no more records', async () => {
    const logs = new MemoryLogs().append('a', 0, 2_000).append('a', 1, 2_000);
    const { seen, done } = read(logs, [span('a', 0, 0, 2_000), span('a', 1, 0, 2_000)], { take: () => true });
    await done;
    const count = seen.length;
    expect(count).toBeLessThanOrEqual(MemoryLogs.BATCH);
    const { fetches } = logs;
    await logs.settle();
    expect([seen.length, logs.fetches]).toEqual([count, fetches]);
  });

  test('stops fetching a span that is read, while others continue', async () => {
    const logs = new MemoryLogs().append('a', 0, 20 * MemoryLogs.BATCH).append('b', 0, 20 * MemoryLogs.BATCH);
    await read(logs, [span('a', 0, 0, MemoryLogs.BATCH), span('b', 0, 0, 20 * MemoryLogs.BATCH)]).done;
    expect(logs.fetched('b', 0)).toBeGreaterThanOrEqual(20);
    expect(logs.fetched('a', 0)).toBeLessThanOrEqual(3);
  });

  test('reaches the end of a span whose last offsets are markers', async () => {
    const logs = new MemoryLogs().append('a', 0, 5).marker('a', 0);
    const { seen, progress, done } = read(logs, [span('a', 0, 0, 6)]);
    await done;
    expect(seen).toEqual(places('a', 0, 0, 5));
    expect(progress.at(-1)).toBe(6);
  });

  test('skips what retention deletes meanwhile, and counts it as done', async () => {
    const logs = new MemoryLogs().append('a', 0, 3_000);
    const { seen, progress, done } = read(logs, [span('a', 0, 0, 3_000)], {
      onTake: () => logs.trim('a', 0, 2_500),
    });
    await done;
    expect(seen.slice(-500)).toEqual(places('a', 0, 2_500, 3_000));
    expect(seen.length).toBeLessThan(3_000);
    expect(progress.at(-1)).toBe(3_000);
  });

  test('ends when retention deletes everything that was to be read', async () => {
    const logs = new MemoryLogs().append('a', 0, 50).trim('a', 0, 50);
    const { seen, progress, done } = read(logs, [span('a', 0, 0, 50)]);
    await done;
    expect([seen, progress]).toEqual([[], [50]]);
  });

  test('fails on a log that ends before the span: records were lost', async () => {
    const logs = new MemoryLogs().append('a', 0, 10);
    const { done } = read(logs, [span('a', 0, 20, 30)]);
    await expect(done).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
      message: expect.stringContaining('a/0 now ends at 10'),
    });
  });

  test('continues after a transient fault', async () => {
    const logs = new MemoryLogs().append('a', 0, 100).append('a', 1, 100);
    logs.fail('a', 0, 'NOT_LEADER_FOR_PARTITION', 3);
    const { seen, done } = read(logs, [span('a', 0, 0, 100), span('a', 1, 0, 100)]);
    await done;
    expect(seen).toHaveLength(200);
  });

  test('fails immediately on a topic that this user may not read', async () => {
    const logs = new MemoryLogs().append('a', 0, 10);
    logs.fail('a', 0, 'TOPIC_AUTHORIZATION_FAILED', Number.POSITIVE_INFINITY);
    await expect(read(logs, [span('a', 0, 0, 10)]).done).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
      message: expect.stringContaining('TOPIC_AUTHORIZATION_FAILED'),
    });
    expect(logs.runtime.monotonicMs()).toBeLessThan(1_000);
  });

  test('fails when the brokers return nothing for 30 s, with the positions and the last fault', async () => {
    const logs = new MemoryLogs().append('a', 0, 10).append('a', 1, 10);
    logs.fail('a', 1, 'KAFKA_STORAGE_ERROR', Number.POSITIVE_INFINITY);
    await expect(read(logs, [span('a', 0, 0, 10), span('a', 1, 4, 10)]).done).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
      message: 'the brokers returned no records for 30 s: a/1 at 4; last error: KAFKA_STORAGE_ERROR',
    });
    expect(logs.runtime.monotonicMs()).toBeGreaterThanOrEqual(30_000);
    expect(logs.runtime.monotonicMs()).toBeLessThan(35_000);
  });

  test('does not count as stalled while records arrive, however long it takes', async () => {
    const logs = new MemoryLogs().append('a', 0, 20 * MemoryLogs.BATCH);
    logs.answerAfterMs = 10_000;
    await read(logs, [span('a', 0, 0, 20 * MemoryLogs.BATCH)]).done;
    expect(logs.runtime.monotonicMs()).toBeGreaterThan(100_000);
  });

  test('ends with STOPPING when the signal aborts, even before the start', async () => {
    const logs = new MemoryLogs().append('a', 0, 10);
    const stop = new AbortController();
    const waiting = read(logs, [span('a', 0, 0, 20)], { signal: stop.signal });
    logs.runtime.schedule(5_000, () => stop.abort());
    await expect(waiting.done).rejects.toMatchObject({ code: 'STOPPING' });
    expect(waiting.seen).toHaveLength(10);
    const { fetches } = logs;
    await logs.settle();
    expect(logs.fetches).toBe(fetches);
    await expect(read(logs, [span('a', 0, 0, 20)], { signal: stop.signal }).done).rejects.toMatchObject({
      code: 'STOPPING',
    });
  });

  test('rejects with the error of `take`', async () => {
    const logs = new MemoryLogs().append('a', 0, 10);
    const { done } = read(logs, [span('a', 0, 0, 10)], {
      take: () => {
        throw new TypeError('no room');
      },
    });
    await expect(done).rejects.toThrow('no room');
  });

  test('leaves no timer behind, however it ends', async () => {
    const logs = new MemoryLogs().append('a', 0, 10);
    await read(logs, [span('a', 0, 0, 10)]).done;
    await read(logs, [span('a', 0, 10, 11)], { signal: AbortSignal.abort() }).done.catch(() => undefined);
    await logs.settle();
    expect(logs.runtime.pending).toBe(0);
  });
});

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

test('one record is read where the log has it, and nothing is asked for outside of it', async () => {
  const logs = new MemoryLogs().append('t', 0, 5).trim('t', 0, 2);
  const { signal } = new AbortController();
  const at = async (partition: number, offset: number) =>
    (await logs.runtime.until(readRecord(logs.source, 't', { partition, offset }, signal)))?.offset;
  expect([await at(0, 2), await at(0, 4)]).toEqual([2, 4]);
  const { fetches } = logs;
  expect([await at(0, 1), await at(0, 5), await at(1, 2)]).toEqual([undefined, undefined, undefined]);
  expect(logs.fetches).toBe(fetches);
});

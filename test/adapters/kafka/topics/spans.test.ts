import { describe, expect, test } from 'vitest';
import { OF_REQUESTS, type Span } from '../../../../src/adapters/kafka/topics/offsets.ts';
import { readSpans, type TopicRecord } from '../../../../src/adapters/kafka/topics/spans.ts';
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

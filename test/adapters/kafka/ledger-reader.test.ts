import type { Admin, EachBatchPayload, Kafka } from 'kafkajs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LedgerReader } from '../../../src/adapters/kafka/ledger-reader.ts';
import type { Log } from '../../../src/log.ts';

const JOINED = { memberAssignment: { 'id.ledger': [0, 1, 2] } };

/** A reader of three partitions over a client that only notes what it is told. */
function world() {
  const calls: string[] = [];
  const listeners = new Map<string, ((event: unknown) => void)[]>();
  const tell = (name: string, event: unknown) => {
    for (const listener of listeners.get(name) ?? []) listener(event);
  };
  let eachBatch: ((payload: EachBatchPayload) => Promise<void>) | undefined;
  const note =
    (what: string) =>
    (...args: unknown[]) => {
      calls.push([what, ...args.map((arg) => JSON.stringify(arg))].join(' '));
    };
  const consumer = {
    on: (event: string, listener: (event: unknown) => void) =>
      listeners.set(event, [...(listeners.get(event) ?? []), listener]),
    connect: async () => {},
    subscribe: async () => {},
    run: async (config: { eachBatch: typeof eachBatch }) => {
      eachBatch = config.eachBatch;
      tell('consumer.group_join', { payload: JOINED });
    },
    seek: ({ partition, offset }: { partition: number; offset: string }) => note('seek')(partition, offset),
    pause: ([{ partitions }]: [{ partitions: number[] }]) => note('pause')(...partitions),
    resume: ([{ partitions }]: [{ partitions: number[] }]) => note('resume')(...partitions),
    disconnect: async () => {},
  };
  const bounds = vi.fn(async () => [0, 1, 2].map((partition) => ({ partition, low: '10', high: '20', offset: '20' })));
  const sink = {
    begin: vi.fn((_partition: number, _bounds: object) => 12),
    resume: vi.fn((_partition: number) => 15),
    deliver: vi.fn((_partition: number, _records: readonly unknown[]) => {}),
    expire: vi.fn((_partition: number, _low: number, _high: number) => false),
  };
  const crashes: Error[] = [];
  const emit = (event: string, payload: object = JOINED) => tell(`consumer.${event}`, { payload });
  const reader = new LedgerReader({
    kafka: { consumer: () => consumer } as unknown as Kafka,
    admin: { fetchTopicOffsets: bounds } as unknown as Admin,
    topic: 'id.ledger',
    partitions: 3,
    groupId: 'g',
    sink,
    log: { warn: () => {} } as unknown as Log,
    onCrash: (error) => crashes.push(error),
  });
  const deliver = async (partition: number, count: number) => {
    const messages = Array.from({ length: count }, (_, i) => ({
      offset: String(i),
      key: null,
      value: null,
      timestamp: '0',
    }));
    const payload = { batch: { partition, messages }, resolveOffset: () => {}, heartbeat: async () => {} };
    await eachBatch?.(payload as unknown as EachBatchPayload);
  };
  return { reader, sink, calls, bounds, deliver, crashes, emit };
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
});

afterEach(() => {
  vi.useRealTimers();
});

describe('the reader of the ledger', () => {
  it('begins every partition at its bounds, and reads from where the sink says at each join', async () => {
    const { reader, sink, calls } = world();
    await reader.start();
    expect(sink.begin.mock.calls).toEqual([0, 1, 2].map((partition) => [partition, { low: 10, high: 20 }]));
    expect(calls).toEqual(['seek 0 "15"', 'seek 1 "15"', 'seek 2 "15"']);
    await reader.stop();
  });

  it('gives other work a turn within a long batch', async () => {
    const { reader, sink, deliver } = world();
    await reader.start();
    const order: string[] = [];
    sink.deliver.mockImplementation((_, records) => void order.push(`${records.length}`));
    setImmediate(() => order.push('other work'));
    await deliver(0, 2_500);
    expect(order).toEqual(['1000', 'other work', '1000', '500']);
    await reader.stop();
  });

  it('stops at a partition that is to be read anew, drops what it has of it, and begins it again', async () => {
    const { reader, sink, calls, deliver } = world();
    await reader.start();
    calls.length = 0;
    sink.deliver.mockImplementationOnce(() => reader.restart(1));
    await deliver(1, 3_000);
    expect([sink.deliver.mock.calls.length, calls]).toEqual([1, ['pause 1']]);
    await vi.advanceTimersByTimeAsync(0);
    expect(calls).toEqual(['pause 1', 'seek 1 "12"', 'resume 1']);
    await reader.stop();
  });

  it('asks for the bounds once for all that is to be read anew, and again after half a second at the earliest', async () => {
    const { reader, bounds, sink } = world();
    await reader.start();
    for (const partition of [0, 1, 2]) reader.restart(partition);
    await vi.advanceTimersByTimeAsync(0);
    expect([bounds.mock.calls.length, sink.begin.mock.calls.length]).toEqual([2, 6]);
    reader.restart(2);
    await vi.advanceTimersByTimeAsync(499);
    expect(bounds.mock.calls.length).toBe(2);
    await vi.advanceTimersByTimeAsync(1);
    expect([bounds.mock.calls.length, sink.begin.mock.calls.length]).toEqual([3, 7]);
    await reader.stop();
  });

  it('tries again when the broker does not tell the bounds, and when the index can not begin', async () => {
    const { reader, bounds, sink, calls } = world();
    await reader.start();
    calls.length = 0;
    bounds.mockRejectedValueOnce(new Error('no leader'));
    sink.begin.mockImplementationOnce(() => {
      throw new Error('the disk is full');
    });
    reader.restart(1);
    await vi.advanceTimersByTimeAsync(900);
    expect(calls).toEqual(['pause 1']);
    await vi.advanceTimersByTimeAsync(200);
    expect(calls.slice(-2)).toEqual(['seek 1 "12"', 'resume 1']);
    await reader.stop();
  });

  it('remembers what has to be read anew from before it runs', async () => {
    const { reader, sink, calls } = world();
    sink.resume.mockImplementationOnce(() => {
      reader.restart(2);
      return 15;
    });
    await reader.start();
    await vi.advanceTimersByTimeAsync(0);
    expect(calls.slice(-2)).toEqual(['seek 2 "12"', 'resume 2']);
    await reader.stop();
  });

  it('tells the sink every ten seconds where the log starts and ends, until it has forgotten all, and no more once it is stopped', async () => {
    const { reader, sink } = world();
    await reader.start();
    let steps = 3;
    sink.expire.mockImplementation((partition) => partition === 0 && --steps > 0);
    await vi.advanceTimersByTimeAsync(10_000);
    await vi.waitFor(() => expect(sink.expire.mock.calls.map(([partition]) => partition)).toEqual([0, 0, 0, 1, 2]));
    expect(sink.expire.mock.calls[0]).toEqual([0, 10, 20]);
    sink.expire.mockReturnValue(true);
    await vi.advanceTimersByTimeAsync(10_000);
    await reader.stop();
    const { length } = sink.expire.mock.calls;
    await vi.advanceTimersByTimeAsync(100_000);
    expect(sink.expire.mock.calls.length).toBe(length);
  });
});

describe('a reader that ended', () => {
  const error = new Error('Failed to find group coordinator');

  it('is told, unless kafkajs starts it again itself or it was told to stop', async () => {
    const { reader, crashes, emit } = world();
    await reader.start();
    emit('crash', { error, restart: true });
    expect(crashes).toEqual([]);
    emit('crash', { error, restart: false });
    expect(crashes).toEqual([error]);
    await reader.stop();
    emit('crash', { error, restart: false });
    expect(crashes).toHaveLength(1);
  });

  it('is told once when kafkajs goes on after a rebalance without having joined', async () => {
    const { reader, crashes, emit } = world();
    await reader.start();
    for (const event of ['heartbeat', 'rebalancing', 'group_join', 'heartbeat']) emit(event);
    expect(crashes).toEqual([]);
    for (const event of ['rebalancing', 'heartbeat', 'heartbeat']) emit(event);
    expect(crashes).toMatchObject([{ code: 'KAFKA_UNAVAILABLE' }]);
    await reader.stop();
  });
});

import type { ConsumerConfig, Kafka } from 'kafkajs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { RequestConsumer, type RequestHandler } from '../../../src/adapters/kafka/request-consumer.ts';
import { IdallocError } from '../../../src/errors.ts';
import { createLogger } from '../../../src/log.ts';

const TOPIC = 'id.requests';

type Listener = (event: { payload: Record<string, unknown> }) => void;

/** kafkajs' consumer as far as it is used, with what was asked of it, in order. */
class FakeConsumer {
  readonly calls: string[] = [];
  readonly #listeners = new Map<string, Listener[]>();
  eachBatch: (payload: unknown) => Promise<void> = async () => {};
  commitOffsets: (offsets: unknown) => Promise<void> = async () => {};

  on(name: string, listener: Listener): void {
    this.#listeners.set(name, [...(this.#listeners.get(name) ?? []), listener]);
  }

  emit(name: string, payload: Record<string, unknown>): void {
    for (const listener of this.#listeners.get(`consumer.${name}`) ?? []) listener({ payload });
  }

  async connect(): Promise<void> {}
  async subscribe(): Promise<void> {}
  async disconnect(): Promise<void> {
    this.calls.push('disconnect');
  }
  async run(options: { eachBatch: (payload: unknown) => Promise<void> }): Promise<void> {
    this.eachBatch = options.eachBatch;
  }
  pause(topics: readonly { partitions: number[] }[]): void {
    this.calls.push(`pause ${topics.flatMap(({ partitions }) => partitions).join(',')}`);
  }
  resume(topics: readonly { partitions: number[] }[]): void {
    this.calls.push(`resume ${topics.flatMap(({ partitions }) => partitions).join(',')}`);
  }
  seek({ partition, offset }: { partition: number; offset: string }): void {
    this.calls.push(`seek ${partition} to ${offset}`);
  }

  join(...partitions: number[]): void {
    this.emit('group_join', { memberAssignment: { [TOPIC]: partitions } });
  }

  /** Tells that a fetched batch was seen to, with what it held once aborted records and markers were left out. */
  end(partition: number, batch: { batchSize: number; firstOffset: string | null; lastOffset: string }): void {
    this.emit('end_batch_process', { topic: TOPIC, partition, highWatermark: '100', ...batch });
  }

  /** Delivers records with these offsets, as kafkajs does. */
  deliver(
    partition: number,
    offsets: readonly number[],
    heartbeat = async () => {},
    lastOffset = offsets.at(-1),
  ): Promise<void> {
    const messages = offsets.map((offset) => ({ offset: String(offset), key: null, value: null, timestamp: '0' }));
    return this.eachBatch({
      batch: { topic: TOPIC, partition, messages, highWatermark: '100', lastOffset: () => String(lastOffset) },
      resolveOffset: (offset: string) => this.calls.push(`resolve ${partition} ${offset}`),
      heartbeat,
      isRunning: () => true,
      commitOffsetsIfNecessary: async (offsets: {
        topics: { partitions: { partition: number; offset: string }[] }[];
      }) => {
        const due = offsets.topics.flatMap(({ partitions }) => partitions);
        this.calls.push(`commit ${due.map((one) => `${one.partition}:${one.offset}`).join(',')}`);
        await this.commitOffsets(offsets);
      },
    });
  }
}

interface World {
  readonly consumer: RequestConsumer;
  readonly fake: FakeConsumer;
  readonly crashes: Error[];
  readonly lags: number[];
  readonly config: Partial<ConsumerConfig>;
}

async function world(handler: RequestHandler): Promise<World> {
  const fake = new FakeConsumer();
  const crashes: Error[] = [];
  const lags: number[] = [];
  const config: Partial<ConsumerConfig> = {};
  const kafka = { consumer: (given: ConsumerConfig) => Object.assign(config, given) && fake };
  const consumer = new RequestConsumer({
    kafka: kafka as unknown as Kafka,
    topic: TOPIC,
    groupId: 'g',
    concurrency: 4,
    commitIntervalMs: 500,
    drainTimeoutMs: 5_000,
    sleep: (delayMs, signal) =>
      new Promise((resolve) => {
        const timer = setTimeout(resolve, delayMs);
        signal.addEventListener('abort', () => clearTimeout(timer));
      }),
    handler,
    log: createLogger({ level: 'fatal', destination: 'stderr' }),
    onJoin: () => {},
    onLag: (_partition, records) => lags.push(records),
    onCrash: (error) => crashes.push(error),
  });
  await consumer.start();
  return { consumer, fake, crashes, lags, config };
}

/** A handler that resolves each record at once. */
const serveAll: RequestHandler = async (_partition, records, control) => {
  for (const { offset } of records) if (control.isCurrent()) control.resolved(offset);
};

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

it('fetches so much at a time that no partition waits for what others have left', async () => {
  const { maxBytes, maxBytesPerPartition } = (await world(serveAll)).config;
  expect(maxBytes).toBe(4 * Number(maxBytesPerPartition));
});

describe('a session', () => {
  it('drops a batch of a partition that it does not have', async () => {
    const { fake } = await world(serveAll);
    fake.join(1);
    await fake.deliver(2, [0, 1]);
    expect(fake.calls).toEqual(['resume 1']);
  });

  it('resolves what was answered, and commits it a moment later', async () => {
    const { fake } = await world(serveAll);
    fake.join(0);
    await fake.deliver(0, [7, 8]);
    expect(fake.calls).toEqual(['resume 0', 'resolve 0 7', 'resolve 0 8']);
    await vi.advanceTimersByTimeAsync(500);
    expect(fake.calls.at(-1)).toBe('commit 0:9');
  });

  it('commits the same offset once', async () => {
    const { fake } = await world(serveAll);
    fake.join(0);
    await fake.deliver(0, [7]);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(fake.calls.filter((call) => call.startsWith('commit'))).toEqual(['commit 0:8']);
  });

  it('commits past the marker of a transaction, in the same batch or after it', async () => {
    const { fake, lags } = await world(serveAll);
    fake.join(0);
    await fake.deliver(0, [7], undefined, 8);
    await vi.advanceTimersByTimeAsync(500);
    expect(fake.calls.at(-1)).toBe('commit 0:9');
    fake.end(0, { batchSize: 0, firstOffset: '9', lastOffset: '99' });
    await vi.advanceTimersByTimeAsync(500);
    expect(fake.calls.at(-1)).toBe('commit 0:100');
    expect(lags).toEqual([91, 0]);
  });

  it('does not take an empty fetch, or what has passed while a batch was in hand, for something that was answered', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const { fake } = await world(async (_partition, _records, control) => {
      control.resolved(7);
      await promise;
    });
    fake.join(0, 1);
    const working = fake.deliver(0, [7, 8]);
    fake.end(0, { batchSize: 2, firstOffset: '7', lastOffset: '8' });
    fake.end(0, { batchSize: 0, firstOffset: '9', lastOffset: '9' });
    fake.end(1, { batchSize: 0, firstOffset: null, lastOffset: '99' });
    fake.end(2, { batchSize: 0, firstOffset: '3', lastOffset: '3' });
    await vi.advanceTimersByTimeAsync(500);
    expect(fake.calls.filter((call) => call.startsWith('commit'))).toEqual(['commit 0:8']);
    resolve();
    await working;
  });

  it('that ended commits nothing any more', async () => {
    const { fake } = await world(serveAll);
    fake.join(0);
    await fake.deliver(0, [7]);
    fake.emit('rebalancing', {});
    await vi.advanceTimersByTimeAsync(2_000);
    expect(fake.calls.filter((call) => call.startsWith('commit'))).toEqual([]);
  });

  it('that ended resolves nothing in the next generation', async () => {
    const late = Promise.withResolvers<void>();
    const { fake } = await world(async (_partition, records, control) => {
      await late.promise;
      control.resolved(records[0]?.offset ?? -1);
    });
    fake.join(0);
    const delivered = fake.deliver(0, [7]);
    fake.join(0);
    late.resolve();
    await delivered;
    expect(fake.calls).toEqual(['resume 0', 'resume 0']);
  });

  it('commits again what a commit that failed did not bring over', async () => {
    const { fake } = await world(serveAll);
    fake.commitOffsets = async () => {
      throw new Error('not now');
    };
    fake.join(0);
    await fake.deliver(0, [7]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(fake.calls.filter((call) => call.startsWith('commit'))).toEqual(['commit 0:8', 'commit 0:8']);
  });

  it('has one commit in flight at a time, and then commits what came meanwhile', async () => {
    const { fake } = await world(serveAll);
    const answer = Promise.withResolvers<void>();
    fake.commitOffsets = () => answer.promise;
    fake.join(0);
    await fake.deliver(0, [7]);
    await vi.advanceTimersByTimeAsync(500);
    await fake.deliver(0, [8]);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(fake.calls.filter((call) => call.startsWith('commit'))).toEqual(['commit 0:8']);
    answer.resolve();
    await vi.advanceTimersByTimeAsync(500);
    expect(fake.calls.at(-1)).toBe('commit 0:9');
  });
});

describe('a handler that takes long', () => {
  it('is left to end outside, its partition paused, and then goes on where it came to', async () => {
    const late = Promise.withResolvers<void>();
    const { fake } = await world(async (_partition, _records, control) => {
      await late.promise;
      control.resolved(5);
    });
    fake.join(0);
    const delivered = fake.deliver(0, [5, 6]);
    await vi.advanceTimersByTimeAsync(1_000);
    await delivered;
    expect(fake.calls).toEqual(['resume 0', 'pause 0']);
    late.resolve();
    await vi.advanceTimersByTimeAsync(0);
    expect(fake.calls).toEqual(['resume 0', 'pause 0', 'seek 0 to 6', 'resume 0']);
  });

  it('takes no second batch of its partition meanwhile', async () => {
    const late = Promise.withResolvers<void>();
    const handler = vi.fn(async () => late.promise);
    const { fake } = await world(handler);
    fake.join(0);
    const delivered = fake.deliver(0, [5]);
    await vi.advanceTimersByTimeAsync(1_000);
    await delivered;
    await fake.deliver(0, [5]);
    expect(handler).toHaveBeenCalledTimes(1);
    late.resolve();
  });

  it('stays inside while it makes progress', async () => {
    const { fake } = await world(async (_partition, records, control) => {
      for (const { offset } of records) {
        await new Promise((resolve) => setTimeout(resolve, 800));
        control.resolved(offset);
      }
    });
    fake.join(0);
    const delivered = fake.deliver(0, [1, 2, 3]);
    await vi.advanceTimersByTimeAsync(2_400);
    await delivered;
    expect(fake.calls.filter((call) => call.startsWith('pause'))).toEqual([]);
  });

  it('sends a heartbeat each second', async () => {
    const late = Promise.withResolvers<void>();
    const heartbeat = vi.fn(async () => {});
    const { fake } = await world(async (_partition, _records, control) => {
      for (let beat = 0; beat < 3; beat += 1) {
        await new Promise((resolve) => setTimeout(resolve, 900));
        control.resolved(beat);
      }
      late.resolve();
    });
    fake.join(0);
    const delivered = fake.deliver(0, [0, 1, 2], heartbeat);
    await vi.advanceTimersByTimeAsync(2_700);
    await Promise.all([delivered, late.promise]);
    expect(heartbeat).toHaveBeenCalledTimes(2);
  });

  it('begins no further part once a heartbeat was refused', async () => {
    const parts: number[] = [];
    const { fake } = await world(async (_partition, records, control) => {
      for (const { offset } of records) {
        if (!control.isCurrent()) return;
        await new Promise((resolve) => setTimeout(resolve, 700));
        parts.push(offset);
        control.resolved(offset);
      }
    });
    fake.join(0);
    const refused = async () => {
      throw new Error('rebalance in progress');
    };
    const delivered = fake.deliver(0, [0, 1, 2, 3], refused);
    await vi.advanceTimersByTimeAsync(3_000);
    await delivered;
    expect(parts).toEqual([0, 1]);
  });

  it('goes on when the next heartbeat is accepted, though one was refused', async () => {
    const { fake } = await world(async (_partition, records, control) => {
      await new Promise((resolve) => setTimeout(resolve, 1_200));
      await serveAll(0, records, control);
    });
    fake.join(0);
    const refused = async () => {
      throw new Error('Closed connection');
    };
    await Promise.all([fake.deliver(0, [0], refused), vi.advanceTimersByTimeAsync(1_200)]);
    expect(fake.calls).not.toContain('resolve 0 0');
    fake.emit('heartbeat', {});
    await Promise.all([fake.deliver(0, [0]), vi.advanceTimersByTimeAsync(1_200)]);
    await vi.advanceTimersByTimeAsync(500);
    expect(fake.calls).toContain('commit 0:1');
  });
});

describe('after a fault', () => {
  it('a partition rests, and its requests come again from where they were left', async () => {
    const { fake } = await world(async (_partition, _records, control) => {
      control.resolved(5);
      throw new IdallocError('APPEND_UNANSWERED', 'no answer');
    });
    fake.join(0);
    await fake.deliver(0, [5, 6]);
    expect(fake.calls).toEqual(['resume 0', 'resolve 0 5', 'pause 0']);
    await vi.advanceTimersByTimeAsync(199);
    expect(fake.calls).toHaveLength(3);
    await vi.advanceTimersByTimeAsync(1);
    expect(fake.calls.slice(3)).toEqual(['seek 0 to 6', 'resume 0']);
  });

  it('that lasts, a partition rests for longer', async () => {
    const { fake } = await world(async () => {
      throw new IdallocError('LEDGER_UNREADABLE', 'foreign entry');
    });
    fake.join(0);
    await fake.deliver(0, [5]);
    await vi.advanceTimersByTimeAsync(4_999);
    expect(fake.calls).toEqual(['resume 0', 'pause 0']);
    await vi.advanceTimersByTimeAsync(1);
    expect(fake.calls.slice(2)).toEqual(['seek 0 to 5', 'resume 0']);
  });

  it('other partitions go on', async () => {
    const { fake } = await world(async (partition, records, control) => {
      if (partition === 0) throw new IdallocError('APPEND_UNANSWERED', 'no answer');
      await serveAll(partition, records, control);
    });
    fake.join(0, 1);
    await Promise.all([fake.deliver(0, [5]), fake.deliver(1, [9])]);
    expect(fake.calls).toContain('resolve 1 9');
  });
});

describe('the gate', () => {
  it('closed, pauses every partition and takes no batch that was queued before', async () => {
    const handler = vi.fn(serveAll);
    const { consumer, fake } = await world(handler);
    fake.join(0, 1);
    consumer.pause();
    await fake.deliver(0, [5]);
    expect(fake.calls).toEqual(['resume 0,1', 'pause 0,1']);
    expect(handler).not.toHaveBeenCalled();
  });

  it('closed, stays closed over a rebalance', async () => {
    const { consumer, fake } = await world(serveAll);
    fake.join(0);
    consumer.pause();
    fake.join(0, 1);
    expect(fake.calls.at(-1)).toBe('pause 0,1');
  });

  it('open again, resumes all but what is still in hand', async () => {
    const late = Promise.withResolvers<void>();
    const { consumer, fake } = await world(async (partition) => {
      if (partition === 0) await late.promise;
    });
    fake.join(0, 1);
    void fake.deliver(0, [5]);
    await vi.advanceTimersByTimeAsync(1_000);
    consumer.pause();
    consumer.resume();
    expect(fake.calls.at(-1)).toBe('resume 1');
    late.resolve();
  });
});

describe('the gate, open again while a partition rests', () => {
  it('lets it go on at once, and not a second time when its rest would have ended', async () => {
    const { consumer, fake } = await world(async (_partition, _records, control) => {
      control.resolved(5);
      throw new IdallocError('LEASE_SUSPENDED', 'no etcd');
    });
    fake.join(0);
    await fake.deliver(0, [5, 6]);
    consumer.pause();
    const before = fake.calls.length;
    consumer.resume();
    expect(fake.calls.slice(before)).toEqual(['seek 0 to 6', 'resume 0']);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(fake.calls.slice(before).filter((call) => !call.startsWith('commit'))).toHaveLength(2);
  });

  it('does not when it was open all the time, as it is told now and then', async () => {
    const { consumer, fake } = await world(async () => {
      throw new IdallocError('APPEND_UNANSWERED', 'no answer');
    });
    fake.join(0);
    await fake.deliver(0, [5]);
    const before = fake.calls.length;
    await vi.advanceTimersByTimeAsync(199);
    consumer.resume();
    expect(fake.calls).toHaveLength(before);
  });
});

describe('leaving', () => {
  it('waits for the batch in hand and commits it first', async () => {
    const late = Promise.withResolvers<void>();
    const { consumer, fake } = await world(async (_partition, _records, control) => {
      await late.promise;
      control.resolved(5);
    });
    fake.join(0);
    void fake.deliver(0, [5]);
    const stopped = consumer.stop();
    late.resolve();
    await stopped;
    expect(fake.calls).toEqual(['resume 0', 'pause 0', 'resolve 0 5', 'commit 0:6', 'disconnect']);
  });

  it('commits behind a commit that is still in flight', async () => {
    const { consumer, fake } = await world(serveAll);
    const answer = Promise.withResolvers<void>();
    fake.commitOffsets = () => answer.promise;
    fake.join(0);
    await fake.deliver(0, [7]);
    await vi.advanceTimersByTimeAsync(500);
    await fake.deliver(0, [8]);
    const stopped = consumer.stop();
    answer.resolve();
    await stopped;
    expect(fake.calls.slice(-2)).toEqual(['commit 0:9', 'disconnect']);
  });

  it('does not wait for ever', async () => {
    const { consumer, fake } = await world(() => new Promise(() => {}));
    fake.join(0);
    void fake.deliver(0, [5]);
    const stopped = consumer.stop();
    await vi.advanceTimersByTimeAsync(5_000);
    await stopped;
    expect(fake.calls.at(-1)).toBe('disconnect');
  });
});

describe('a crash', () => {
  it('that kafkajs does not mend is told, and ends the sessions', async () => {
    const { fake, crashes } = await world(serveAll);
    fake.join(0);
    fake.emit('crash', { error: new Error('gone'), restart: false });
    await fake.deliver(0, [5]);
    expect(crashes).toHaveLength(1);
    expect(fake.calls).toEqual(['resume 0']);
  });

  it('is told when kafkajs goes on after a rebalance without having joined', async () => {
    const { fake, crashes } = await world(serveAll);
    fake.join(0);
    fake.emit('rebalancing', {});
    expect(crashes).toEqual([]);
    fake.emit('heartbeat', {});
    fake.emit('heartbeat', {});
    expect(crashes).toHaveLength(1);
  });

  it('is not told for heartbeats before a rebalance and after the join that follows it', async () => {
    const { fake, crashes } = await world(serveAll);
    fake.join(0);
    fake.emit('heartbeat', {});
    fake.emit('rebalancing', {});
    fake.join(0, 1);
    fake.emit('heartbeat', {});
    expect(crashes).toEqual([]);
  });

  it('that kafkajs mends is not told', async () => {
    const { fake, crashes } = await world(serveAll);
    fake.emit('crash', { error: new Error('passing'), restart: true });
    expect(crashes).toEqual([]);
  });
});

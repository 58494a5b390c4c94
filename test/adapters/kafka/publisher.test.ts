import type { Message, Producer } from 'kafkajs';
import { afterEach, describe, expect, it, test, vi } from 'vitest';
import { KafkaPublisher } from '../../../src/adapters/kafka/publisher.ts';
import type { Standing } from '../../../src/adapters/kafka/reply-topics.ts';
import type { OutgoingRecord } from '../../../src/pipeline/ports.ts';

const T = 'id.replies.t';
const PATIENCE_MS = 10_000;

/** A fault as kafkajs tells it after its retries: the broker's own is the cause. */
function fault(type: string): Error {
  return new Error('gave up', { cause: Object.assign(new Error(type), { type }) });
}

interface Send {
  readonly way: 'shared' | 'alone';
  readonly topic: string;
  readonly messages: readonly Message[];
}

/** Brokers in memory behind one publisher; the clock moves only while somebody sleeps. */
class World {
  readonly sends: Send[] = [];
  readonly accused = new Map<string, string>();
  readonly acquitted: string[] = [];
  standings = new Map<string, Standing>();
  nowMs = 0;
  /** What becomes of a send: an error is thrown, nothing is an acknowledgement of every partition. */
  respond: (send: Send) => Error | Promise<never> | undefined = () => undefined;
  readonly publisher: KafkaPublisher;

  constructor() {
    const producer = (way: Send['way']) =>
      ({
        send: async ({ topic, messages }: { topic: string; messages: Message[] }) => {
          const send = { way, topic, messages };
          this.sends.push(send);
          const outcome = await this.respond(send);
          if (outcome instanceof Error) throw outcome;
          const partitions = new Set(messages.map(({ partition }) => partition));
          return [...partitions].map((partition) => ({ topicName: topic, partition, errorCode: 0 }));
        },
      }) as unknown as Producer;
    this.publisher = new KafkaPublisher({
      topics: {
        standing: async (topic) => {
          const reason = this.accused.get(topic);
          if (reason !== undefined) return { kind: 'bad', reason };
          return this.standings.get(topic) ?? { kind: 'well', partitions: 3, onProbation: false };
        },
        doubt: () => {},
        accuse: (topic, reason) => void this.accused.set(topic, reason),
        acquit: (topic) => void this.acquitted.push(topic),
      },
      producers: {
        shared: (_, use) => use(producer('shared')),
        alone: (use) => use(producer('alone')),
      },
      monotonicMs: () => this.nowMs,
      sleep: async (delayMs) => {
        this.nowMs += delayMs;
      },
    });
  }

  async outcomes(records: readonly OutgoingRecord[]): Promise<(string | true)[]> {
    const deliveries = await this.publisher.publish(records);
    return deliveries.map((delivery) => delivery.ok || delivery.reason);
  }
}

function record(id: string, fields: Partial<OutgoingRecord> = {}): OutgoingRecord {
  return { topic: T, key: Buffer.from(id), value: Buffer.from(id), headers: {}, ...fields };
}

const idsOf = ({ messages }: Send) => messages.map(({ value }) => String(value).slice(0, 10));

afterEach(() => {
  vi.useRealTimers();
});

describe('a topic that can not be written to', () => {
  it('is not tried, and holds up no other', async () => {
    const world = new World();
    world.standings.set('gone', { kind: 'bad', reason: 'topic gone does not exist' });
    const records = [record('a'), record('b', { topic: 'gone' }), record('c')];
    expect(await world.outcomes(records)).toEqual([true, 'topic gone does not exist', true]);
    expect(world.sends.map(({ topic }) => topic)).toEqual([T]);
  });

  test.each(['UNKNOWN_TOPIC_OR_PARTITION', 'INVALID_TOPIC_EXCEPTION', 'TOPIC_AUTHORIZATION_FAILED'])(
    'by %s is refused once a send of its own has met that, and not tried for a while',
    async (type) => {
      const world = new World();
      world.respond = ({ topic }) => (topic === 'denied' ? fault(type) : undefined);
      const records = [record('a', { topic: 'denied' }), record('b')];
      expect(await world.outcomes(records)).toEqual([`topic denied refused the record: ${type}`, true]);
      expect(world.sends.filter(({ topic }) => topic === 'denied').map(({ way }) => way)).toEqual(['shared', 'alone']);
      expect(world.accused.get('denied')).toContain(type);
      expect(world.nowMs).toBeLessThan(1_000);
    },
  );

  it('is not blamed for a fault that another one brought into their common send', async () => {
    const world = new World();
    world.respond = ({ way }) => (way === 'shared' ? fault('UNKNOWN_TOPIC_OR_PARTITION') : undefined);
    expect(await world.outcomes([record('a')])).toEqual([true]);
    expect(world.accused.size).toBe(0);
  });

  test.each(['NOT_ENOUGH_REPLICAS', 'NOT_ENOUGH_REPLICAS_AFTER_APPEND', 'LEADER_NOT_AVAILABLE'])(
    'for now, by %s, is waited for, and refused when it stays so',
    async (type) => {
      const world = new World();
      world.respond = ({ topic }) => (topic === 'weak' ? fault(type) : undefined);
      expect(await world.outcomes([record('a', { topic: 'weak' }), record('b')])).toEqual([
        `topic weak refused the record: ${type}`,
        true,
      ]);
      expect(world.nowMs).toBeGreaterThanOrEqual(PATIENCE_MS);
      expect(world.sends.filter(({ topic }) => topic === T)).toHaveLength(1);
    },
  );

  it('is delivered to when it is well again in time', async () => {
    const world = new World();
    world.respond = () => (world.nowMs < 2_000 ? fault('NOT_ENOUGH_REPLICAS') : undefined);
    expect(await world.outcomes([record('a')])).toEqual([true]);
    expect(world.accused.size).toBe(0);
  });

  it('gets no patience on probation, and ends it by taking a record', async () => {
    const world = new World();
    world.standings.set(T, { kind: 'well', partitions: 1, onProbation: true });
    world.respond = () => fault('NOT_ENOUGH_REPLICAS');
    expect(await world.outcomes([record('a')])).toEqual([expect.stringContaining('NOT_ENOUGH_REPLICAS')]);
    expect(world.nowMs).toBeLessThan(1_000);
    world.accused.clear();
    world.respond = () => undefined;
    expect(await world.outcomes([record('a')])).toEqual([true]);
    expect(world.acquitted).toEqual([T]);
  });

  it('without a leader is not sent to; it is refused 10 s after it lost it, whenever it is asked for', async () => {
    const world = new World();
    world.standings.set(T, { kind: 'leaderless', sinceMs: 0 });
    expect(await world.outcomes([record('a')])).toEqual([`topic ${T} has no leader`]);
    expect([world.sends, world.nowMs]).toEqual([[], PATIENCE_MS]);
    expect(await world.outcomes([record('a')])).toEqual([`topic ${T} has no leader`]);
    expect(world.nowMs).toBe(PATIENCE_MS);
  });
});

describe('a fault of the brokers', () => {
  it('rejects in the end, and says nothing of any record', async () => {
    const world = new World();
    world.respond = () => new Error('Connection error: refused');
    await expect(world.publisher.publish([record('a')])).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    expect(world.accused.size).toBe(0);
  });

  it('that keeps one topic waiting does not keep the others from being sent', async () => {
    vi.useFakeTimers();
    const world = new World();
    world.respond = ({ topic }) => (topic === 'slow' ? new Promise<never>(() => {}) : undefined);
    const published = world.publisher.publish([record('a', { topic: 'slow' }), record('b')]);
    const rejected = expect(published).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    await vi.advanceTimersByTimeAsync(0);
    expect(world.sends.map(({ topic }) => topic)).toEqual(['slow', T]);
    world.nowMs = PATIENCE_MS;
    await vi.advanceTimersByTimeAsync(60_000);
    await rejected;
  });

  it('that hangs one send is not waited for without end', async () => {
    vi.useFakeTimers();
    const world = new World();
    world.respond = ({ way }) => (way === 'shared' ? new Promise<never>(() => {}) : undefined);
    const published = world.outcomes([record('a')]);
    await vi.advanceTimersByTimeAsync(15_000);
    expect(await published).toEqual([true]);
  });

  it('that acknowledges less than was sent counts as none', async () => {
    const world = new World();
    const producer = { send: async () => [{ topicName: T, partition: 2, errorCode: 0 }] } as unknown as Producer;
    const publisher = new KafkaPublisher({
      topics: {
        standing: async () => ({ kind: 'well', partitions: 3, onProbation: true }),
        doubt: () => {},
        accuse: () => {},
        acquit: () => {},
      },
      producers: { shared: (_, use) => use(producer), alone: (use) => use(producer) },
      monotonicMs: () => world.nowMs,
      sleep: async () => {},
    });
    await expect(publisher.publish([record('a', { partition: 1 })])).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
    });
    expect(await publisher.publish([record('a', { partition: 2 })])).toEqual([{ ok: true }]);
  });
});

describe('a record', () => {
  it('for a partition that does not exist is refused and not sent; the others are', async () => {
    const world = new World();
    const records = [
      record('a', { partition: 2 }),
      record('b', { partition: 3 }),
      record('c', { partition: 2 ** 31 - 1 }),
    ];
    expect(await world.outcomes(records)).toEqual([
      true,
      `topic ${T} has no partition 3: it has 3`,
      `topic ${T} has no partition 2147483647: it has 3`,
    ]);
    expect(world.sends.flatMap(idsOf)).toEqual(['a']);
  });

  test.each(['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE', 'INVALID_RECORD', 'INVALID_TIMESTAMP'])(
    'that its topic refuses by %s fails alone, and costs few sends',
    async (type) => {
      const world = new World();
      world.respond = (send) => (idsOf(send).includes('bad') ? fault(type) : undefined);
      const records = Array.from({ length: 500 }, (_, i) => record(i === 123 ? 'bad' : `r${i}`, { partition: 0 }));
      const outcomes = await world.outcomes(records);
      expect(outcomes.filter((outcome) => outcome !== true)).toEqual([`topic ${T} refused the record: ${type}`]);
      expect(outcomes[123]).not.toBe(true);
      expect(world.sends.length).toBeLessThan(25);
      expect(world.sends.every(({ way }) => way === 'shared')).toBe(true);
      const taken = world.sends.filter((send) => !idsOf(send).includes('bad')).flatMap(idsOf);
      expect(taken).toEqual(records.map(({ value }) => String(value)).filter((id) => id !== 'bad'));
    },
  );

  it('does not share a record batch with more than a broker takes, while partitions share a send', async () => {
    const world = new World();
    const large = (partition: number) => record('x', { partition, value: Buffer.alloc(600_000) });
    await world.outcomes([large(0), large(1), large(2)]);
    expect(world.sends.map(({ messages }) => messages.length)).toEqual([3]);
    await world.outcomes([large(0), large(1), large(0), large(1)]);
    expect(world.sends.slice(1).map(({ messages }) => messages.length)).toEqual([2, 2]);
  });

  it('without a partition goes where its key says, which is told to the client', async () => {
    const world = new World();
    await world.outcomes([record('a'), record('a'), record('b', { key: null })]);
    const [first, second, third] = world.sends.flatMap(({ messages }) => messages.map(({ partition }) => partition));
    expect(first).toBe(second);
    expect([0, 1, 2]).toContain(third);
  });

  it('loses no header: one without a value, which kafkajs can not write, comes out empty', async () => {
    const world = new World();
    const headers = JSON.parse('{"__proto__":"x","constructor":"y"}');
    const nulls = { a: null, b: [null, Buffer.from('z')], c: undefined } as unknown as OutgoingRecord['headers'];
    await world.outcomes([record('a', { headers: { ...headers, ...nulls } })]);
    const sent = world.sends[0]?.messages[0]?.headers ?? {};
    const empty = Buffer.alloc(0);
    expect(Object.entries(sent)).toEqual(
      expect.arrayContaining([
        ['constructor', 'y'],
        ['a', empty],
        ['b', [empty, Buffer.from('z')]],
        ['c', empty],
      ]),
    );
  });
});

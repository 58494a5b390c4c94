import { queryObjects } from 'node:v8';
import { afterAll, beforeEach, describe, expect, it, test } from 'vitest';
import { KafkaPublisher, type KafkaPublisherOptions } from '../../../src/adapters/kafka/publisher.ts';
import { RecentTopics, type Skipped } from '../../../src/adapters/kafka/refusals.ts';
import { ReplyTopics, type TopicStatus } from '../../../src/adapters/kafka/reply-topics.ts';
import { AppendQueue } from '../../../src/kafka/loops/append-queue.ts';
import type { Cluster } from '../../../src/kafka/wire/cluster.ts';
import { KafkaError, type KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { ProduceRequest } from '../../../src/kafka/wire/record-apis.ts';
import type { OutgoingRecord } from '../../../src/pipeline/ports.ts';
import { recordsOf } from '../../support/fake-kafka/batches.ts';
import { LoopStage } from '../../support/loop-stage.ts';
import { scriptedLink } from '../../support/scripted-link.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

const T = 'id.replies.t';
const REQUESTS = 'id.requests';
const PATIENCE_MS = 10_000;
const APPEND_TIMEOUT_MS = 10_000;

interface Send {
  readonly topic: string;
  readonly partition: number;
  readonly bytes: number;
  readonly records: ReturnType<typeof recordsOf>;
}

/** A publisher with one scripted broker. */
class World {
  readonly runtime = new VirtualRuntime();
  readonly sends: Send[] = [];
  /** The time limit of each append. */
  readonly limitsMs: number[] = [];
  readonly unwritable = new Map<string, string>();
  readonly cleared: string[] = [];
  readonly doubted: string[] = [];
  readonly revoked = new Set<string>();
  readonly skipped: Skipped[] = [];
  statuses = new Map<string, TopicStatus>();
  /** The outcome of an append: a fault, undefined for success, or a promise that never settles. */
  respond: (send: Send) => KafkaErrorCode | Promise<undefined> | undefined = () => undefined;
  readonly publisher: KafkaPublisher;

  constructor(purpose: KafkaPublisherOptions['purpose'] = 'publish') {
    const produce = async ({ topic, partition, batch, acks }: ProduceRequest) => {
      expect(acks).toBe(-1);
      const send = { topic, partition, bytes: batch.length, records: recordsOf(batch) };
      this.sends.push(send);
      const errorCode = await this.respond(send);
      return { throttleMs: 0, errorCode, baseOffset: 0, appendedAtMs: -1, logStartOffset: 0 };
    };
    const cluster = {
      leader: async () => 1,
      call: async (_node: number, itsPurpose: string, timeoutMs: number, use: (link: object) => Promise<unknown>) => {
        expect(itsPurpose).toBe(purpose);
        this.limitsMs.push(timeoutMs);
        const late = this.runtime.sleep(timeoutMs).then(() => {
          throw new KafkaError('NO_RESPONSE', 'the broker is silent');
        });
        return await Promise.race([use(scriptedLink({ produce })), late]);
      },
      markStale: () => {},
    } as unknown as Cluster;
    this.publisher = new KafkaPublisher({
      cluster,
      purpose,
      requestTopic: REQUESTS,
      runtime: this.runtime,
      isRevoked: (topic) => this.revoked.has(topic),
      onSkipped: (skipped) => void this.skipped.push(skipped),
      topics: {
        status: async (topic) => {
          const reason = this.unwritable.get(topic);
          if (reason !== undefined) return { kind: 'unwritable', reason };
          return this.statuses.get(topic) ?? { kind: 'writable', partitions: 3, onProbation: false };
        },
        invalidate: (topic) => void this.doubted.push(topic),
        markUnwritable: (topic, reason) => void this.unwritable.set(topic, reason),
        clear: (topic) => void this.cleared.push(topic),
      },
    });
  }

  get nowMs(): number {
    return this.runtime.monotonicMs();
  }

  async outcomes(records: readonly OutgoingRecord[]): Promise<(string | true)[]> {
    const deliveries = await this.runtime.until(this.publisher.publish(records, 0));
    return deliveries.map((delivery) => delivery.ok || delivery.reason);
  }
}

function record(id: string, fields: Partial<OutgoingRecord> = {}): OutgoingRecord {
  return { topic: T, key: Buffer.from(id), value: Buffer.from(id), headers: {}, ...fields };
}

const idsOf = ({ records }: Send) => records.map(({ value }) => String(value).slice(0, 10));

let world: World;

beforeEach(() => {
  world = new World();
});

describe('large replies', () => {
  const each = (topics: number) => Array.from({ length: topics }, (_, i) => record(`r${i}`, { topic: `${T}.${i}` }));

  it('are appended four at a time, whatever their topics, while others are not limited', async () => {
    const most: number[] = [];
    for (const purpose of ['publish large', 'publish'] as const) {
      world = new World(purpose);
      let inProgress = 0;
      let highest = 0;
      const { sends, runtime } = world;
      world.respond = () => {
        inProgress += 1;
        highest = Math.max(highest, inProgress);
        return runtime.sleep(5).then(() => {
          inProgress -= 1;
          return undefined;
        });
      };
      expect(await world.outcomes(each(20))).toEqual(Array(20).fill(true));
      expect(sends.length).toBe(20);
      most.push(highest);
    }
    expect(most).toEqual([4, 20]);
  });

  it('whose brokers are slow hold up those behind them for 100 ms', async () => {
    world = new World('publish large');
    world.respond = () => (world.sends.length <= 4 ? world.runtime.sleep(1_000).then(() => undefined) : undefined);
    const sentMs: number[] = [];
    const { respond } = world;
    world.respond = (send) => {
      sentMs.push(world.nowMs);
      return respond(send);
    };
    expect(await world.outcomes(each(6))).toEqual(Array(6).fill(true));
    expect(sentMs).toEqual([...Array(4).fill(0), 100, 100]);
  });
});

describe('an unwritable topic', () => {
  it('is not tried, and does not delay others', async () => {
    world.statuses.set('gone', { kind: 'unwritable', reason: 'topic gone does not exist' });
    const records = [record('a'), record('b', { topic: 'gone' }), record('c')];
    expect(await world.outcomes(records)).toEqual([true, 'topic gone does not exist', true]);
    expect(new Set(world.sends.map(({ topic }) => topic))).toEqual(new Set([T]));
  });

  test.each(['UNKNOWN_TOPIC_OR_PARTITION', 'INVALID_TOPIC_EXCEPTION', 'TOPIC_AUTHORIZATION_FAILED'])(
    'is given up when a second append fails with %s too, and then not tried for a while',
    async (errorCode) => {
      world.respond = ({ topic }) => (topic === 'denied' ? errorCode : undefined);
      const records = [record('a', { topic: 'denied' }), record('b')];
      expect(await world.outcomes(records)).toEqual([`topic denied refused the record: ${errorCode}`, true]);
      expect(world.sends.filter(({ topic }) => topic === 'denied')).toHaveLength(2);
      expect(world.unwritable.get('denied')).toContain(errorCode);
      expect(world.nowMs).toBeLessThan(1_000);
    },
  );

  it('is waited for if the right to write to it was revoked', async () => {
    world.revoked.add('denied');
    world.respond = () => 'TOPIC_AUTHORIZATION_FAILED';
    await expect(world.outcomes([record('a', { topic: 'denied' })])).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
      message: expect.stringMatching(/denied.*allow Write/),
    });
    expect(world.unwritable.size).toBe(0);
    world.statuses.set('denied', { kind: 'unwritable', reason: 'may not be described' });
    await expect(world.outcomes([record('a', { topic: 'denied' })])).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
    });
  });

  it('is retried after a first fault, since the topic may be new', async () => {
    world.respond = () => (world.sends.length === 1 ? 'UNKNOWN_TOPIC_OR_PARTITION' : undefined);
    expect(await world.outcomes([record('a')])).toEqual([true]);
    expect([world.unwritable.size, world.doubted]).toEqual([0, [T]]);
  });

  test.each(['NOT_ENOUGH_REPLICAS', 'NOT_ENOUGH_REPLICAS_AFTER_APPEND', 'LEADER_NOT_AVAILABLE', 'PARTITIONS_MISSING'])(
    'is retried while appends fail with %s, and given up if that continues',
    async (errorCode) => {
      world.respond = ({ topic }) => (topic === 'weak' ? errorCode : undefined);
      expect(await world.outcomes([record('a', { topic: 'weak' }), record('b')])).toEqual([
        `topic weak refused the record: ${errorCode}`,
        true,
      ]);
      expect(world.nowMs).toBeGreaterThanOrEqual(PATIENCE_MS);
      expect(world.sends.filter(({ topic }) => topic === T)).toHaveLength(1);
    },
  );

  it('gets its records if it recovers in time', async () => {
    world.respond = () => (world.nowMs < 2_000 ? 'NOT_ENOUGH_REPLICAS' : undefined);
    expect(await world.outcomes([record('a')])).toEqual([true]);
    expect(world.unwritable.size).toBe(0);
  });

  it('is not waited for on probation, which ends when it accepts a record', async () => {
    world.statuses.set(T, { kind: 'writable', partitions: 1, onProbation: true });
    world.respond = () => 'NOT_ENOUGH_REPLICAS';
    expect(await world.outcomes([record('a')])).toEqual([expect.stringContaining('NOT_ENOUGH_REPLICAS')]);
    expect(world.nowMs).toBeLessThan(1_000);
    world.unwritable.clear();
    world.respond = () => undefined;
    expect(await world.outcomes([record('b', { partition: 7 })])).toEqual([expect.stringContaining('no partition 7')]);
    expect(world.cleared, 'it has accepted no record').toEqual([]);
    expect(await world.outcomes([record('a')])).toEqual([true]);
    expect(world.cleared).toEqual([T]);
  });

  it('without a leader gets no append; its records fail 10 s after the leader was lost, whenever they are published', async () => {
    world.statuses.set(T, { kind: 'leaderless', sinceMs: 0 });
    expect(await world.outcomes([record('a')])).toEqual([`topic ${T} has no leader`]);
    expect([world.sends, world.nowMs]).toEqual([[], PATIENCE_MS]);
    expect(await world.outcomes([record('a')])).toEqual([`topic ${T} has no leader`]);
    expect(world.nowMs).toBe(PATIENCE_MS);
  });
});

describe('a fault of the brokers', () => {
  it('rejects the publication after all retries, without outcomes', async () => {
    world.respond = () => 'NOT_LEADER_FOR_PARTITION';
    await expect(world.outcomes([record('a')])).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    expect(world.unwritable.size).toBe(0);
    expect(world.nowMs).toBeGreaterThanOrEqual(PATIENCE_MS);
  });

  it("does not count as the topic's when only some partitions are affected", async () => {
    world.respond = ({ partition }) => (partition === 0 ? 'NOT_ENOUGH_REPLICAS' : 'REQUEST_TIMED_OUT');
    const records = [0, 1].map((partition) => record('a', { partition }));
    await expect(world.outcomes(records)).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
  });

  it('that delays one topic or partition does not delay the others', async () => {
    const silence = new Promise<never>(() => {});
    world.respond = ({ topic, partition }) => (topic === 'slow' || partition === 1 ? silence : undefined);
    const records = [record('a', { topic: 'slow' }), ...[0, 1, 2].map((partition) => record('b', { partition }))];
    const published = world.outcomes(records);
    await expect(published).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    const first = world.sends.slice(0, 4).map(({ topic, partition }) => [topic, partition]);
    expect(first).toEqual(
      expect.arrayContaining([
        [T, 0],
        [T, 1],
        [T, 2],
      ]),
    );
    expect(
      world.sends.filter(({ topic, partition }) => topic === T && partition !== 1),
      'sent once',
    ).toHaveLength(2);
    expect(world.nowMs).toBeLessThan(PATIENCE_MS + 2 * APPEND_TIMEOUT_MS);
  });

  it('that hangs one append is not waited for indefinitely', async () => {
    world.respond = () => (world.sends.length === 1 ? new Promise<never>(() => {}) : undefined);
    expect(await world.outcomes([record('a')])).toEqual([true]);
    expect(world.nowMs).toBe(APPEND_TIMEOUT_MS);
  });
});

describe('a topic that refuses old records', () => {
  const LIMIT_MS = 5_000;
  const REMEMBERED_MS = 60_000;
  const isOld = ({ timestampMs }: { readonly timestampMs: number }) => timestampMs < world.runtime.wallMs() - LIMIT_MS;
  const dated = (id: string, ageMs: number) => {
    return record(id, { partition: 0, timestampMs: world.runtime.wallMs() - ageMs, headers: { h: Buffer.from(id) } });
  };
  const timesOf = ({ records }: Send) => new Set(records.map(({ timestampMs }) => timestampMs));

  beforeEach(() => {
    world.respond = ({ records }) => (records.some(isOld) ? 'INVALID_TIMESTAMP' : undefined);
  });

  it('gets them once more, as they are except for the present time', async () => {
    const records = Array.from({ length: 100 }, (_, i) => dated(`r${i}`, i * 1_000));
    expect(new Set(await world.outcomes(records))).toEqual(new Set([true]));
    const [first, again, ...more] = world.sends as [Send, Send, ...Send[]];
    expect([timesOf(first).size, timesOf(again), more]).toEqual([100, new Set([world.runtime.wallMs()]), []]);
    const rest = ({ records: sent }: Send) => sent.map(({ key, value, headers }) => ({ key, value, headers }));
    expect(rest(again)).toEqual(rest(first));
  });

  it('is remembered for a minute, so that each reply costs one append', async () => {
    await world.outcomes([dated('a', 2 * LIMIT_MS)]);
    world.sends.length = 0;
    await world.outcomes([dated('b', 2 * LIMIT_MS)]);
    expect(world.sends.map(timesOf)).toEqual([new Set([world.runtime.wallMs()])]);
    await world.runtime.until(world.runtime.sleep(REMEMBERED_MS));
    world.sends.length = 0;
    const recent = dated('c', 1_000);
    await world.outcomes([recent]);
    expect(world.sends.map(timesOf)).toEqual([new Set([recent.timestampMs])]);
  });

  it('does not change the time of records for others', async () => {
    const recent = { ...dated('b', 1_000), partition: 1 };
    const other = { ...recent, topic: 'other' };
    await world.outcomes([dated('a', 2 * LIMIT_MS), other]);
    await world.outcomes([other]);
    const others = world.sends.filter(({ topic }) => topic === 'other');
    expect(others.map(timesOf)).toEqual(Array(2).fill(new Set([recent.timestampMs])));
  });

  it('and refuses one at the present time, too, fails that one alone, and costs few appends', async () => {
    world.respond = (send) => {
      return send.records.some(isOld) || idsOf(send).includes('never') ? 'INVALID_TIMESTAMP' : undefined;
    };
    const records = Array.from({ length: 500 }, (_, i) => dated(i === 123 ? 'never' : `r${i}`, 2 * LIMIT_MS));
    const outcomes = await world.outcomes(records);
    expect(outcomes.filter((outcome) => outcome !== true)).toEqual([
      `topic ${T} refused the record: INVALID_TIMESTAMP`,
    ]);
    expect(world.sends.length).toBeLessThan(25);
  });
});

describe('a record', () => {
  it('for a missing partition fails and is not sent; the others are', async () => {
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

  test.each(['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE'])(
    'that is too large for its topic by %s fails alone, and costs few appends',
    async (errorCode) => {
      world.respond = (send) => (send.bytes > 20_000 ? errorCode : undefined);
      const records = Array.from({ length: 500 }, (_, i) =>
        record(`r${i}`, { partition: 0, ...(i === 123 && { value: Buffer.alloc(30_000) }) }),
      );
      const outcomes = await world.outcomes(records);
      expect(outcomes.flatMap((outcome, i) => (outcome === true ? [] : [i]))).toEqual([123]);
      expect(world.sends.length).toBeLessThan(25);
    },
  );

  test.each(['INVALID_RECORD', 'INVALID_TIMESTAMP'])(
    'that its topic refuses by %s fails alone, and costs few appends',
    async (errorCode) => {
      world.respond = (send) => (idsOf(send).includes('unwritable') ? errorCode : undefined);
      const records = Array.from({ length: 500 }, (_, i) =>
        record(i === 123 ? 'unwritable' : `r${i}`, { partition: 0 }),
      );
      const outcomes = await world.outcomes(records);
      expect(outcomes.filter((outcome) => outcome !== true)).toEqual([`topic ${T} refused the record: ${errorCode}`]);
      expect(outcomes[123]).not.toBe(true);
      expect(world.sends.length).toBeLessThan(25);
      const taken = world.sends.filter((send) => !idsOf(send).includes('unwritable')).flatMap(idsOf);
      expect(taken).toEqual(records.map(({ value }) => String(value)).filter((id) => id !== 'unwritable'));
    },
  );

  it('is not sent again when a later record of its partition fails', async () => {
    world.respond = (send) => {
      if (send.records.length > 1) return 'MESSAGE_TOO_LARGE';
      return idsOf(send).includes('b') && world.nowMs < 500 ? 'NOT_LEADER_FOR_PARTITION' : undefined;
    };
    expect(await world.outcomes(['a', 'b'].map((id) => record(id, { partition: 0 })))).toEqual([true, true]);
    expect(world.sends.filter((send) => idsOf(send).join() === 'a')).toHaveLength(1);
  });

  it('is split from others when the record batch would be too large', async () => {
    const large = (partition: number, bytes = 600_000) => record('x', { partition, value: Buffer.alloc(bytes) });
    await world.outcomes([large(0), large(1), large(2)]);
    expect(world.sends.map(({ records }) => records.length)).toEqual([1, 1, 1]);
    world.sends.length = 0;
    const sizes = [400_000, 400_000, 100_000, 2_000_000, 300_000, 300_000, 200_000];
    await world.outcomes(sizes.map((bytes) => large(0, bytes)));
    expect(world.sends.flatMap(({ records }) => records.map(({ value }) => value?.length))).toEqual(sizes);
    const together = world.sends.filter(({ records }) => records.length > 1);
    expect([together.length > 1, together.every(({ bytes }) => bytes <= 900_000)]).toEqual([true, true]);
  });

  it('without a partition goes to the one of its key, or round-robin without a key', async () => {
    await world.outcomes([record('a'), record('a')]);
    expect(world.sends.map(({ records }) => records.length)).toEqual([2]);
    world.sends.length = 0;
    await world.outcomes(Array(9).fill(record('b', { key: null })));
    expect(world.sends.map(({ partition, records }) => [partition, records.length]).sort()).toEqual([
      [0, 3],
      [1, 3],
      [2, 3],
    ]);
  });

  it('is written with its headers and its time', async () => {
    const headers = JSON.parse('{"__proto__":"x","constructor":"y"}');
    const more = { list: [Buffer.from('1'), 'z'], none: undefined } as unknown as OutgoingRecord['headers'];
    await world.outcomes([record('a', { headers: { ...headers, ...more }, timestampMs: 1_234 })]);
    const [sent] = world.sends[0]?.records ?? [];
    expect([String(sent?.key), String(sent?.value), sent?.timestampMs]).toEqual(['a', 'a', 1_234]);
    const found = Object.entries(sent?.headers ?? {}).map(([name, value]) => [name, String(value)]);
    expect(found).toEqual(
      expect.arrayContaining([
        ['constructor', 'y'],
        ['list', 'z'], // the last of that name
        ['none', ''],
      ]),
    );
  });
});

describe('a topic that refuses what it gets', () => {
  const replies = (count: number, fields: (i: number) => Partial<OutgoingRecord> = () => ({ partition: 0 })) =>
    Array.from({ length: count }, (_, i) => record(`r${1_000 + i}`, { value: Buffer.alloc(100), ...fields(i) }));
  const sentIn = async (records: readonly OutgoingRecord[]) => {
    world.sends.length = 0;
    const outcomes = await world.outcomes(records);
    return { appends: world.sends.length, delivered: outcomes.filter((one) => one === true).length, outcomes };
  };

  it.each([
    ['MESSAGE_TOO_LARGE', 2, 'size'],
    ['INVALID_RECORD', 13, 'any'],
  ])('by %s is asked with one record, then gets none for ten seconds', async (errorCode, most, reason) => {
    world.respond = () => errorCode;
    const first = await sentIn(replies(500));
    expect([first.appends <= most, first.delivered]).toEqual([true, 0]);
    expect(first.outcomes.at(-1)).toContain(errorCode);
    world.skipped.length = 0;
    expect(await sentIn(replies(500))).toMatchObject({ appends: 0, delivered: 0 });
    expect(world.skipped).toEqual([{ topic: T, reason, errorCode, records: 500 }]);
    await world.runtime.until(world.runtime.sleep(10_000));
    world.respond = () => undefined;
    expect(await sentIn(replies(500))).toMatchObject({ appends: 1, delivered: 500 });
  });

  it('gets smaller records at once', async () => {
    world.respond = (send) => (send.bytes > 300 ? 'MESSAGE_TOO_LARGE' : undefined);
    await sentIn(replies(500, () => ({ partition: 0, value: Buffer.alloc(400) })));
    expect(await sentIn(replies(1))).toMatchObject({ appends: 1, delivered: 1 });
  });

  it('in large batches gets smaller ones, and few that are refused', async () => {
    world.respond = (send) => (send.bytes > 2_000 ? 'MESSAGE_TOO_LARGE' : undefined);
    let refused = 0;
    const respond = world.respond;
    world.respond = (send) => {
      const answer = respond(send);
      if (answer !== undefined) refused += 1;
      return answer;
    };
    expect(await sentIn(replies(500))).toMatchObject({ delivered: 500 });
    expect(refused).toBeLessThan(15);
  });

  it('for some of them gets no other after 32 that were refused', async () => {
    world.respond = (send) => (send.records.some(isOdd) ? 'INVALID_RECORD' : undefined);
    const { appends, outcomes } = await sentIn(replies(500));
    expect(appends).toBeLessThan(200);
    expect(outcomes.at(-1)).toMatch(/as it refused others a moment ago: INVALID_RECORD/);
  });

  it('for one sender takes the records of others, if it is a topic of all', async () => {
    world.respond = (send) => (send.records.some(isOdd) ? 'INVALID_RECORD' : undefined);
    expect(await sentIn(replies(500, () => ({ topic: REQUESTS, partition: 0 })))).toMatchObject({ delivered: 250 });
  });

  it('of many partitions is written to 32 at once, and asked no more when all of those were refused', async () => {
    world.statuses.set(T, { kind: 'writable', partitions: 500, onProbation: false });
    let [now, most] = [0, 0];
    world.respond = () => {
      now += 1;
      most = Math.max(most, now);
      return world.runtime.sleep(1).then(() => {
        now -= 1;
      }) as Promise<never>;
    };
    const spread = replies(500, (i) => ({ partition: i }));
    expect([await sentIn(spread), most]).toEqual([expect.objectContaining({ appends: 500, delivered: 500 }), 32]);
    world.respond = () => 'MESSAGE_TOO_LARGE';
    expect(await sentIn(spread)).toMatchObject({ appends: 32, delivered: 0 });
  });

  const isOdd = ({ key }: { readonly key: Buffer | null }) => Number(String(key).slice(1)) % 2 === 1;
});

describe('an error that is in no table', () => {
  it('is of the topic if its broker takes the records of others meanwhile', async () => {
    world.respond = ({ topic }) => (topic === 'odd' ? 'POLICY_VIOLATION' : undefined);
    const outcomes = world.outcomes([record('a', { topic: 'odd' }), record('b')]);
    expect(await outcomes).toEqual(['topic odd refused the record: POLICY_VIOLATION', true]);
    expect(world.unwritable.get('odd')).toContain('POLICY_VIOLATION');
  });

  it("is the brokers' if no other topic is written to", async () => {
    world.respond = () => 'POLICY_VIOLATION';
    await expect(world.outcomes([record('a')])).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
  });
});

describe('publications to one partition', () => {
  /** Publications by the IDs of their records, each a part of its own; resolves to their outcomes. */
  const publishAll = (parts: readonly (readonly string[])[], fields: Partial<OutgoingRecord> = {}) => {
    const records = parts.map((ids) => ids.map((id) => record(id, { partition: 0, ...fields })));
    return world.runtime.until(Promise.all(records.map((some, part) => world.publisher.publish(some, part))));
  };

  it('share an append, in order', async () => {
    const deliveries = await publishAll([['a', 'b'], ['c'], ['d', 'e']]);
    expect(world.sends.map(idsOf)).toEqual([['a', 'b', 'c', 'd', 'e']]);
    expect(deliveries.map((some) => some.map(({ ok }) => ok))).toEqual([[true, true], [true], [true, true]]);
  });

  it('wait for the append in progress, and share the next one', async () => {
    const later: Promise<unknown>[] = [];
    world.respond = () => {
      if (world.sends.length > 1) return undefined;
      later.push(publishAll([['b']]), publishAll([['c']]));
      return world.runtime.sleep(5) as Promise<never>;
    };
    await publishAll([['a']]);
    await Promise.all(later);
    expect(world.sends.map(idsOf)).toEqual([['a'], ['b', 'c']]);
  });

  it('fail alone by a record that the topic refuses', async () => {
    world.respond = (send) => (idsOf(send).includes('bad') ? 'MESSAGE_TOO_LARGE' : undefined);
    const deliveries = await publishAll([['a'], ['b', 'bad'], ['c']]);
    expect(deliveries.map((some) => some.map(({ ok }) => ok))).toEqual([[true], [true, false], [true]]);
    expect(world.sends.filter((send) => !idsOf(send).includes('bad')).map(idsOf)).toEqual([['a'], ['c'], ['b']]);
  });

  it('have a time limit that counts the wait for the append before theirs', async () => {
    world.respond = () => (world.sends.length === 1 ? (world.runtime.sleep(6_000) as Promise<never>) : undefined);
    await world.runtime.until(
      Promise.all(['a', 'b'].map((id, turn) => world.runtime.sleep(turn).then(() => publishAll([[id]])))),
    );
    expect(world.limitsMs).toEqual([APPEND_TIMEOUT_MS, APPEND_TIMEOUT_MS - 5_999]);
  });

  it('leave nothing behind for partitions that are no longer written to', async () => {
    const busy = Promise.withResolvers<never>();
    world.respond = ({ topic }) => (topic === 'busy' ? busy.promise : undefined);
    const publishBusy = () =>
      void world.publisher.publish([record('a', { topic: 'busy', partition: 0 })], 0).catch(() => undefined);
    publishBusy();
    const before = queryObjects(AppendQueue, { format: 'count' });
    for (let i = 0; i < 4_500; i++) await world.outcomes([record('a', { topic: `${T}-${i}` })]);
    const added = queryObjects(AppendQueue, { format: 'count' }) - before;
    expect(added, 'many are dropped at a time, which leaves less garbage').toBeGreaterThan(100);
    expect(added).toBeLessThanOrEqual(2_000);
    publishBusy();
    await world.outcomes([record('b')]);
    expect(
      world.sends.filter(({ topic }) => topic === 'busy'),
      'it still waits for the append in progress',
    ).toHaveLength(1);
  });

  it('of forwarded requests share no batch of more than 500, which may be dense', async () => {
    const ids = (from: number) => Array.from({ length: 260 }, (_, i) => `f${from + i}`);
    await publishAll([ids(0), ids(260), ids(520)], { topic: REQUESTS });
    expect(world.sends.map(({ records }) => records.length)).toEqual([260, 260, 260]);
  });
});

describe('on simulated brokers', () => {
  const stage = new LoopStage({ nodes: 3 });
  const topics = new ReplyTopics(stage.cluster, stage.runtime);
  const publisher = new KafkaPublisher({
    cluster: stage.cluster,
    runtime: stage.runtime,
    topics,
    purpose: 'publish',
    requestTopic: REQUESTS,
  });
  const send = async (topic: string, ...partitions: number[]) => {
    const records = partitions.map((partition) => record('a', { topic, partition }));
    const deliveries = await stage.runtime.until(publisher.publish(records, 0));
    return deliveries.map((delivery) => delivery.ok || delivery.reason);
  };

  afterAll(() => stage.close());

  it('records to a deleted topic fail, and succeed when it is back', async () => {
    stage.kafka.cluster.createTopic('comes');
    expect(await send('comes', 0)).toEqual([true]);
    stage.kafka.cluster.deleteTopic('comes');
    expect(await send('comes', 0)).toEqual([expect.stringMatching(/does not exist|UNKNOWN_TOPIC/)]);
    stage.kafka.cluster.createTopic('comes');
    await stage.pass(10_000);
    expect(await send('comes', 0)).toEqual([true]);
  });

  it('records to a topic recreated with fewer partitions go to existing partitions', async () => {
    stage.kafka.cluster.createTopic('shrinks', { partitions: 3 });
    expect(await send('shrinks', 0, 1, 2)).toEqual([true, true, true]);
    stage.kafka.cluster.deleteTopic('shrinks');
    stage.kafka.cluster.createTopic('shrinks', { partitions: 1 });
    expect(await send('shrinks', 0, 2)).toEqual([true, 'topic shrinks has no partition 2: it has 1']);
  });

  it('a frozen broker delays replies by an election, and loses none', async () => {
    stage.kafka.cluster.createTopic('lasts', { partitions: 3 });
    await send('lasts', 0, 1, 2);
    stage.kafka.cluster.freeze(1);
    const beganMs = stage.runtime.monotonicMs();
    expect(await send('lasts', 0, 1, 2)).toEqual([true, true, true]);
    expect(stage.runtime.monotonicMs() - beganMs).toBeLessThan(15_000);
    stage.kafka.cluster.thaw(1);
  });
});

test('of many topics that refused something at most a thousand are remembered, the last one among them', () => {
  const topics = new RecentTopics<true>(new VirtualRuntime(), 60_000);
  const names = Array.from({ length: 2_500 }, (_, i) => `t${i}`);
  for (const name of names) {
    topics.set(name, true);
    expect(topics.get(name)).toBe(true);
  }
  expect(names.filter((name) => topics.get(name) === true).length).toBeLessThanOrEqual(1_000);
});

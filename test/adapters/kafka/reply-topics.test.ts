import { describe, expect, it, test } from 'vitest';
import { ReplyTopics } from '../../../src/adapters/kafka/reply-topics.ts';
import { KafkaError } from '../../../src/kafka/wire/kafka-error.ts';
import type { MetadataResponse, TopicMetadata } from '../../../src/kafka/wire/topic-apis.ts';

type Found = number | string | readonly number[];

/** Brokers with topics: a number is a partition count, a list the leaders, a string the fault. */
function brokers(known: Record<string, Found>) {
  const asked: string[] = [];
  const state = { nowMs: 0, silent: false };
  const metadataForUse = async (topics: readonly string[]): Promise<MetadataResponse> => {
    asked.push([...topics].join(' '));
    if (state.silent) throw new KafkaError('NO_RESPONSE', 'no broker answers');
    const found = [...topics].map((name) => describeTopic(name, known[name]));
    return { throttleMs: 0, clusterId: 'c', controllerId: 1, brokers: [], topics: found };
  };
  return { topics: new ReplyTopics({ metadataForUse }, { monotonicMs: () => state.nowMs }), asked, state };
}

function describeTopic(name: string, found: Found = 'UNKNOWN_TOPIC_OR_PARTITION'): TopicMetadata {
  if (typeof found === 'string') return { name, errorCode: found, partitions: [] };
  const leaders = typeof found === 'number' ? Array<number>(found).fill(1) : found;
  return { name, partitions: leaders.map((leader, partition) => ({ partition, leader, replicas: [1], inSync: [1] })) };
}

describe('a reply topic', () => {
  it('exists unless the brokers do not show it, whether it can be written or not', async () => {
    const { topics } = brokers({
      t: 3,
      none: 'UNKNOWN_TOPIC_OR_PARTITION',
      hidden: 'TOPIC_AUTHORIZATION_FAILED',
      moving: [-1],
    });
    const names = ['t', 'none', 'hidden', 'moving'];
    expect(await Promise.all(names.map((name) => topics.exists(name)))).toEqual([true, false, false, true]);
    topics.markUnwritable('t', 'it refused a record');
    expect(await topics.exists('t')).toBe(true);
  });

  it('is known from the first look-up that has found it', async () => {
    const { topics } = brokers({ t: 3, moving: [-1] });
    const known = () => ['t', 'moving', 'none'].map((name) => topics.isKnown(name));
    expect(known()).toEqual([false, false, false]);
    await Promise.all(['t', 'moving', 'none'].map((name) => topics.exists(name)));
    expect(known()).toEqual([true, true, false]);
  });
});

describe('the status of a reply topic', () => {
  it('is looked up in one call with those of the other topics that are asked for in the same turn', async () => {
    const { topics, asked } = brokers({ t: 3, u: 2 });
    const found = await Promise.all(['t', 'none', 'u', 't'].map((name) => topics.status(name)));
    expect(found.map(({ kind }) => kind)).toEqual(['writable', 'unwritable', 'writable', 'writable']);
    await topics.status('later');
    expect(asked).toEqual(['t none u', 'later']);
  });

  test.each([
    ['UNKNOWN_TOPIC_OR_PARTITION', /does not exist/],
    ['INVALID_TOPIC_EXCEPTION', /does not exist/],
    ['TOPIC_AUTHORIZATION_FAILED', /may not describe/],
  ])('is unwritable for %s', async (errorCode, reason) => {
    const { topics } = brokers({ t: errorCode });
    expect(await topics.status('t')).toMatchObject({ kind: 'unwritable', reason: expect.stringMatching(reason) });
  });

  it('is cached for a minute; that of a missing topic for 2 s', async () => {
    const { topics, asked, state } = brokers({ t: 3 });
    for (state.nowMs of [0, 59_999, 60_000]) await topics.status('t');
    expect(asked).toEqual(['t', 't']);
    for (const later of [0, 1_999, 2_000]) {
      state.nowMs = 100_000 + later;
      await topics.status('gone');
    }
    expect(asked.slice(2)).toEqual(['gone', 'gone']);
  });

  it('is looked up again for a partition that the topic lacked, at most every 2 s', async () => {
    const known: Record<string, Found> = { t: 1 };
    const { topics, asked, state } = brokers(known);
    const partitionsAt = async (nowMs: number, partition: number) => {
      state.nowMs = nowMs;
      return topics.status('t', partition);
    };
    await partitionsAt(0, 0);
    known.t = 2;
    expect(await partitionsAt(1_999, 1)).toMatchObject({ partitions: 1 });
    expect(await partitionsAt(2_000, 1)).toMatchObject({ partitions: 2 });
    expect(await partitionsAt(50_000, 1)).toMatchObject({ partitions: 2 });
    expect(asked).toHaveLength(2);
    for (let ms = 50_000; ms < 54_000; ms += 10) await partitionsAt(ms, 1_000_000);
    expect(asked).toHaveLength(4);
  });

  it('is requested once for concurrent callers', async () => {
    const { topics, asked } = brokers({ t: 3 });
    const statuses = await Promise.all(Array.from({ length: 12 }, () => topics.status('t')));
    expect([asked, new Set(statuses).size]).toEqual([['t'], 1]);
  });

  it('keeps the time at which the leader was lost, however often it is requested and doubted', async () => {
    const known: Record<string, Found> = { t: 'LEADER_NOT_AVAILABLE' };
    const { topics, state } = brokers(known);
    for (state.nowMs of [100, 400, 5_000]) {
      expect(await topics.status('t')).toEqual({ kind: 'leaderless', sinceMs: 100 });
      topics.invalidate('t');
    }
    known.t = 2;
    state.nowMs += 300;
    expect(await topics.status('t')).toEqual({ kind: 'writable', partitions: 2, onProbation: false });
    known.t = [1, -1];
    topics.invalidate('t');
    expect(await topics.status('t')).toEqual({ kind: 'leaderless', sinceMs: 5_300 });
  });

  it('is unwritable for 10 s after it was marked so, then on probation until it is cleared', async () => {
    const { topics, state } = brokers({ t: 2 });
    topics.markUnwritable('t', 'denied');
    state.nowMs = 9_999;
    expect(await topics.status('t')).toEqual({ kind: 'unwritable', reason: 'denied' });
    state.nowMs = 10_000;
    expect(await topics.status('t')).toMatchObject({ kind: 'writable', onProbation: true });
    topics.invalidate('t');
    expect(await topics.status('t')).toMatchObject({ kind: 'writable', onProbation: true });
    topics.clear('t');
    expect(await topics.status('t')).toMatchObject({ kind: 'writable', onProbation: false });
  });

  it('is an error while the brokers do not answer, and is requested again then', async () => {
    const { topics, state } = brokers({ t: 1 });
    state.silent = true;
    await expect(topics.status('t')).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    state.silent = false;
    expect(await topics.status('t')).toMatchObject({ kind: 'writable' });
  });

  it('stays cached, however many others are named that do not exist', async () => {
    const { topics, asked } = brokers({ t: 3 });
    await topics.status('t');
    for (let i = 0; i <= 1_000; i += 1) await topics.status(`none${i}`);
    asked.length = 0;
    await topics.status('t');
    expect(asked).toEqual([]);
  });

  it('is cached for a bounded number of topics, since requests may name any', async () => {
    const { topics, asked } = brokers({});
    for (let i = 0; i <= 1_000; i += 1) await topics.status(`t${i}`);
    await topics.status('t1000');
    await topics.status('t0');
    expect(asked.slice(1_001)).toEqual(['t0']);
  });

  /** Names so many topics that exist, in parts of 500; returns how many calls that takes, and for how many topics. */
  async function named({ topics, asked }: ReturnType<typeof brokers>, count: number) {
    asked.length = 0;
    for (let from = 0; from < count; from += 500)
      await Promise.all(Array.from({ length: 500 }, (_, i) => topics.status(`t${from + i}`)));
    return { calls: asked.length, of: asked.join(' ').split(' ').filter(Boolean).length };
  }
  const existing = (count: number) =>
    brokers(Object.fromEntries(Array.from({ length: count }, (_, i) => [`t${i}`, 1])));

  it('is looked up once a minute, though thousands of topics are named in turn', async () => {
    const world = existing(10_000);
    expect(await named(world, 10_000)).toEqual({ calls: 20, of: 10_000 });
    for (world.state.nowMs of [10_000, 59_000]) expect(await named(world, 10_000)).toEqual({ calls: 0, of: 0 });
    world.state.nowMs = 60_000;
    expect(await named(world, 10_000)).toEqual({ calls: 20, of: 10_000 });
  });

  it('is looked up each time for the topics alone that find no room, until others have expired', async () => {
    const world = existing(12_000);
    for (world.state.nowMs of [0, 10_000, 59_000]) await named(world, 12_000);
    expect(await named(world, 12_000)).toEqual({ calls: 4, of: 2_000 });
    expect(await world.topics.status('t11999')).toMatchObject({ kind: 'writable' });
    world.topics.markUnwritable('t11999', 'denied');
    expect(await world.topics.status('t11999'), 'what is not only metadata finds room').toMatchObject({
      reason: 'denied',
    });
  });
});

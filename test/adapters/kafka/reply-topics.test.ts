import type { Admin, Kafka, Producer } from 'kafkajs';
import { describe, expect, it, test } from 'vitest';
import { ReplyProducers } from '../../../src/adapters/kafka/reply-producers.ts';
import { ReplyTopics } from '../../../src/adapters/kafka/reply-topics.ts';

function fault(type: string): Error {
  return Object.assign(new Error(type), { type });
}

/** An admin client that knows topics by name; a number is a partition count, a text the broker's fault. */
function cluster(topics: Record<string, number | string>) {
  const asked: string[] = [];
  const state = { nowMs: 0, connects: 0, refuseConnects: 0 };
  const admin = {
    connect: async () => {
      state.connects += 1;
      if (state.refuseConnects-- > 0) throw new Error('refused');
    },
    disconnect: async () => {},
    fetchTopicMetadata: async ({ topics: [name = ''] }: { topics: string[] }) => {
      asked.push(name);
      const found = topics[name] ?? 'UNKNOWN_TOPIC_OR_PARTITION';
      if (typeof found === 'string') throw fault(found);
      return { topics: [{ name, partitions: Array.from({ length: found }) }] };
    },
  } as unknown as Admin;
  const kafka = { admin: () => admin } as unknown as Pick<Kafka, 'admin'>;
  return { topics: new ReplyTopics(kafka, () => state.nowMs), asked, state };
}

describe('the standing of a reply topic', () => {
  test.each([
    ['UNKNOWN_TOPIC_OR_PARTITION', /does not exist/],
    ['INVALID_TOPIC_EXCEPTION', /does not exist/],
    ['TOPIC_AUTHORIZATION_FAILED', /may not be described/],
  ])('is bad for %s', async (type, reason) => {
    const { topics } = cluster({ t: type });
    expect(await topics.standing('t')).toMatchObject({ kind: 'bad', reason: expect.stringMatching(reason) });
  });

  it('is believed for a minute; a missing one is asked for again after 2 s', async () => {
    const { topics, asked, state } = cluster({ t: 3 });
    for (state.nowMs of [0, 59_999, 60_000]) await topics.standing('t');
    expect(asked).toEqual(['t', 't']);
    for (const later of [0, 1_999, 2_000]) {
      state.nowMs = 100_000 + later;
      await topics.standing('gone');
    }
    expect(asked.slice(2)).toEqual(['gone', 'gone']);
  });

  it('tells since when there is no leader, however often it was asked and doubted', async () => {
    const faults: Record<string, number | string> = { t: 'LEADER_NOT_AVAILABLE' };
    const { topics, state } = cluster(faults);
    for (state.nowMs of [100, 400, 5_000]) {
      expect(await topics.standing('t')).toEqual({ kind: 'leaderless', sinceMs: 100 });
      topics.doubt('t');
    }
    faults.t = 2;
    state.nowMs += 300;
    expect(await topics.standing('t')).toEqual({ kind: 'well', partitions: 2, onProbation: false });
    faults.t = 'LEADER_NOT_AVAILABLE';
    topics.doubt('t');
    expect(await topics.standing('t')).toEqual({ kind: 'leaderless', sinceMs: 5_300 });
  });

  it('is bad for 10 s after an accusation, and on probation until it is acquitted', async () => {
    const { topics, state } = cluster({ t: 2 });
    topics.accuse('t', 'denied');
    state.nowMs = 9_999;
    expect(await topics.standing('t')).toEqual({ kind: 'bad', reason: 'denied' });
    state.nowMs = 10_000;
    expect(await topics.standing('t')).toMatchObject({ kind: 'well', onProbation: true });
    topics.doubt('t');
    expect(await topics.standing('t')).toMatchObject({ kind: 'well', onProbation: true });
    topics.acquit('t');
    expect(await topics.standing('t')).toMatchObject({ kind: 'well', onProbation: false });
  });

  it('is not known while the brokers do not answer, and is asked for again then', async () => {
    const { topics, state } = cluster({ t: 'REQUEST_TIMED_OUT', u: 1 });
    await expect(topics.standing('t')).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    const away = cluster({ u: 1 });
    away.state.refuseConnects = 1;
    await expect(away.topics.standing('u')).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    expect(await away.topics.standing('u')).toMatchObject({ kind: 'well' });
    expect([away.state.connects, state.connects]).toEqual([2, 1]);
    await Promise.all([topics.close(), away.topics.close()]);
  });

  it('is remembered for a bounded number of topics, which requests may name at will', async () => {
    const { topics, asked } = cluster({});
    for (let i = 0; i <= 1_000; i += 1) await topics.standing(`t${i}`);
    await topics.standing('t1000');
    await topics.standing('t0');
    expect(asked.slice(1_001)).toEqual(['t0']);
  });
});

/** Producers that count themselves. */
function factory() {
  const events: string[] = [];
  let made = 0;
  const kafka = {
    producer: () => {
      made += 1;
      const id = made;
      return {
        connect: async () => void events.push(`connect ${id}`),
        disconnect: async () => void events.push(`disconnect ${id}`),
        id,
      };
    },
  } as unknown as Pick<Kafka, 'producer'>;
  const idOf = async (producer: Producer) => (producer as unknown as { id: number }).id;
  return { producers: new ReplyProducers(kafka), events, idOf };
}

describe('producers for topics of others', () => {
  it('are one for all topics while there is no fault', async () => {
    const { producers, events, idOf } = factory();
    expect(await Promise.all([producers.shared('a', idOf), producers.shared('b', idOf)])).toEqual([1, 1]);
    await producers.close();
    expect(events).toEqual(['connect 1', 'disconnect 1']);
  });

  it('are replaced after a fault; who is still at it finishes first', async () => {
    const { producers, events, idOf } = factory();
    const { promise, resolve } = Promise.withResolvers<void>();
    const slow = producers.shared('a', () => promise);
    await expect(producers.shared('b', () => Promise.reject(new Error('x')))).rejects.toThrow('x');
    expect(await producers.shared('a', idOf)).toBe(2);
    expect(events).toEqual(['connect 1', 'connect 2']);
    resolve();
    await slow;
    await producers.close();
    expect(events.slice(2).sort()).toEqual(['disconnect 1', 'disconnect 2']);
  });

  it('are one for a topic in doubt, and closed after it', async () => {
    const { producers, events, idOf } = factory();
    await producers.shared('a', idOf);
    expect(await producers.alone(idOf)).toBe(2);
    await expect(producers.alone(() => Promise.reject(new Error('x')))).rejects.toThrow('x');
    expect(await producers.shared('a', idOf)).toBe(1);
    await producers.close();
    expect(events.filter((event) => event.startsWith('disconnect')).sort()).toEqual([
      'disconnect 1',
      'disconnect 2',
      'disconnect 3',
    ]);
  });

  it('are replaced when they have had many topics, all of which they ask about at once', async () => {
    const { producers, idOf } = factory();
    for (let i = 0; i < 256; i += 1) expect(await producers.shared(`t${i}`, idOf)).toBe(1);
    expect(await producers.shared('t0', idOf)).toBe(1);
    expect(await producers.shared('t256', idOf)).toBe(2);
    await producers.close();
  });
});

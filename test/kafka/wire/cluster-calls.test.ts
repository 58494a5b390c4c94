import { describe, expect, test } from 'vitest';
import type { Cluster } from '../../../src/kafka/wire/cluster.ts';
import { KafkaError, kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { BrokerLink } from '../../../src/kafka/wire/port.ts';
import { ScriptedBrokers } from './scripted-brokers.ts';

const beat = (link: BrokerLink) => link.call('heartbeat', { groupId: 'g', generation: 1, memberId: 'm' });
const errorCode = (call: Promise<unknown>) => call.then(() => 'answered', kafkaErrorCode);

/** Brokers with cached metadata and a connection to node 1. */
async function stage(nodes = 1): Promise<{ brokers: ScriptedBrokers; cluster: Cluster }> {
  const brokers = new ScriptedBrokers(nodes);
  const cluster = brokers.cluster();
  await brokers.runtime.until(cluster.metadata([]));
  return { brokers, cluster };
}

describe('a call', () => {
  test('fails with NO_RESPONSE at its deadline, and its connection is closed', async () => {
    const { brokers, cluster } = await stage();
    const { runtime } = brokers;
    await runtime.until(cluster.call(1, 'append', 1_000, beat));
    brokers.set(1, 'frozen');
    const [openBefore, startMs] = [brokers.open, runtime.monotonicMs()];
    expect(await runtime.until(errorCode(cluster.call(1, 'append', 1_000, beat)))).toBe('NO_RESPONSE');
    expect(runtime.monotonicMs() - startMs).toBe(1_000);
    expect(brokers.open).toBe(openBefore - 1);
  });

  test('fails with UNREACHABLE if its connection is still opening at the deadline, and is not sent later', async () => {
    const { brokers, cluster } = await stage();
    brokers.dialMs = 2_000;
    const [late, patient] = [cluster.call(1, 'append', 1_000, beat), cluster.call(1, 'append', 4_000, beat)];
    expect(await brokers.runtime.until(Promise.all([errorCode(late), errorCode(patient)]))).toEqual([
      'UNREACHABLE',
      'answered',
    ]);
    expect(brokers.callsOf('heartbeat')).toHaveLength(1);
  });

  test('shares its dial with concurrent calls, and its connection with later ones', async () => {
    const { brokers, cluster } = await stage();
    const before = brokers.dials.length;
    const calls = () => Promise.all([cluster.call(1, 'append', 1_000, beat), cluster.call(1, 'append', 1_000, beat)]);
    await brokers.runtime.until(calls());
    await brokers.runtime.until(calls());
    expect(brokers.dials.length).toBe(before + 1);
    expect(brokers.callsOf('heartbeat')).toHaveLength(4);
    await brokers.runtime.until(cluster.call(1, 'publish', 1_000, beat));
    expect(brokers.dials.length).toBe(before + 2);
  });

  test('is never repeated, however it ends', async () => {
    const { brokers, cluster } = await stage(2);
    for (const name of ['CONNECTION_LOST', 'NOT_LEADER_FOR_PARTITION', 'MALFORMED_RESPONSE']) {
      let made = 0;
      const refuse = async () => {
        made += 1;
        throw new KafkaError(name, 'an error from the test');
      };
      expect(await brokers.runtime.until(errorCode(cluster.call(1, 'append', 1_000, refuse)))).toBe(name);
      expect(made).toBe(1);
    }
    brokers.set(1, 'frozen');
    const before = brokers.callsOf('heartbeat').length;
    await brokers.runtime.until(errorCode(cluster.call(1, 'append', 1_000, beat)));
    await brokers.runtime.until(brokers.runtime.sleep(5_000));
    expect(brokers.callsOf('heartbeat').length).toBe(before + 1);
  });

  test('whose connection ends fails alone: the next call opens another connection', async () => {
    const { brokers, cluster } = await stage();
    const { runtime } = brokers;
    await runtime.until(cluster.call(1, 'append', 1_000, beat));
    brokers.set(1, 'down');
    expect(await runtime.until(errorCode(cluster.call(1, 'append', 1_000, beat)))).toBe('UNREACHABLE');
    brokers.set(1, 'healthy');
    expect(await runtime.until(errorCode(cluster.call(1, 'append', 1_000, beat)))).toBe('answered');
  });

  test('to an unknown node is rejected after a metadata request', async () => {
    const { brokers, cluster } = await stage();
    expect(await brokers.runtime.until(errorCode(cluster.call(7, 'append', 1_000, beat)))).toBe('UNREACHABLE');
    expect(brokers.callsOf('metadata').length).toBe(2);
  });
});

test('a call to a node that has joined the cluster since the last metadata is sent to its address', async () => {
  const brokers = new ScriptedBrokers(2);
  brokers.set(2, 'gone');
  const cluster = brokers.cluster();
  await brokers.runtime.until(cluster.metadata([]));
  brokers.set(2, 'healthy');
  expect(await brokers.runtime.until(errorCode(cluster.call(2, 'append', 1_000, beat)))).toBe('answered');
  expect(brokers.callsOf('heartbeat').map(({ node }) => node)).toEqual([2]);
});

describe('a broker that throttles this client', () => {
  test('gets no call on that purpose until the throttle ends, by the monotonic clock', async () => {
    const { brokers, cluster } = await stage();
    const { runtime } = brokers;
    brokers.throttleMs = 3_000;
    await runtime.until(cluster.call(1, 'append', 1_000, beat));
    const answeredMs = runtime.monotonicMs();
    brokers.throttleMs = 0;
    await runtime.until(Promise.all([cluster.call(1, 'append', 9_000, beat), cluster.call(1, 'publish', 9_000, beat)]));
    const sent = brokers.callsOf('heartbeat').map(({ atMs }) => atMs - answeredMs);
    expect(sent[1]).toBeLessThan(10); // another connection, which it does not hold up
    expect(sent[2]).toBe(3_000);
  });

  test('for longer than the deadline: the call is never sent, and the broker is not suspect', async () => {
    const { brokers, cluster } = await stage();
    const { runtime } = brokers;
    brokers.throttleMs = 3_000;
    await runtime.until(cluster.call(1, 'append', 1_000, beat));
    const startMs = runtime.monotonicMs();
    expect(await runtime.until(errorCode(cluster.call(1, 'append', 1_000, beat)))).toBe('NO_RESPONSE');
    expect(runtime.monotonicMs() - startMs).toBe(1_000);
    expect(brokers.callsOf('heartbeat')).toHaveLength(1);
    expect(brokers.log.filter(({ level }) => level === 'warn')).toEqual([]);
  });
});

describe('connections', () => {
  test('to a broker that left the metadata are closed, and none is opened for a waiting call', async () => {
    const { brokers, cluster } = await stage(2);
    const { runtime } = brokers;
    brokers.throttleMs = 2_000;
    await runtime.until(cluster.call(1, 'requests', 1_000, beat));
    brokers.throttleMs = 0;
    const waiting = errorCode(cluster.call(1, 'requests', 9_000, beat));
    brokers.set(1, 'gone');
    await runtime.until(cluster.metadata([]));
    await runtime.until(runtime.nextTurn());
    expect(brokers.open).toBe(1); // to the other broker
    expect(await runtime.until(waiting)).toBe('UNREACHABLE');
    expect(brokers.open).toBe(1);
  });

  test('are closed when they were idle: a minute, 5 s for joining, never for reading records', async () => {
    const { brokers, cluster } = await stage();
    const { runtime } = brokers;
    const purposes = ['append', 'group', 'requests', 'ledger'] as const;
    await runtime.until(Promise.all(purposes.map((purpose) => cluster.call(1, purpose, 1_000, beat))));
    expect(brokers.open).toBe(5); // and control
    await runtime.until(runtime.sleep(5_500));
    expect(brokers.open).toBe(4);
    await runtime.until(cluster.call(1, 'append', 1_000, beat));
    await runtime.until(runtime.sleep(56_000));
    expect(brokers.open).toBe(3); // append was used later than control
    await runtime.until(runtime.sleep(5_000));
    expect(brokers.open).toBe(2);
    await runtime.until(runtime.sleep(600_000));
    expect(brokers.open).toBe(2);
  });

  test('to a silent broker are given up after 5 s, or with the last waiting call', async () => {
    const { brokers, cluster } = await stage();
    const { runtime } = brokers;
    brokers.set(1, 'frozen');
    const before = brokers.open;
    expect(await runtime.until(errorCode(cluster.call(1, 'append', 60_000, beat)))).toBe('UNREACHABLE');
    expect(runtime.monotonicMs()).toBeLessThan(5_100);
    expect(brokers.open).toBe(before);
    const calls = [cluster.call(1, 'append', 100, beat), cluster.call(1, 'append', 300, beat)];
    await runtime.until(Promise.all(calls.map(errorCode)));
    await runtime.until(runtime.nextTurn());
    expect(brokers.open).toBe(before);
  });
});

describe('close', () => {
  test('rejects pending dials and calls with CLOSED, and leaves no socket and no timer', async () => {
    const { brokers, cluster } = await stage(3);
    const { runtime } = brokers;
    brokers.topics.set('t', { leaders: [1] });
    await runtime.until(cluster.leader('t', 0));
    await runtime.until(cluster.call(1, 'append', 1_000, beat));
    brokers.throttleMs = 60_000;
    await runtime.until(cluster.call(3, 'append', 1_000, beat));
    brokers.set(1, 'frozen');
    brokers.set(2, 'frozen');
    const under = [
      cluster.call(1, 'append', 9_000, beat),
      cluster.call(2, 'append', 9_000, beat),
      cluster.call(3, 'append', 90_000, beat),
      cluster.metadata(['t']),
      cluster.leader('elsewhere', 0),
      cluster.coordinator('g'),
    ].map(errorCode);
    await runtime.until(runtime.sleep(10));
    cluster.markStale('t');
    await runtime.until(cluster.close());
    expect(new Set(await runtime.until(Promise.all(under)))).toEqual(new Set(['CLOSED']));
    expect(brokers.open).toBe(0);
    const calls = brokers.calls.length;
    for (const late of [
      () => cluster.call(1, 'append', 1_000, beat),
      () => cluster.call(7, 'append', 1_000, beat),
      () => cluster.metadata([]),
      () => cluster.leader('t', 0),
      () => cluster.partitions('t'),
      () => cluster.coordinator('g'),
    ]) {
      expect(await runtime.until(errorCode(late()))).toBe('CLOSED');
    }
    cluster.markStale('t');
    await runtime.until(runtime.sleep(10)); // pending answers of the scripted brokers also have timers
    expect([brokers.calls.length, runtime.pending]).toEqual([calls, 0]);
  });
});

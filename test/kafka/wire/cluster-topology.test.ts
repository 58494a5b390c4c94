import { describe, expect, test } from 'vitest';
import type { Cluster } from '../../../src/kafka/wire/cluster.ts';
import { KafkaError, kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { BrokerLink } from '../../../src/kafka/wire/port.ts';
import { ScriptedBrokers } from './scripted-brokers.ts';

const beat = (link: BrokerLink) => link.call('heartbeat', { groupId: 'g', generation: 1, memberId: 'm' });
const errorCode = (call: Promise<unknown>) => call.then(() => 'answered', kafkaErrorCode);

function stage(nodes: number, topics: Readonly<Record<string, number>> = {}) {
  const brokers = new ScriptedBrokers(nodes);
  for (const [topic, leader] of Object.entries(topics)) brokers.topics.set(topic, { leaders: [leader] });
  return { brokers, cluster: brokers.cluster(), runtime: brokers.runtime };
}

/** Calls the leader as a loop does, until it answers; resolves with its node ID. */
async function callLeader(cluster: Cluster, topic: string, timeoutMs: number): Promise<number> {
  for (;;) {
    try {
      const node = await cluster.leader(topic, 0, timeoutMs);
      await cluster.call(node, 'append', timeoutMs, beat);
      return node;
    } catch (error) {
      if (kafkaErrorCode(error) === undefined) throw error;
    }
  }
}

/** The topics of each request for metadata. */
function topicsOf(brokers: ScriptedBrokers): unknown[] {
  return brokers.callsOf('metadata').map(({ topics }) => topics);
}

/** How often something happened within each second. */
function perSecond(times: readonly number[], fromMs: number, seconds: number): number {
  return times.filter((atMs) => atMs >= fromMs && atMs < fromMs + seconds * 1_000).length / seconds;
}

describe('a silent leader', () => {
  test('is known with the time since the first call that it did not answer, until it answers one', async () => {
    const { brokers, cluster, runtime } = stage(2, { t: 1 });
    await runtime.until(callLeader(cluster, 't', 2_000));
    await runtime.until(runtime.sleep(5_000));
    expect(cluster.silence('t', 0), 'nobody has called it').toBeUndefined();
    brokers.set(1, 'frozen');
    for (const purpose of ['append', 'publish', 'requests'] as const) {
      await runtime.until(errorCode(cluster.call(1, purpose, 2_000, beat)));
      await runtime.until(runtime.sleep(1_000));
    }
    expect(cluster.silence('t', 0)).toMatchObject({ node: 1, milliseconds: 9_000 });
    expect([cluster.silence('t', 1), cluster.silence('other', 0)]).toEqual([undefined, undefined]);
    brokers.set(1, 'healthy');
    await runtime.until(cluster.call(1, 'append', 2_000, beat));
    expect(cluster.silence('t', 0)).toBeUndefined();
  });

  test('is skipped as soon as another broker names the new leader', async () => {
    const { brokers, cluster, runtime } = stage(2, { t: 1 });
    await runtime.until(callLeader(cluster, 't', 2_000));
    brokers.set(1, 'frozen');
    brokers.topics.set('t', { leaders: [2] });
    const [startMs, dials] = [runtime.monotonicMs(), brokers.dials.length];
    expect(await runtime.until(callLeader(cluster, 't', 2_000))).toBe(2);
    expect(runtime.monotonicMs() - startMs).toBeLessThan(2_100); // one deadline; the rest takes no time
    expect(brokers.dials.slice(dials).map(({ node }) => node)).not.toContain(1);
  });

  test('is skipped even if it is the only broker with a connection, and so is called first', async () => {
    const { brokers, cluster, runtime } = stage(2, { t: 1 });
    brokers.set(2, 'down');
    await runtime.until(callLeader(cluster, 't', 2_000));
    brokers.set(1, 'frozen');
    brokers.set(2, 'healthy');
    brokers.topics.set('t', { leaders: [2] });
    const startMs = runtime.monotonicMs();
    cluster.markStale('t');
    expect(await runtime.until(callLeader(cluster, 't', 10_000))).toBe(2);
    expect(runtime.monotonicMs() - startMs).toBeLessThan(600);
  });

  test('delays no call to its deadline once it is known to lead nothing', async () => {
    const { brokers, cluster, runtime } = stage(2, { t: 1 });
    await runtime.until(callLeader(cluster, 't', 2_000));
    brokers.set(1, 'frozen');
    const startMs = runtime.monotonicMs();
    const short = errorCode(cluster.call(1, 'publish', 1_000, beat));
    const long = errorCode(cluster.call(1, 'append', 60_000, beat));
    expect(await runtime.until(short)).toBe('UNREACHABLE');
    brokers.topics.set('t', { leaders: [2] });
    expect(await runtime.until(long)).toBe('CONNECTION_LOST');
    expect(runtime.monotonicMs() - startMs).toBeLessThan(1_700);
  });

  test('is called again when the others still name it', async () => {
    const { brokers, cluster, runtime } = stage(2, { t: 1 });
    await runtime.until(callLeader(cluster, 't', 2_000));
    brokers.set(1, 'frozen');
    const asking = callLeader(cluster, 't', 2_000);
    await runtime.until(runtime.sleep(7_000));
    brokers.set(1, 'healthy');
    expect(await runtime.until(asking)).toBe(1);
  });

  test('is logged once in 10 s, and again when it answers', async () => {
    const { brokers, cluster, runtime } = stage(1, { t: 1 });
    await runtime.until(callLeader(cluster, 't', 500));
    brokers.set(1, 'frozen');
    const asking = callLeader(cluster, 't', 500);
    await runtime.until(runtime.sleep(19_000));
    brokers.set(1, 'healthy');
    await runtime.until(asking);
    const warnings = brokers.log.filter(({ level }) => level === 'warn');
    expect(warnings.map(({ message, broker }) => [message, broker])).toEqual([
      ['a broker does not answer', 'broker:1'],
      ['a broker does not answer', 'broker:1'],
      ['a broker answers again', 'broker:1'],
    ]);
  });
});

describe('metadata', () => {
  test('is answered by any healthy broker, half a second later for each silent one', async () => {
    const { brokers, cluster, runtime } = stage(3);
    brokers.set(1, 'frozen');
    brokers.set(2, 'frozen');
    expect((await runtime.until(cluster.metadata('all'))).clusterId).toBe('scripted');
    expect(runtime.monotonicMs()).toBeLessThan(1_100);
  });

  test('is requested from suspected brokers last', async () => {
    const { brokers, cluster, runtime } = stage(3, { t: 1 });
    await runtime.until(callLeader(cluster, 't', 1_000));
    for (const node of [1, 2]) {
      brokers.set(node, 'down');
      await runtime.until(errorCode(cluster.call(node, 'append', 1_000, beat)));
    }
    const before = brokers.calls.length;
    const dials = brokers.dials.length;
    await runtime.until(cluster.metadata([]));
    expect(brokers.calls.slice(before).map(({ node }) => node)).toContain(3);
    expect(brokers.dials.slice(dials).map(({ node }) => node)).not.toContain(1);
  });

  test('fails once every broker has failed, well before the deadline', async () => {
    const { brokers, cluster, runtime } = stage(3);
    for (const node of [1, 2, 3]) brokers.set(node, 'down');
    expect(await runtime.until(errorCode(cluster.metadata([], 60_000)))).toBe('UNREACHABLE');
    expect(runtime.monotonicMs()).toBeLessThan(100);
    expect(brokers.dials).toHaveLength(3);
  });

  test('fails with a rejected login if there was one, whichever broker was called last', async () => {
    for (const locked of [1, 2, 3]) {
      const { brokers, cluster, runtime } = stage(3);
      for (const node of [1, 2, 3]) brokers.set(node, node === locked ? 'locked' : 'down');
      expect(await runtime.until(errorCode(cluster.metadata([])))).toBe('LOGIN_REFUSED');
      brokers.set(locked === 1 ? 2 : 1, 'healthy');
      expect(await runtime.until(errorCode(cluster.metadata([])))).toBe('answered');
    }
  });

  test('does not retry a login within a second of its rejection, for any caller', async () => {
    const { brokers, cluster, runtime } = stage(1);
    brokers.set(1, 'locked');
    for (let ask = 0; ask < 20; ask += 1) {
      expect(await runtime.until(errorCode(cluster.metadata([])))).toBe('LOGIN_REFUSED');
      await runtime.until(runtime.sleep(90));
    }
    expect(brokers.dials.length).toBeLessThanOrEqual(3);
    brokers.set(1, 'healthy');
    await runtime.until(runtime.sleep(1_000));
    expect(await runtime.until(errorCode(cluster.metadata([])))).toBe('answered');
  });

  test('fails at the deadline when all brokers are silent', async () => {
    const { brokers, cluster, runtime } = stage(2);
    for (const node of [1, 2]) brokers.set(node, 'frozen');
    expect(await runtime.until(errorCode(cluster.metadata([], 60_000)))).toBe('UNREACHABLE');
    expect(runtime.monotonicMs()).toBeLessThan(3_600);
  });
});

describe('topics', () => {
  test('that are cached are not requested again', async () => {
    const { brokers, cluster, runtime } = stage(1, { t: 1 });
    for (let times = 0; times < 5; times += 1) {
      expect(await runtime.until(cluster.leader('t', 0))).toBe(1);
      expect(await runtime.until(cluster.partitions('t'))).toBe(1);
    }
    expect(brokers.callsOf('metadata')).toHaveLength(1);
  });

  test('that are requested for use are cached, if they exist', async () => {
    const { brokers, cluster, runtime } = stage(1, { t: 1, u: 1 });
    const found = await runtime.until(cluster.metadataForUse(['t', 'u', 'none']));
    expect(found.topics.map(({ errorCode }) => errorCode)).toEqual([
      undefined,
      undefined,
      'UNKNOWN_TOPIC_OR_PARTITION',
    ]);
    expect(await runtime.until(Promise.all([cluster.leader('t', 0), cluster.leader('u', 0)]))).toEqual([1, 1]);
    await runtime.until(runtime.sleep(10_500));
    expect(topicsOf(brokers), 'the second is the first of those every 10 s').toEqual([
      ['t', 'u', 'none'],
      ['t', 'u'],
      ['t', 'u'],
    ]);
  });

  test('in doubt are requested without the others, which are requested every 10 s', async () => {
    const names = Array.from({ length: 50 }, (_, i) => `t${i}`);
    const { brokers, cluster, runtime } = stage(1, Object.fromEntries(names.map((name) => [name, 1])));
    await runtime.until(Promise.all(names.map((name) => cluster.leader(name, 0))));
    const startMs = runtime.monotonicMs();
    for (const name of ['t7', 't8', 't7']) {
      cluster.markStale(name);
      await runtime.until(runtime.sleep(0.5)); // the request is on its way
      expect(await runtime.until(cluster.leader(name, 0))).toBe(1);
      await runtime.until(runtime.sleep(1_000));
    }
    brokers.topics.set('late', { leaders: [1] });
    brokers.topics.set('t9', { leaders: [1, 1] });
    expect(await runtime.until(Promise.all([cluster.leader('late', 0), cluster.leader('t9', 1)]))).toEqual([1, 1]);
    await runtime.until(runtime.sleep(10_000 - (runtime.monotonicMs() - startMs) + 100));
    expect(topicsOf(brokers)).toEqual([names, ['t7'], ['t8'], ['t7'], ['late', 't9'], [...names, 'late']]);
  });

  test('that are cached do not wait for a request about another topic', async () => {
    const { brokers, cluster, runtime } = stage(2, { t: 1, other: 1 });
    await runtime.until(Promise.all([cluster.leader('t', 0), cluster.leader('other', 0)]));
    for (const node of [1, 2]) brokers.set(node, 'frozen');
    const startMs = runtime.monotonicMs();
    cluster.markStale('other');
    await runtime.until(runtime.sleep(200));
    expect(await runtime.until(cluster.leader('t', 0))).toBe(1);
    expect(runtime.monotonicMs() - startMs).toBe(200);
  });

  test('that do not exist have no partitions, however often they are requested', async () => {
    const { cluster, runtime } = stage(1);
    for (let times = 0; times < 3; times += 1) {
      expect(await runtime.until(errorCode(cluster.partitions('none')))).toBe('UNKNOWN_TOPIC_OR_PARTITION');
    }
  });

  test('that were deleted or are forbidden do not affect others', async () => {
    const { brokers, cluster, runtime } = stage(1, { gone: 1, forbidden: 1, t: 1 });
    const leaders = () => Promise.all(['gone', 'forbidden', 't'].map((topic) => cluster.leader(topic, 0)));
    expect(await runtime.until(leaders())).toEqual([1, 1, 1]);
    brokers.topics.delete('gone');
    brokers.topics.set('forbidden', { errorCode: 'TOPIC_AUTHORIZATION_FAILED', leaders: [] });
    cluster.markStale('gone');
    const faults = ['gone', 'forbidden', 't'].map((topic) => errorCode(cluster.leader(topic, 0)));
    expect(await runtime.until(Promise.all(faults))).toEqual([
      'UNKNOWN_TOPIC_OR_PARTITION',
      'answered', // from the cache: it was not doubted
      'answered',
    ]);
    cluster.markStale('forbidden');
    expect(await runtime.until(errorCode(cluster.leader('forbidden', 0)))).toBe('TOPIC_AUTHORIZATION_FAILED');
    expect(await runtime.until(errorCode(cluster.leader('t', 1)))).toBe('UNKNOWN_TOPIC_OR_PARTITION');
  });

  test('of which a broker does not know all partitions are requested again on each use, and do not affect others', async () => {
    const { brokers, cluster, runtime } = stage(1, { t: 1 });
    brokers.topics.set('gap', { errorCode: 'PARTITIONS_MISSING', leaders: [] });
    const both = () => Promise.all(['gap', 't'].map((topic) => errorCode(cluster.leader(topic, 0))));
    expect(await runtime.until(both())).toEqual(['PARTITIONS_MISSING', 'answered']);
    brokers.topics.set('gap', { leaders: [1] });
    expect(await runtime.until(both())).toEqual(['answered', 'answered']);
  });

  test('without a leader are requested again on each use', async () => {
    const { brokers, cluster, runtime } = stage(1, { t: -1 });
    expect(await runtime.until(errorCode(cluster.leader('t', 0)))).toBe('LEADER_NOT_AVAILABLE');
    expect(await runtime.until(cluster.partitions('t'))).toBe(1);
    brokers.topics.set('t', { leaders: [1] });
    expect(await runtime.until(cluster.leader('t', 0))).toBe(1);
  });

  test('in doubt wait for an answer that is not older than the doubt', async () => {
    const { brokers, cluster, runtime } = stage(2, { t: 1 });
    await runtime.until(cluster.leader('t', 0));
    const asked = cluster.metadata(['t']);
    brokers.topics.set('t', { leaders: [2] });
    brokers.views.set(1, new Map([['t', { leaders: [1] }]]));
    brokers.views.set(2, new Map([['t', { leaders: [1] }]]));
    cluster.markStale('t');
    await runtime.until(asked);
    brokers.views.clear();
    expect(await runtime.until(cluster.leader('t', 0))).toBe(2);
  });
});

describe('the topology is requested', () => {
  const metadataTimes = (brokers: ScriptedBrokers) => brokers.callsOf('metadata').map(({ atMs }) => atMs);

  test('every 10 s while topics are used, until a minute after the last use', async () => {
    const { brokers, cluster, runtime } = stage(1, { t: 1 });
    await runtime.until(cluster.leader('t', 0));
    const startMs = runtime.monotonicMs();
    await runtime.until(runtime.sleep(300_000));
    const times = metadataTimes(brokers);
    expect(perSecond(times, startMs, 59)).toBeCloseTo(5 / 59, 5);
    expect(times).toHaveLength(1 + 5);
    await runtime.until(cluster.leader('t', 0));
    await runtime.until(runtime.sleep(10_500));
    expect(metadataTimes(brokers).length).toBe(times.length + 2);
  });

  test('every 500 ms while a broker is suspected: until it answers, or for 10 s after its last failure', async () => {
    const { brokers, cluster, runtime } = stage(2, { t: 1 });
    await runtime.until(callLeader(cluster, 't', 1_000));
    brokers.set(2, 'down');
    await runtime.until(errorCode(cluster.call(2, 'append', 1_000, beat)));
    const startMs = runtime.monotonicMs();
    await runtime.until(runtime.sleep(30_000));
    const times = metadataTimes(brokers);
    expect(perSecond(times, startMs + 1_000, 8)).toBe(2);
    expect(perSecond(times, startMs + 11_000, 18)).toBeLessThan(0.12);
    await runtime.until(errorCode(cluster.call(2, 'append', 1_000, beat)));
    brokers.set(2, 'healthy');
    await runtime.until(cluster.call(2, 'append', 1_000, beat));
    const answeredMs = runtime.monotonicMs();
    await runtime.until(runtime.sleep(8_000));
    expect(metadataTimes(brokers).filter((atMs) => atMs > answeredMs + 600).length).toBeLessThanOrEqual(1);
  });

  test('at most every 100 ms, however many doubt, and however quickly it fails', async () => {
    const { brokers, cluster, runtime } = stage(2, { t: 1 });
    await runtime.until(cluster.leader('t', 0));
    const startMs = runtime.monotonicMs();
    const doubts = async () => {
      for (let at = 0; at < 1_000; at += 1) {
        cluster.markStale('t');
        void errorCode(cluster.leader('t', 0));
        await runtime.sleep(5);
      }
    };
    await runtime.until(doubts());
    expect(perSecond(metadataTimes(brokers), startMs, 5)).toBeLessThanOrEqual(10.2);
    expect(perSecond(metadataTimes(brokers), startMs, 5)).toBeGreaterThan(9);
    for (const node of [1, 2]) brokers.set(node, 'down');
    const [downMs, dials] = [runtime.monotonicMs(), brokers.dials.length];
    await runtime.until(doubts());
    expect((brokers.dials.length - dials) / 2).toBeLessThanOrEqual(51);
    await runtime.until(runtime.sleep(10_000)); // no longer needed, but already due
    const alone = brokers.dials.filter(({ atMs }) => atMs >= downMs + 5_200).length / 2;
    expect(alone / 9.8).toBeLessThanOrEqual(2.2);
    expect(alone / 9.8).toBeGreaterThan(1.5);
  });

  test('once for all callers that come while an answer is pending', async () => {
    const { brokers, cluster, runtime } = stage(1, { a: 1, b: 1, c: 1 });
    const first = cluster.leader('a', 0);
    await runtime.until(runtime.sleep(0.5));
    await runtime.until(Promise.all([first, cluster.leader('b', 0), cluster.leader('c', 0)]));
    expect(brokers.callsOf('metadata')).toHaveLength(2);
  });
});

describe('coordinators', () => {
  test('are cached until they are doubted', async () => {
    const { brokers, cluster, runtime } = stage(2);
    expect(await runtime.until(Promise.all([cluster.coordinator('g'), cluster.coordinator('g')]))).toEqual([1, 1]);
    brokers.coordinator = 2;
    expect(await runtime.until(cluster.coordinator('g'))).toBe(1);
    cluster.forgetCoordinator('g');
    expect(await runtime.until(cluster.coordinator('g'))).toBe(2);
    expect(brokers.callsOf('findCoordinator')).toHaveLength(2);
  });

  test.each([
    ['NOT_COORDINATOR_FOR_GROUP', 2],
    ['GROUP_LOAD_IN_PROGRESS', 2],
    ['NO_RESPONSE', 2],
    ['REBALANCE_IN_PROGRESS', 1],
  ])('that answer a call with %s are looked up again if that says that they have moved', async (fault, next) => {
    const { brokers, cluster, runtime } = stage(2);
    const failing = () => Promise.reject(new KafkaError(fault, 'no'));
    const call = (use: () => Promise<never>) => cluster.callCoordinator('g', 'control', 1_000, use);
    expect(await runtime.until(errorCode(call(failing)))).toBe(fault);
    brokers.coordinator = 2;
    await runtime.until(cluster.callCoordinator('g', 'control', 1_000, beat));
    expect(brokers.callsOf('heartbeat').map(({ node }) => node)).toEqual([next]);
  });

  test('are not called when too little time is left', async () => {
    const { brokers, cluster, runtime } = stage(2);
    expect(await runtime.until(errorCode(cluster.callCoordinator('g', 'control', 200, beat)))).toBe('UNREACHABLE');
    expect(brokers.callsOf('heartbeat')).toEqual([]);
  });

  test('that are unavailable are requested from one broker, which answers for all', async () => {
    const { brokers, cluster, runtime } = stage(3);
    brokers.coordinatorFault = 'GROUP_COORDINATOR_NOT_AVAILABLE';
    expect(await runtime.until(errorCode(cluster.coordinator('g')))).toBe('GROUP_COORDINATOR_NOT_AVAILABLE');
    expect(brokers.callsOf('findCoordinator')).toHaveLength(1);
  });

  test('are requested again after a request that failed', async () => {
    const { brokers, cluster, runtime } = stage(1);
    brokers.set(1, 'down');
    expect(await runtime.until(errorCode(cluster.coordinator('g')))).toBe('UNREACHABLE');
    brokers.set(1, 'healthy');
    expect(await runtime.until(cluster.coordinator('g'))).toBe(1);
  });
});

test('the time of the last answer counts answers of any broker, including Kafka errors, but no time-outs', async () => {
  const { brokers, cluster, runtime } = stage(2);
  expect(cluster.lastResponseMs).toBeUndefined();
  await runtime.until(cluster.metadata([]));
  const answeredMs = cluster.lastResponseMs;
  expect(answeredMs).toBe(runtime.monotonicMs());
  for (const node of [1, 2]) brokers.set(node, 'frozen');
  await runtime.until(errorCode(cluster.metadata([])));
  expect(cluster.lastResponseMs).toBe(answeredMs);
});

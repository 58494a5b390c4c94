import { expect, test } from 'vitest';
import { kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { MetadataResponse } from '../../../src/kafka/wire/topic-apis.ts';
import { Topology } from '../../../src/kafka/wire/topology.ts';

/** An answer with these brokers, and the leader of the only partition of each topic. */
function answer(nodes: readonly number[], leaders: Readonly<Record<string, number>>): MetadataResponse {
  return {
    throttleMs: 0,
    clusterId: 'c',
    controllerId: 1,
    brokers: nodes.map((nodeId) => ({ nodeId, host: 'broker', port: nodeId })),
    topics: Object.entries(leaders).map(([name, leader]) => ({
      name,
      partitions: [{ partition: 0, leader, replicas: [leader], inSync: [leader] }],
    })),
  };
}

function inUse(...topics: readonly string[]): Topology {
  const topology = new Topology();
  for (const topic of topics) topology.use(topic, 0);
  return topology;
}

const leaderOf = (topology: Topology, topic: string) => topology.leaderOf(topology.found(topic), 0);

test("the answer to an older request doesn't replace that to a newer one", () => {
  const topology = inUse('t');
  const [older, newer] = [topology.nextRequestNumber(), topology.nextRequestNumber()];
  topology.update(newer, answer([1, 2], { t: 2 }));
  topology.update(older, answer([1], { t: 1 }));
  expect([leaderOf(topology, 't'), [...topology.brokers.keys()]]).toEqual([2, [1, 2]]);
});

test('a doubt ends with the answer to a later request, not to an earlier one', () => {
  const topology = inUse('t');
  topology.update(topology.nextRequestNumber(), answer([1], { t: 1 }));
  const before = topology.nextRequestNumber();
  topology.markStale('t');
  topology.update(before, answer([1], { t: 1 }));
  expect(topology.known('t')).toBeUndefined();
  topology.update(topology.nextRequestNumber(), answer([1], { t: 1 }));
  expect(topology.known('t')?.name).toBe('t');
});

test('a topic that was in no answer is unknown', () => {
  const topology = inUse('t', 'u');
  topology.update(topology.nextRequestNumber(), answer([1], { t: 1 }));
  expect(leaderOf(topology, 't')).toBe(1);
  expect(faultFrom(() => topology.found('u'))).toBe('UNKNOWN_TOPIC_OR_PARTITION');
  expect(topology.known('u')).toBeUndefined();
});

test('unused topics are not kept', () => {
  const topology = inUse('t');
  topology.update(topology.nextRequestNumber(), answer([1], { t: 1, other: 1 }));
  expect(topology.known('other')).toBeUndefined();
  expect(topology.inUse(59_999)).toEqual(['t']);
  expect(topology.inUse(60_000)).toEqual([]);
  expect(topology.known('t')).toBeUndefined();
});

test('a leader that is not among the brokers counts as not available', () => {
  const topology = inUse('t');
  topology.update(topology.nextRequestNumber(), answer([1], { t: 9 }));
  expect(faultFrom(() => leaderOf(topology, 't'))).toBe('LEADER_NOT_AVAILABLE');
  expect(faultFrom(() => topology.leaderOf(topology.found('t'), 1))).toBe('UNKNOWN_TOPIC_OR_PARTITION');
});

test('a coordinator is known before the metadata names it, and replaced by the metadata', () => {
  const topology = new Topology();
  topology.addBroker(3, { host: 'met', port: 3 });
  expect(topology.brokers.get(3)?.host).toBe('met');
  topology.update(topology.nextRequestNumber(), answer([3], {}));
  topology.addBroker(3, { host: 'met', port: 3 });
  expect(topology.brokers.get(3)?.host).toBe('broker');
});

function faultFrom(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    return kafkaErrorCode(error);
  }
}

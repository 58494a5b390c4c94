import { expect, test } from 'vitest';
import { ReplyReader } from '../../src/client/reply-reader.ts';
import { FakeKafka } from './fake-kafka.ts';
import { FakeSystem, turns } from './stage.ts';

function staged() {
  const kafka = new FakeKafka();
  const system = new FakeSystem();
  const offsets: string[] = [];
  const faults: string[] = [];
  const reader = new ReplyReader({
    kafka: kafka.kafka,
    system,
    topic: 'id.replies.a',
    partition: 1,
    offset: '9',
    onMessage: ({ offset }) => offsets.push(offset),
    onFault: ({ message }) => faults.push(message),
  });
  const last = () => {
    const consumer = kafka.consumers.at(-1);
    if (consumer === undefined) throw new Error('there is no consumer');
    return consumer;
  };
  return { kafka, system, offsets, faults, reader, last };
}

test('a reader begins where it was told, inside of the join, and goes on behind what it has read at each later one', async () => {
  const { reader, offsets, last } = staged();
  await reader.start();
  expect(last().seeks).toEqual(['1@9']);
  await last().deliver(9);
  await last().deliver(12);
  last().tell('consumer.rebalancing');
  last().tell('consumer.group_join');
  expect(last().seeks).toEqual(['1@9', '1@13']);
  expect(offsets).toEqual(['9', '12']);
});

test.each([
  ['is given up', ['consumer.crash']],
  ['goes on after a rebalance without having joined', ['consumer.rebalancing', 'consumer.heartbeat']],
])('a consumer that %s is replaced by one of another group, which goes on behind it', async (_what, events) => {
  const { reader, kafka, system, last, offsets, faults } = staged();
  await reader.start();
  const first = last();
  await first.deliver(9);
  for (const event of events) first.tell(event);
  await system.pass(1_000);
  expect(kafka.consumers).toHaveLength(2);
  expect(first.left).toBe(true);
  expect(last().groupId).not.toBe(first.groupId);
  expect(last().seeks).toEqual(['1@10']);
  await first.deliver(10);
  expect(offsets).toEqual(['9']);
  expect(faults).toHaveLength(1);
});

test('a heartbeat outside of a rebalance is no sign of anything', async () => {
  const { reader, kafka, system, last } = staged();
  await reader.start();
  last().tell('consumer.rebalancing');
  last().tell('consumer.group_join');
  last().tell('consumer.heartbeat');
  await system.pass(2_000);
  expect(kafka.consumers).toHaveLength(1);
});

test('a consumer that fetches nothing for 30 s, not even nothing, is replaced', async () => {
  const { reader, kafka, system, last } = staged();
  await reader.start();
  for (let second = 0; second < 60; second += 5) {
    await system.pass(5_000);
    last().tell('consumer.fetch');
  }
  expect(kafka.consumers).toHaveLength(1);
  await system.pass(36_000);
  expect(kafka.consumers.length).toBeGreaterThan(1);
});

test('a replacement that can not start is tried again until one can', async () => {
  const { reader, kafka, system, last, offsets } = staged();
  await reader.start();
  kafka.refuse = new Error('no broker');
  last().tell('consumer.crash');
  await system.pass(5_500);
  expect(kafka.consumers).toHaveLength(6);
  expect(kafka.consumers.slice(0, -1).every(({ left }) => left)).toBe(true);
  kafka.refuse = undefined;
  await system.pass(1_000);
  await last().deliver(9);
  expect(offsets).toEqual(['9']);
});

test.each([
  ['its consumer is refused', { refuse: new Error('no broker') }],
  ['its join fails', { onRun: (consumer: { tell(name: string): void }) => consumer.tell('consumer.crash') }],
])('a reader does not start when %s, and leaves', async (_what, change) => {
  const { reader, kafka, system } = staged();
  Object.assign(kafka, change);
  await expect(reader.start()).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
  await reader.close();
  await system.pass(60_000);
  expect(kafka.consumers.map(({ left }) => left)).toEqual([true]);
});

test('a reader does not wait for its join without end', async () => {
  const { reader, kafka, system } = staged();
  kafka.onRun = () => undefined;
  const started = expect(reader.start()).rejects.toThrow(/within 30000 ms/);
  await system.pass(30_000);
  await started;
});

test('a reader that is closed leaves, and nothing goes on', async () => {
  const { reader, kafka, system, last } = staged();
  await reader.start();
  last().tell('consumer.crash');
  await turns();
  await reader.close();
  await system.pass(60_000);
  expect(kafka.consumers.map(({ left }) => left)).toEqual([true]);
  expect(system.timers).toBe(0);
});

test('a reader that is closed as soon as it reads has left its group', async () => {
  const { reader, kafka } = staged();
  kafka.onRun = async (consumer) => {
    consumer.tell('consumer.group_join');
    await turns();
  };
  await reader.start();
  await reader.close();
  expect(kafka.consumers.map(({ left }) => left)).toEqual([true]);
});

test('a reader that is closed while it joins leaves once it has joined', async () => {
  const { reader, kafka, system, last, faults } = staged();
  const join = Promise.withResolvers<void>();
  kafka.onRun = () => join.promise;
  const started = reader.start();
  await turns();
  const closed = reader.close();
  await turns();
  expect(last().left).toBe(false);
  last().tell('consumer.group_join');
  join.resolve();
  await closed;
  expect(last().left).toBe(true);
  await started;
  await system.pass(60_000);
  expect(system.timers).toBe(0);
  expect(faults).toEqual([]);
});

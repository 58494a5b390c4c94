import { expect, test } from 'vitest';
import { connectKafka } from '../../src/client/kafka-link.ts';
import type { IdClientOptions } from '../../src/client/options.ts';
import type { Incoming } from '../../src/client/transport.ts';
import { FakeKafka } from './fake-kafka.ts';
import { FakeSystem, turns } from './stage.ts';

async function linked(options: Partial<IdClientOptions> = {}, kafka = new FakeKafka()) {
  const replies: Incoming[] = [];
  const events = { onReply: (reply: Incoming) => replies.push(reply), onFault: () => undefined };
  const all = { kafka: kafka.kafka, replyTopic: 'id.replies.a', ...options } as IdClientOptions;
  return { kafka, replies, link: await connectKafka(all, new FakeSystem(), events) };
}

const REQUEST = { key: Buffer.from('c-1'), value: Buffer.from('value'), replyTopic: 'id.replies.a' };

test('a request is one durable record, keyed by its correlation ID, that names the partition which is read', async () => {
  const { kafka, link } = await linked({ partition: 1 });
  expect(kafka.consumers.map(({ seeks }) => seeks)).toEqual([['1@9']]);
  await link.send(REQUEST);
  const { key, value } = REQUEST;
  const messages = [{ key, value, headers: { kafka_replyPartition: '1' } }];
  expect(kafka.sends).toEqual([{ topic: 'id.requests', acks: -1, messages }]);
});

test('without a choice one partition is taken at random', async () => {
  const { kafka } = await linked();
  expect(kafka.consumers.map(({ seeks }) => seeks)).toEqual([['0@5']]);
});

test('headers can have other names', async () => {
  const { kafka, link, replies } = await linked({ headers: { replyPartition: 'where', replayed: 'again' } });
  await link.send(REQUEST);
  expect(kafka.sends[0]?.messages[0]?.headers).toEqual({ where: '0' });
  const [consumer] = kafka.consumers;
  const { key, value } = REQUEST;
  await consumer?.deliver(5, { key, value, headers: { 'idalloc-replayed': '1' } });
  await consumer?.deliver(6, { key, value, headers: { again: '1' } });
  expect(replies.map(({ replayed }) => replayed)).toEqual([false, true]);
});

test('records without key or value are passed over', async () => {
  const { kafka, replies } = await linked();
  for (const message of [
    { key: null, value: REQUEST.value },
    { key: REQUEST.key, value: null },
  ]) {
    await kafka.consumers[0]?.deliver(5, message);
  }
  expect(replies).toEqual([]);
});

test('eight reply topics are read, one consumer each; a ninth is refused', async () => {
  const { kafka, link } = await linked();
  const topics = Array.from({ length: 8 }, (_, i) => `id.replies.${i}`);
  kafka.topics.push(...topics);
  for (const replyTopic of [...topics.slice(0, 7), ...topics.slice(0, 7)]) await link.send({ ...REQUEST, replyTopic });
  expect(kafka.consumers).toHaveLength(8);
  await expect(link.send({ ...REQUEST, replyTopic: 'id.replies.7' })).rejects.toMatchObject({ code: 'QUEUE_FULL' });
  await link.close();
  expect(kafka.consumers.every(({ left }) => left)).toBe(true);
});

test('a reply topic that is not there is looked for anew by the next request', async () => {
  const { kafka, link } = await linked();
  const request = { ...REQUEST, replyTopic: 'id.replies.late' };
  await expect(link.send(request)).rejects.toMatchObject({ code: 'TOPIC_INVALID' });
  kafka.topics.push('id.replies.late');
  await link.send(request);
  expect(kafka.sends).toHaveLength(1);
});

test('a record that the brokers refuse is KAFKA_UNAVAILABLE', async () => {
  const { kafka, link } = await linked();
  kafka.refuse = new Error('not enough replicas');
  await expect(link.send(REQUEST)).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
});

test('a request that no broker took is told, though kafkajs says nothing of it', async () => {
  const { kafka, link } = await linked();
  kafka.leaderless = true;
  await expect(link.send(REQUEST)).rejects.toMatchObject({
    code: 'KAFKA_UNAVAILABLE',
    message: expect.stringMatching(/no broker took it/),
  });
});

test.each<[string, object]>([
  ['no reply topic', { replyTopic: undefined }],
  ['neither kafka nor brokers', { kafka: undefined }],
  ['both', { brokers: ['localhost:9092'] }],
  ['brokers as one text', { kafka: undefined, brokers: 'localhost:9092' }],
  ['no brokers', { kafka: undefined, brokers: [] }],
  ['a broker without a port', { kafka: undefined, brokers: ['localhost'] }],
  ['a broker with a port that is none', { kafka: undefined, brokers: ['localhost:70000'] }],
  ['a broker as a URL', { kafka: undefined, brokers: ['http://localhost:9092'] }],
])('%s is refused before anybody is asked', async (_what, options) => {
  await expect(linked(options as Partial<IdClientOptions>)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
});

test('a producer leaves only once no record is under way, and takes none after that', async () => {
  const { kafka, link } = await linked();
  const taken = Promise.withResolvers<void>();
  kafka.taken = taken.promise;
  const sent = link.send(REQUEST);
  await turns();
  const ended = link.close();
  await turns();
  expect(kafka.producerLeft).toBeUndefined();
  await expect(link.send(REQUEST)).rejects.toMatchObject({ code: 'CLIENT_CLOSED' });
  taken.resolve();
  await Promise.all([sent, ended]);
  expect(kafka.producerLeft).toBe(0);
});

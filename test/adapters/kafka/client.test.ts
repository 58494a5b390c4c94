import { Kafka } from 'kafkajs';
import { afterEach, expect, test, vi } from 'vitest';
import { briefKafkaClient, kafkaClient } from '../../../src/adapters/kafka/client.ts';

const SETTINGS = { brokers: ['localhost:1'], clientId: 'x', tls: false };

afterEach(() => {
  vi.restoreAllMocks();
});

test.each([
  ['for about 10 s', kafkaClient, 54],
  ['three times', briefKafkaClient, 3],
] as const)('a consumer tries again %s, as its client does', (_, create, retries) => {
  const consumer = vi.spyOn(Kafka.prototype, 'consumer');
  create(SETTINGS, () => () => undefined).consumer({ groupId: 'g' });
  expect(consumer).toHaveBeenCalledWith({ groupId: 'g', retry: { retries } });
});

test('a consumer that is told how often to try again is not overruled', () => {
  const consumer = vi.spyOn(Kafka.prototype, 'consumer');
  kafkaClient(SETTINGS, () => () => undefined).consumer({ groupId: 'g', retry: { retries: 1 } });
  expect(consumer).toHaveBeenCalledWith({ groupId: 'g', retry: { retries: 1 } });
});

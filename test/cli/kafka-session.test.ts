import type { Kafka } from 'kafkajs';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { withAdmin } from '../../src/cli/kafka-session.ts';
import { loadKafkaConfig } from '../../src/config.ts';

const CONFIG = loadKafkaConfig({ KAFKA_BROKERS: 'kafka-1:9092,kafka-2:9092' });

/** Brokers that answer when they are told to. */
function start(atTerminal: boolean) {
  const connected = Promise.withResolvers<void>();
  const said: string[] = [];
  const stop = new AbortController();
  const kafka = { admin: () => ({ connect: () => connected.promise, disconnect: async () => {} }) } as unknown as Kafka;
  const context = { stop: stop.signal, err: (text: string) => said.push(text), terminal: { errors: atTerminal } };
  return { answer: connected.resolve, said, stop, done: withAdmin(kafka, CONFIG, context, async () => 'done') };
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test('whoever sits at a terminal is told after 3 s which brokers are waited for; a script is not', async () => {
  const [seen, unseen] = [start(true), start(false)];
  await vi.advanceTimersByTimeAsync(2_999);
  expect(seen.said).toEqual([]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(seen.said).toEqual(['waiting for an answer of kafka-1:9092, kafka-2:9092 …\n']);
  expect(unseen.said).toEqual([]);
  seen.answer();
  unseen.answer();
  expect(await Promise.all([seen.done, unseen.done])).toEqual(['done', 'done']);
});

test('brokers that answer are not talked about, and neither are those that nobody waits for any more', async () => {
  const [answered, stopped] = [start(true), start(true)];
  answered.answer();
  const ended = expect(stopped.done).rejects.toMatchObject({ code: 'STOPPING' });
  stopped.stop.abort();
  await Promise.all([answered.done, ended]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect([...answered.said, ...stopped.said]).toEqual([]);
});

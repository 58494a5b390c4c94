import kafkajs, { type Kafka } from 'kafkajs';

/** Retries after 5, 10, 20 ms and so on, up to 200 ms, for about 10 s: longer than the election of a leader. */
export const PATIENT = { initialRetryTime: 5, maxRetryTime: 200, retries: 54 } as const;

/** A kafkajs client for tests, so that an independent client checks what the product writes and reads. */
export function testKafka(brokers: readonly string[]): Kafka {
  return new kafkajs.Kafka({
    clientId: 'test',
    brokers: [...brokers],
    connectionTimeout: 3_000,
    requestTimeout: 10_000,
    retry: PATIENT,
    logLevel: kafkajs.logLevel.NOTHING,
  });
}

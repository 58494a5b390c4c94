import kafkajs, { type Kafka } from 'kafkajs';

/** 5, 10, 20 ms and so on up to 200, for about 10 s: it outlasts the election of a leader. */
export const PATIENT = { initialRetryTime: 5, maxRetryTime: 200, retries: 54 } as const;

/** A client of the tests' own, so that what the product writes and reads is held against another's work. */
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

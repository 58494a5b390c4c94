import { expect, test } from 'vitest';
import { addressOf } from '../../../src/kafka/wire/settings.ts';

test.each([
  ['kafka-1:9093', { host: 'kafka-1', port: 9093 }],
  ['kafka-1', { host: 'kafka-1', port: 9092 }],
  ['[::1]:9093', { host: '::1', port: 9093 }],
])('the address of %s is its host, without brackets, and its port, 9092 by default', (broker, address) => {
  expect(addressOf(broker)).toEqual(address);
});

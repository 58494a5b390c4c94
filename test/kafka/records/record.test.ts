import fc from 'fast-check';
import { Partitioners } from 'kafkajs';
import { expect, test } from 'vitest';
import { partitionFor } from '../../../src/kafka/records/record.ts';

const metadata = (count: number) =>
  Array.from({ length: count }, (_, partitionId) => ({
    partitionErrorCode: 0,
    partitionId,
    leader: 1,
    replicas: [1],
    isr: [1],
  }));

const never = (): number => {
  throw new Error('the round-robin partition must not be used');
};

test('every key goes to the partition that kafkajs would choose', () => {
  const theirs = Partitioners.DefaultPartitioner();
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.integer({ min: 1, max: 64 }), (bytes, count) => {
      const key = Buffer.from(bytes);
      const expected = theirs({ topic: 't', partitionMetadata: metadata(count), message: { key, value: null } });
      expect(partitionFor(key, count, never)).toBe(expected);
    }),
  );
});

test('known keys keep their partitions', () => {
  const keys = ['', 'a', 'order-17', 'order-4711', 'é', '0'.repeat(100)];
  expect(keys.map((key) => partitionFor(Buffer.from(key), 1_000, never))).toEqual([681, 524, 961, 611, 271, 299]);
});

test('records without a key are spread over all partitions', () => {
  let asked = 0;
  const next = () => asked++;
  expect([0, 1, 2, 3].map(() => partitionFor(null, 3, next))).toEqual([0, 1, 2, 0]);
});

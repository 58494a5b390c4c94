import fc from 'fast-check';
import { Partitioners } from 'kafkajs';
import { expect, test } from 'vitest';
import { createPartitioner } from '../../../src/adapters/kafka/partitioner.ts';

const metadata = (count: number) =>
  Array.from({ length: count }, (_, partitionId) => ({
    partitionErrorCode: 0,
    partitionId,
    leader: 1,
    replicas: [1],
    isr: [1],
  }));

test('every key goes to the partition that kafkajs would choose', () => {
  const ours = createPartitioner();
  const theirs = Partitioners.DefaultPartitioner();
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.integer({ min: 1, max: 64 }), (bytes, count) => {
      const args = {
        topic: 't',
        partitionMetadata: metadata(count),
        message: { key: Buffer.from(bytes), value: null },
      };
      expect(ours(args)).toBe(theirs(args));
    }),
  );
});

test('a partition that is given is taken, also partition 0', () => {
  const message = { key: Buffer.from('key'), value: null, partition: 0 };
  expect(createPartitioner()({ topic: 't', partitionMetadata: metadata(7), message })).toBe(0);
});

test('records without a key go round all partitions', () => {
  const partition = createPartitioner();
  const args = { topic: 't', partitionMetadata: metadata(3), message: { key: null, value: null } };
  expect(new Set([partition(args), partition(args), partition(args)])).toEqual(new Set([0, 1, 2]));
});

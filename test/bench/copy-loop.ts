import { Kafka, logLevel, Partitioners } from 'kafkajs';

/**
 * The baseline of the throughput benchmark: kafkajs consumes a record, produces it to another topic and commits. It has
 * the worker's client settings where they affect speed, but no allocation, no ledger and no Avro.
 */
const [brokers = '', from = '', to = '', groupId = ''] = process.argv.slice(2);
const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR });
const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, allowAutoTopicCreation: false });
const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100 });

const PART = 500;

await Promise.all([producer.connect(), consumer.connect()]);
await consumer.subscribe({ topic: from, fromBeginning: true });
await consumer.run({
  autoCommit: false,
  eachBatchAutoResolve: false,
  partitionsConsumedConcurrently: 16,
  eachBatch: async ({ batch, resolveOffset, commitOffsetsIfNecessary, heartbeat }) => {
    for (let at = 0; at < batch.messages.length; at += PART) {
      const part = batch.messages.slice(at, at + PART);
      const messages = part.map(({ key, value, headers }) => ({ key, value, headers: headers ?? {} }));
      await producer.send({ topic: to, acks: -1, messages });
      const last = part.at(-1);
      if (last === undefined) continue;
      resolveOffset(last.offset);
      await commitOffsetsIfNecessary({
        topics: [
          { topic: from, partitions: [{ partition: batch.partition, offset: String(Number(last.offset) + 1) }] },
        ],
      });
      await heartbeat();
    }
  },
});
process.once('SIGTERM', async () => {
  await consumer.disconnect();
  await producer.disconnect();
});

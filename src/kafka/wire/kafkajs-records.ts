import { KafkaFault } from './fault.ts';
import { faultIn, requireNone, wholeNumber } from './kafkajs-faults.ts';
import { apiKeys, type DecodedProduce, Decoder, Encoder, type Protocol, produceResponse } from './kafkajs-modules.ts';
import type { FetchAnswer, FetchedPartition, ProduceAnswer, ProduceRequest } from './port.ts';

/** Produce 7 and Fetch 11, with the record batches as they are: kafkajs encodes and decodes records one by one. */

const PRODUCE_VERSION = 7;
/** The request without names and batch is shorter. */
const HEAD_BYTES = 64;

/**
 * ```
 * request   => transactional ID (null) string, acks int16, timeout int32, [topic]
 * topic     => name string, [partition int32, batch bytes]
 * ```
 */
export function produceProtocol({ topic, partition, batch, acks, timeoutMs }: ProduceRequest) {
  return {
    request: {
      apiKey: apiKeys.Produce,
      apiVersion: PRODUCE_VERSION,
      apiName: 'Produce',
      encode: async () =>
        new Encoder(HEAD_BYTES + Buffer.byteLength(topic) + batch.length)
          .writeString(null)
          .writeInt16(acks)
          .writeInt32(timeoutMs)
          .writeInt32(1)
          .writeString(topic)
          .writeInt32(1)
          .writeInt32(partition)
          .writeBytes(batch),
    },
    response: produceResponse,
  };
}

export function produceAnswer(decoded: DecodedProduce, { topic, partition }: ProduceRequest): ProduceAnswer {
  const [found, ...more] = decoded.topics.flatMap(({ topicName, partitions }) =>
    partitions.map((answer) => ({ topicName, ...answer })),
  );
  if (found === undefined || more.length > 0 || found.topicName !== topic || found.partition !== partition) {
    throw new KafkaFault('MALFORMED_ANSWER', `the answer is not about partition ${partition} of ${topic}`);
  }
  return {
    throttleMs: decoded.clientSideThrottleTime ?? 0,
    ...faultIn(found.errorCode),
    baseOffset: wholeNumber(found.baseOffset),
    appendedAtMs: wholeNumber(found.logAppendTime),
    logStartOffset: wholeNumber(found.logStartOffset),
  };
}

/**
 * ```
 * answer    => throttle int32, error int16, session int32, [topic]
 * topic     => name string, [partition]
 * partition => number int32, error int16, high watermark int64, last stable int64, log start int64,
 *              [producer int64, first offset int64], preferred replica int32, batches bytes
 * ```
 */
export const fetchResponse: Protocol<FetchAnswer>['response'] = {
  decode: async (payload) => {
    const decoder = new Decoder(payload);
    const throttleMs = decoder.readInt32();
    requireNone(decoder.readInt16());
    decoder.readInt32();
    const topics = decoder.readArray(readTopic);
    return { throttleMs, partitions: topics.flat() };
  },
};

function readTopic(decoder: Decoder): FetchedPartition[] {
  const topic = decoder.readString() ?? '';
  return decoder.readArray(() => readPartition(decoder, topic));
}

function readPartition(decoder: Decoder, topic: string): FetchedPartition {
  const partition = decoder.readInt32();
  const fault = faultIn(decoder.readInt16());
  const highWatermark = wholeNumber(decoder.readInt64());
  const lastStableOffset = wholeNumber(decoder.readInt64());
  const logStartOffset = wholeNumber(decoder.readInt64());
  const aborted = decoder.readArray(readAborted);
  decoder.readInt32(); // whom to read from instead: only for clients that name their rack
  const records = readRecords(decoder);
  return { topic, partition, ...fault, highWatermark, lastStableOffset, logStartOffset, aborted, records };
}

function readAborted(decoder: Decoder): FetchedPartition['aborted'][number] {
  const producerId = decoder.readInt64();
  return { producerId, firstOffset: wholeNumber(decoder.readInt64()) };
}

function readRecords(decoder: Decoder): Buffer {
  const length = decoder.readInt32();
  if (length <= 0) return Buffer.alloc(0);
  const records = decoder.readBytes(length);
  if (records.length < length) throw new KafkaFault('MALFORMED_ANSWER', 'the answer ends before its records do');
  return records;
}

import { byTopic } from './by-topic.ts';
import { KafkaError } from './kafka-error.ts';
import { errorIn, requireSuccess, safeInteger } from './kafkajs-errors.ts';
import { Decoder, Encoder, type Protocol } from './kafkajs-modules.ts';
import { apiKeys, type DecodedProduce, produceResponse } from './kafkajs-requests.ts';
import type { FetchedPartition, FetchResponse, ProduceRequest, ProduceResponse } from './port.ts';

/** Produce 7 and Fetch 11 with raw record batches, since kafkajs encodes and decodes records one by one. */

const PRODUCE_VERSION = 7;
/** Upper bounds of what a request, and a partition in it, take besides names and batches. */
const HEAD_BYTES = 64;
const PARTITION_BYTES = 32;
/** The port allows no other value. */
const ACKS_OF_ALL = -1;

/**
 * ```
 * request   => transactional ID (null) string, acks int16, timeout int32, [topic]
 * topic     => name string, [partition int32, batch bytes]
 * ```
 *
 * The requests are for different partitions. The shortest of their time-outs is sent, so that no response comes too late.
 */
export function produceProtocol(requests: readonly ProduceRequest[]) {
  const timeoutMs = Math.min(...requests.map((request) => request.timeoutMs));
  const topics = byTopic(requests, (request) => request);
  const bytes = requests.reduce((sum, { topic, batch }) => sum + PARTITION_BYTES + topic.length + batch.length, 0);
  return {
    request: {
      apiKey: apiKeys.Produce,
      apiVersion: PRODUCE_VERSION,
      apiName: 'Produce',
      encode: async () => {
        const encoder = new Encoder(HEAD_BYTES + bytes);
        encoder.writeString(null).writeInt16(ACKS_OF_ALL).writeInt32(timeoutMs).writeInt32(topics.length);
        for (const { topic, partitions } of topics) {
          encoder.writeString(topic).writeInt32(partitions.length);
          for (const { partition, batch } of partitions) encoder.writeInt32(partition).writeBytes(batch);
        }
        return encoder;
      },
    },
    response: produceResponse,
  };
}

/** The responses, in the order of the requests. Throws MALFORMED_RESPONSE unless each request has exactly one. */
export function produceResponses(decoded: DecodedProduce, requests: readonly ProduceRequest[]): ProduceResponse[] {
  const throttleMs = decoded.clientSideThrottleTime ?? 0;
  const found = decoded.topics.flatMap(({ topicName, partitions }) =>
    partitions.map((response) => [`${topicName}/${response.partition}`, response] as const),
  );
  const byPartition = new Map(found);
  return requests.map(({ topic, partition }) => {
    const response = byPartition.get(`${topic}/${partition}`);
    if (response === undefined || found.length !== requests.length) {
      throw new KafkaError('MALFORMED_RESPONSE', `the response does not match the request for ${topic}/${partition}`);
    }
    return {
      throttleMs,
      ...errorIn(response.errorCode),
      baseOffset: safeInteger(response.baseOffset),
      appendedAtMs: safeInteger(response.logAppendTime),
      logStartOffset: safeInteger(response.logStartOffset),
    };
  });
}

/**
 * ```
 * response  => throttle int32, error int16, session int32, [topic]
 * topic     => name string, [partition]
 * partition => number int32, error int16, high watermark int64, last stable int64, log start int64,
 *              [producer int64, first offset int64], preferred replica int32, batches bytes
 * ```
 */
export const fetchResponse: Protocol<FetchResponse>['response'] = {
  decode: async (payload) => {
    const decoder = new Decoder(payload);
    const throttleMs = decoder.readInt32();
    requireSuccess(decoder.readInt16());
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
  const error = errorIn(decoder.readInt16());
  const highWatermark = safeInteger(decoder.readInt64());
  const lastStableOffset = safeInteger(decoder.readInt64());
  const logStartOffset = safeInteger(decoder.readInt64());
  const aborted = decoder.readArray(readAborted);
  decoder.readInt32(); // preferred read replica: only for clients that send their rack
  const records = readRecords(decoder);
  return { topic, partition, ...error, highWatermark, lastStableOffset, logStartOffset, aborted, records };
}

function readAborted(decoder: Decoder): FetchedPartition['aborted'][number] {
  const producerId = decoder.readInt64();
  return { producerId, firstOffset: safeInteger(decoder.readInt64()) };
}

function readRecords(decoder: Decoder): Buffer {
  const length = decoder.readInt32();
  if (length <= 0) return Buffer.alloc(0);
  const records = decoder.readBytes(length);
  if (records.length < length) throw new KafkaError('MALFORMED_RESPONSE', 'the response ends before its records do');
  return records;
}

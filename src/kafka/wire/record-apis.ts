import {
  api,
  type BrokerResponse,
  byTopic,
  type CombinedApi,
  type DecodedByTopic,
  errorCodeOf,
  flat,
  type PartitionResult,
  type Result,
  requireSuccess,
  safeInteger,
  type TopicPartition,
  writeTopics,
} from './api.ts';
import { KafkaError } from './kafka-error.ts';
import { type Decoder, Encoder } from './kafkajs-modules.ts';

/**
 * The APIs of records. Produce and Fetch with raw record batches, since kafkajs encodes and decodes records one by one.
 */

export interface ProduceRequest extends TopicPartition {
  /** One record batch of format 2; the broker sets its base offset. It must not change until the response. */
  readonly batch: Buffer;
  /** Always -1, all in-sync replicas: stated here so that a weaker value is a visible change. */
  readonly acks: -1;
  /** How long the broker may wait for its followers before it answers REQUEST_TIMED_OUT. */
  readonly timeoutMs: number;
}

export interface ProduceResponse extends BrokerResponse, Result {
  readonly baseOffset: number;
  /** By the broker's clock if the topic has LogAppendTime, else -1. */
  readonly appendedAtMs: number;
  readonly logStartOffset: number;
}

type Isolation = 'read_committed' | 'read_uncommitted';

export interface FetchRequest {
  /** How long the broker may hold the call while there are no records. */
  readonly maxWaitMs: number;
  readonly maxBytes: number;
  readonly isolation: Isolation;
  /** All partitions to fetch; in a session, those that are new in it or have another position than before. */
  readonly partitions: readonly FetchPosition[];
  /** By default the fetch belongs to no session. */
  readonly session?: SessionStep;
  /**
   * Where the reader is (KIP-392): a leader that knows a replica there names it instead of the records. By default the
   * leader returns them.
   */
  readonly rack?: string;
}

/** The place of a fetch in a fetch session (KIP-227), which the broker keeps: see `loops/fetch-session`. */
export interface SessionStep {
  /** 0 if there is none yet. */
  readonly id: number;
  /** The number of the fetch in its session. 0 ends the session of that ID, and asks for a new one. */
  readonly epoch: number;
  /** Partitions that are not fetched any more. */
  readonly forgotten: readonly TopicPartition[];
}

export interface FetchPosition extends TopicPartition {
  readonly offset: number;
  readonly maxBytes: number;
}

/** Instead, FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH if the broker does not know the session so. */
export interface FetchResponse extends BrokerResponse {
  /** 0 if the broker keeps no session. */
  readonly sessionId: number;
  /** All partitions of the request; in a session with an epoch above 0, those with records, errors or other bounds. */
  readonly partitions: readonly FetchedPartition[];
}

/** Its error: OFFSET_OUT_OF_RANGE, NOT_LEADER_FOR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION … */
export interface FetchedPartition extends PartitionResult {
  /** The offset after the last record that all in-sync replicas have. */
  readonly highWatermark: number;
  /** Below it no transaction is open. */
  readonly lastStableOffset: number;
  readonly logStartOffset: number;
  /** Aborted transactions: their producer and first offset. */
  readonly aborted: readonly { readonly producerId: bigint; readonly firstOffset: number }[];
  /** Record batches as in the log: the first may begin below the requested offset, the last may be cut off. */
  readonly records: Buffer;
  /** The node ID of a replica in the reader's rack, from which to read instead; undefined for none. */
  readonly nearer?: number | undefined;
}

export interface ListOffsetsRequest {
  readonly isolation: Isolation;
  /**
   * `timestampMs`: -1 for the end (of the log, or of what is committed), -2 for the start, else the first record not
   * older.
   */
  readonly partitions: readonly (TopicPartition & { readonly timestampMs: number })[];
}

export interface ListOffsetsResponse extends BrokerResponse {
  /** `offset` is -1 where no record is that recent. */
  readonly partitions: readonly (PartitionResult & { readonly offset: number })[];
}

const PRODUCE: CombinedApi<ProduceRequest, ProduceResponse> = {
  name: 'Produce',
  key: 0,
  version: 7,
  right: { operation: 'Write', topics: ({ topic: name }, { errorCode }) => [{ name, errorCode }] },
  encodeAll: encodeProduce,
  decodeAll: decodeProduce,
};

export const RECORD_APIS = {
  produce: PRODUCE,
  fetch: api<FetchRequest, FetchResponse>({
    name: 'Fetch',
    key: 1,
    version: 11,
    right: {
      operation: 'Read',
      topics: (_, { partitions }) => partitions.map(({ topic: name, errorCode }) => ({ name, errorCode })),
    },
    encode: encodeFetch,
    decode: decodeFetch,
  }),
  listOffsets: api<
    ListOffsetsRequest,
    ListOffsetsResponse,
    DecodedByTopic<{ partition: number; errorCode: number; offset: string }>
  >({
    name: 'ListOffsets',
    key: 2,
    make: ({ isolation, partitions }) => ({
      isolationLevel: levelOf(isolation),
      topics: byTopic(partitions, ({ partition, timestampMs }) => ({ partition, timestamp: timestampMs })),
    }),
    read: (decoded) => ({
      partitions: flat(decoded, ({ partition, errorCode, offset }) => ({
        partition,
        errorCode: errorCodeOf(errorCode),
        offset: safeInteger(offset),
      })),
    }),
  }),
};

function levelOf(isolation: Isolation): number {
  return isolation === 'read_committed' ? 1 : 0;
}

/** The request allows no other value. */
const ACKS_OF_ALL = -1;

/**
 * ```
 * request   => transactional ID (null) string, acks int16, timeout int32, [topic]
 * topic     => name string, [partition int32, batch bytes]
 * ```
 *
 * The requests are for different partitions. The shortest of their time-outs is sent, so that no response comes too
 * late. The batches are parts of their own, so that large ones are sent without a copy.
 */
function encodeProduce(requests: readonly ProduceRequest[]): readonly Buffer[] {
  const timeoutMs = Math.min(...requests.map((request) => request.timeoutMs));
  const fields = new Encoder().writeString(null).writeInt16(ACKS_OF_ALL).writeInt32(timeoutMs);
  const batches: { readonly batch: Buffer; readonly at: number }[] = [];
  const topics = byTopic(requests, (one) => one);
  writeTopics(fields, topics, ({ partition, batch }) => {
    fields.writeInt32(partition).writeInt32(batch.length);
    batches.push({ batch, at: fields.size() });
  });
  const { buffer } = fields;
  return batches.flatMap(({ batch, at }, i) => [buffer.subarray(batches[i - 1]?.at ?? 0, at), batch]);
}

/**
 * ```
 * response  => [topic], throttle int32
 * topic     => name string, [partition]
 * partition => number int32, error int16, base offset int64, append time int64, log start int64
 * ```
 *
 * Throws MALFORMED_RESPONSE unless each request has exactly one.
 */
function decodeProduce(decoder: Decoder, requests: readonly ProduceRequest[]): ProduceResponse[] {
  const found = readTopics(decoder, (topic) => ({
    key: `${topic}/${decoder.readInt32()}`,
    errorCode: errorCodeOf(decoder.readInt16()),
    baseOffset: safeInteger(decoder.readInt64()),
    appendedAtMs: safeInteger(decoder.readInt64()),
    logStartOffset: safeInteger(decoder.readInt64()),
  }));
  const throttleMs = decoder.readInt32();
  const byPartition = new Map(found.map(({ key, ...response }) => [key, response]));
  return requests.map(({ topic, partition }) => {
    const response = byPartition.get(`${topic}/${partition}`);
    if (response === undefined || found.length !== requests.length)
      throw new KafkaError('MALFORMED_RESPONSE', `the response does not match the request for ${topic}/${partition}`);
    return { throttleMs, ...response };
  });
}

/** In an optional field that is not used. */
const NONE = -1;
const NO_SESSION: SessionStep = { id: 0, epoch: NONE, forgotten: [] };

/**
 * ```
 * request   => replica int32, wait int32, least bytes int32, bytes int32, isolation int8, session int32,
 *              session epoch int32, [topic], [forgotten topic], rack string
 * topic     => name string, [partition]
 * partition => number int32, leader epoch int32, offset int64, log start int64, bytes int32
 * forgotten => name string, [number int32]
 * ```
 */
function encodeFetch(request: FetchRequest): Encoder {
  const { maxWaitMs, maxBytes, isolation, partitions: from, session = NO_SESSION, rack = '' } = request;
  const [topics, forgotten] = [byTopic(from, (one) => one), byTopic(session.forgotten, ({ partition }) => partition)];
  const encoder = new Encoder();
  encoder.writeInt32(NONE).writeInt32(maxWaitMs).writeInt32(1).writeInt32(maxBytes).writeInt8(levelOf(isolation));
  encoder.writeInt32(session.id).writeInt32(session.epoch);
  writeTopics(encoder, topics, ({ partition, offset, maxBytes: most }) => {
    encoder.writeInt32(partition).writeInt32(NONE).writeInt64(offset).writeInt64(NONE).writeInt32(most);
  });
  writeTopics(encoder, forgotten, (partition) => encoder.writeInt32(partition));
  return encoder.writeString(rack);
}

/**
 * ```
 * response  => throttle int32, error int16, session int32, [topic]
 * topic     => name string, [partition]
 * partition => number int32, error int16, high watermark int64, last stable int64, log start int64,
 *              [producer int64, first offset int64], preferred replica int32, batches bytes
 * ```
 */
function decodeFetch(decoder: Decoder): FetchResponse {
  const throttleMs = decoder.readInt32();
  requireSuccess(decoder.readInt16());
  const sessionId = decoder.readInt32();
  return { throttleMs, sessionId, partitions: readTopics(decoder, (topic) => readPartition(decoder, topic)) };
}

function readTopics<P>(decoder: Decoder, read: (topic: string) => P): P[] {
  const topics = decoder.readArray(() => {
    const topic = decoder.readString() ?? '';
    return decoder.readArray(() => read(topic));
  });
  return topics.flat();
}

function readPartition(decoder: Decoder, topic: string): FetchedPartition {
  const partition = decoder.readInt32();
  const errorCode = errorCodeOf(decoder.readInt16());
  const highWatermark = safeInteger(decoder.readInt64());
  const lastStableOffset = safeInteger(decoder.readInt64());
  const logStartOffset = safeInteger(decoder.readInt64());
  const aborted = decoder.readArray(readAborted);
  const preferred = decoder.readInt32();
  const nearer = preferred === NONE ? undefined : preferred;
  const records = readRecords(decoder);
  return { topic, partition, errorCode, highWatermark, lastStableOffset, logStartOffset, aborted, records, nearer };
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

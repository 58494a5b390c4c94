import { KafkaError, type KafkaErrorCode } from './kafka-error.ts';
import { type Decoded, type Decoder, type Encoder, errorCodes } from './kafkajs-modules.ts';

/** What every response has. */
export interface BrokerResponse {
  /** For how long the broker accepts no further request of this client (KIP-219); 0 for no throttle. */
  readonly throttleMs: number;
}

export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** A part of a response that may be an error. */
export interface Result {
  readonly errorCode?: KafkaErrorCode | undefined;
}

/** What a response has of a partition. */
export interface PartitionResult extends TopicPartition, Result {}

/** A right that brokers check when they execute a request: on one group, or on each topic of the response. */
export type ShownRight<Request, Response> =
  | { readonly operation: 'Read' | 'Describe'; group(request: Request): string }
  | {
      readonly operation: 'Read' | 'Write' | 'Describe';
      topics(request: Request, response: Response): readonly Named[];
    };

interface Named extends Result {
  readonly name: string;
}

/** One of Kafka's APIs, as it is used here. */
export interface KafkaApi<Request, Response> {
  /** As kafkajs names it. */
  readonly name: string;
  /** Kafka's number of the API. */
  readonly key: number;
  /** The only version that is used; by default the newest that kafkajs and the broker support. */
  readonly version?: number;
  /** Brokers that don't have it are used as well. */
  readonly isOptional?: true;
  /** The right that shows in its responses. */
  readonly right?: ShownRight<Request, Response>;
  /** Never set: the types of the request and the response, from which those of `BrokerLink.call` follow. */
  readonly types?: { readonly request: Request; readonly response: Response };
}

/**
 * A request that kafkajs makes, in the newest version that it shares with the broker, and a response that it decodes.
 */
interface ByKafkajs<Request, Response, By> {
  /** kafkajs' options of the request. */
  make(request: Request): object;
  /** Replaces kafkajs' encoding, where it returns one. */
  encode?(request: Request): Encoder | undefined;
  /** An error of the whole response that is returned, not thrown. */
  readonly returns?: KafkaErrorCode;
  read(decoded: By): Omit<Response, 'throttleMs'>;
}

/** A request that is encoded here, in one version, and a response that is decoded here. */
interface ByUs<Request, Response> {
  readonly version: number;
  readonly make?: undefined;
  encode(request: Request): Encoder;
  decode(decoder: Decoder): Response;
}

/** An API whose requests are sent one by one. */
export type SingleApi<Request, Response, By = Decoded> = KafkaApi<Request, Response> &
  (ByKafkajs<Request, Response, By> | ByUs<Request, Response>);

/** An API whose requests are sent together: the responses are in the order of the requests. */
export interface CombinedApi<Request, Response> extends KafkaApi<Request, Response> {
  readonly version: number;
  /** In parts, which are sent one after another. */
  encodeAll(requests: readonly Request[]): readonly Buffer[];
  decodeAll(decoder: Decoder, requests: readonly Request[]): readonly Response[];
}

/** `By`: what kafkajs decodes, with the few fields that are used. */
export function api<Request, Response extends BrokerResponse, By extends Decoded = Decoded>(
  definition: SingleApi<Request, Response, By>,
): SingleApi<Request, Response> {
  return definition;
}

/** Groups partitions by topic, as requests need them. */
export function byTopic<P extends { readonly topic: string }, T>(
  partitions: readonly P[],
  write: (partition: P) => T,
): { readonly topic: string; readonly partitions: T[] }[] {
  const topics = new Map<string, T[]>();
  for (const partition of partitions) {
    const written = topics.get(partition.topic);
    if (written === undefined) topics.set(partition.topic, [write(partition)]);
    else written.push(write(partition));
  }
  return [...topics].map(([topic, written]) => ({ topic, partitions: written }));
}

/** Writes `[topic string, [partition]]`, each partition by `write`. */
export function writeTopics<P>(
  encoder: Encoder,
  topics: readonly { readonly topic: string; readonly partitions: readonly P[] }[],
  write: (partition: P) => void,
): void {
  encoder.writeInt32(topics.length);
  for (const { topic, partitions } of topics) {
    encoder.writeString(topic).writeInt32(partitions.length);
    for (const partition of partitions) write(partition);
  }
}

/** What kafkajs decodes of responses that are grouped by topic. */
export interface DecodedByTopic<P> extends Decoded {
  readonly responses: readonly { readonly topic: string; readonly partitions: readonly P[] }[];
}

/** Flattens the partitions of all topics. */
export function flat<P, R>(
  { responses }: DecodedByTopic<P>,
  read: (partition: P) => R,
): (R & { readonly topic: string })[] {
  return responses.flatMap(({ topic, partitions }) => partitions.map((partition) => ({ topic, ...read(partition) })));
}

const NAMES: ReadonlyMap<number, { readonly type: string; readonly message: string }> = new Map(
  errorCodes.map(({ code, type, message }) => [code, { type, message }]),
);

/** kafkajs' name of an error; `ERROR_<code>` for an unknown one, undefined for code 0. */
export function errorCodeOf(code: number): KafkaErrorCode | undefined {
  return code === 0 ? undefined : (NAMES.get(code)?.type ?? `ERROR_${code}`);
}

/** Throws if the whole response is an error. */
export function requireSuccess(code: number): void {
  const errorCode = errorCodeOf(code);
  if (errorCode !== undefined)
    throw new KafkaError(errorCode, NAMES.get(code)?.message ?? `error ${code} of the broker`);
}

/** An offset or another 64-bit number; throws MALFORMED_RESPONSE if it is not a safe integer. */
export function safeInteger(value: string | bigint): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new KafkaError('MALFORMED_RESPONSE', `${value} is out of range`);
  return number;
}

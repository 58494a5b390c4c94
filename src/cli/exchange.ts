import { randomUUID } from 'node:crypto';
import { type Admin, type Consumer, type Kafka, type KafkaMessage, Partitioners } from 'kafkajs';
import { decodeIdReply, type IdReply } from '../codec/id-reply.ts';
import { type Encoding, encodeIdRequest } from '../codec/id-request.ts';
import type { HeaderNames } from '../codec/request-headers.ts';
import { describeError, IdallocError } from '../errors.ts';

/** One request to send, and where its reply is awaited. */
export interface Exchange {
  readonly requestTopic: string;
  readonly replyTopic: string;
  readonly correlationId: Buffer;
  readonly count: number;
  readonly encoding: Encoding;
  readonly headers: HeaderNames;
  /** From the brokers' acknowledgement of the request to its reply. */
  readonly timeoutMs: number;
}

export type Received = IdReply & { readonly replayed: boolean };

const JOIN_TIMEOUT_MS = 30_000;
const FETCH_WAIT_MS = 100;

/**
 * Sends one request and waits for its reply.
 *
 * The reader stands at the end of the reply topic before the request goes out, so no reply can be missed. kafkajs reads
 * only as the member of a group, so it takes one of its own that nobody else has and that keeps no offsets.
 *
 * @throws IdallocError NO_REPLY, TOPIC_INVALID for a missing topic, KAFKA_UNAVAILABLE.
 */
export async function exchange(kafka: Kafka, admin: Admin, request: Exchange): Promise<Received> {
  await checkTopicsExist(admin, [request.requestTopic, request.replyTopic]);
  const ends = await admin.fetchTopicOffsets(request.replyTopic);
  const consumer = kafka.consumer({
    groupId: `idalloc-request-${randomUUID()}`,
    allowAutoTopicCreation: false,
    maxWaitTimeInMs: FETCH_WAIT_MS,
    retry: { restartOnFailure: async () => false },
  });
  try {
    return await converse(kafka, consumer, request, ends);
  } finally {
    await consumer.disconnect();
  }
}

type Ends = Awaited<ReturnType<Admin['fetchTopicOffsets']>>;

async function converse(kafka: Kafka, consumer: Consumer, request: Exchange, ends: Ends): Promise<Received> {
  const reply = Promise.withResolvers<Received>();
  const joined = Promise.withResolvers<void>();
  // Either may fail while something else is awaited, which must not count as a fault that nobody looks at.
  for (const { promise } of [joined, reply]) promise.catch(() => undefined);
  await listen(consumer, request, ends, { joined, reply });
  await within(JOIN_TIMEOUT_MS, joined.promise, () => {
    return new IdallocError('KAFKA_UNAVAILABLE', `the brokers gave no partition of '${request.replyTopic}' to read`);
  });
  await send(kafka, request);
  return within(request.timeoutMs, reply.promise, () => noReply(request));
}

interface Outcomes {
  /** Resolves once the reader stands at the ends. */
  readonly joined: PromiseWithResolvers<void>;
  readonly reply: PromiseWithResolvers<Received>;
}

async function listen(consumer: Consumer, request: Exchange, ends: Ends, { joined, reply }: Outcomes): Promise<void> {
  const topic = request.replyTopic;
  consumer.on('consumer.group_join', () => {
    for (const { partition, high } of ends) consumer.seek({ topic, partition, offset: high });
    joined.resolve();
  });
  consumer.on('consumer.crash', ({ payload }) => {
    const message = `reading '${topic}' failed: ${describeError(payload.error)}`;
    const fault = new IdallocError('KAFKA_UNAVAILABLE', message, { cause: payload.error });
    joined.reject(fault);
    reply.reject(fault);
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: false });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      try {
        const received = readReply(message, request);
        if (received !== undefined) reply.resolve(received);
      } catch (error) {
        reply.reject(error);
      }
    },
  });
}

/** The reply to our request; undefined for another's. */
function readReply(message: KafkaMessage, { correlationId, headers }: Exchange): Received | undefined {
  if (message.value === null || message.key === null || !message.key.equals(correlationId)) return undefined;
  const reply = decodeIdReply(message.value);
  return { ...reply, replayed: Object.hasOwn(message.headers ?? {}, headers.replayed) };
}

async function send(kafka: Kafka, request: Exchange): Promise<void> {
  const { correlationId, count, encoding, replyTopic, requestTopic } = request;
  const producer = kafka.producer({
    allowAutoTopicCreation: false,
    createPartitioner: Partitioners.DefaultPartitioner,
  });
  try {
    await producer.connect();
    const value = encodeIdRequest({ count, correlationId, replyTopic, encoding });
    await producer.send({ topic: requestTopic, acks: -1, messages: [{ key: correlationId, value }] });
  } catch (error) {
    const message = `the request could not be sent to '${requestTopic}': ${describeError(error)}`;
    throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
  } finally {
    await producer.disconnect();
  }
}

async function checkTopicsExist(admin: Admin, topics: readonly string[]): Promise<void> {
  const existing = new Set(await admin.listTopics());
  const missing = topics.filter((topic) => !existing.has(topic));
  if (missing.length === 0) return;
  const names = missing.map((topic) => `'${topic}'`).join(', ');
  throw new IdallocError(
    'TOPIC_INVALID',
    `no topic ${names}: run 'idalloc topics init', or make the reply topic yourself`,
  );
}

function noReply({ requestTopic, replyTopic, timeoutMs }: Exchange): IdallocError {
  return new IdallocError(
    'NO_REPLY',
    `no reply on '${replyTopic}' within ${timeoutMs} ms, though the request stands in '${requestTopic}': is a worker ` +
      "running ('idalloc worker'), ready (its /readyz tells why not), reading that topic (REQUEST_TOPIC) and allowed " +
      'to reply there (REPLY_TOPIC_PREFIX)? The same correlation ID can be sent again: it never gets a second batch',
  );
}

async function within<T>(timeoutMs: number, work: Promise<T>, fault: () => IdallocError): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(fault()), timeoutMs);
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

import kafkajs, { type Kafka, type KafkaMessage, type Message, type Producer } from 'kafkajs';
import { DEFAULT_HEADER_NAMES, type HeaderNames } from '../codec/request-headers.ts';
import { describeError, IdallocError } from '../errors.ts';
import { mendConnections } from '../kafkajs-connections.ts';
import { checkAccess, type IdClientOptions } from './options.ts';
import { inTime, RETRY, ReplyReader } from './reply-reader.ts';
import type { System } from './system.ts';
import type { Outgoing, Transport, TransportEvents } from './transport.ts';

const CONNECTION_TIMEOUT_MS = 3_000;
const REQUEST_TIMEOUT_MS = 10_000;
const CLOSE_TIMEOUT_MS = 10_000;
const MAX_REPLY_TOPICS = 8;

/** Connects and reads the reply topic from its end. Throws IdallocError KAFKA_UNAVAILABLE or TOPIC_INVALID. */
export async function connectKafka(
  options: IdClientOptions,
  system: System,
  events: TransportEvents,
): Promise<Transport> {
  checkAccess(options);
  const link = new KafkaLink(options, system, events);
  try {
    await link.connect();
    return link;
  } catch (error) {
    await link.close();
    if (error instanceof IdallocError) throw error;
    const message = `the brokers can not be reached: ${describeError(error)}`;
    throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
  }
}

/** One producer of requests, and a reader of one partition for each reply topic that was asked to. */
class KafkaLink implements Transport {
  readonly #options: IdClientOptions;
  readonly #system: System;
  readonly #events: TransportEvents;
  readonly #headers: HeaderNames;
  readonly #requestTopic: string;
  readonly #kafka: Kafka;
  readonly #producer: Producer;
  readonly #readers = new Map<string, Promise<ReplyReader>>();
  readonly #sending = new Set<Promise<void>>();
  #closed = false;

  constructor(options: IdClientOptions, system: System, events: TransportEvents) {
    this.#options = options;
    this.#system = system;
    this.#events = events;
    this.#headers = { ...DEFAULT_HEADER_NAMES, ...options.headers };
    this.#requestTopic = options.requestTopic ?? 'id.requests';
    this.#kafka = options.kafka === undefined ? kafkaOf(options) : options.kafka;
    this.#producer = this.#kafka.producer({
      allowAutoTopicCreation: false,
      createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
      retry: RETRY,
    });
  }

  async connect(): Promise<void> {
    await Promise.all([this.#producer.connect(), this.#reader(this.#options.replyTopic)]);
  }

  async send({ key, value, replyTopic }: Outgoing): Promise<void> {
    const reader = await this.#reader(replyTopic);
    if (this.#closed) throw closed();
    const headers = { [this.#headers.replyPartition]: String(reader.partition) };
    const sending = this.#produce({ key, value, headers });
    this.#sending.add(sending);
    try {
      await sending;
    } catch (error) {
      const message = `the request could not be sent to '${this.#requestTopic}': ${describeError(error)}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    } finally {
      this.#sending.delete(sending);
    }
  }

  async #produce(record: Message): Promise<void> {
    const answers = await this.#producer.send({ topic: this.#requestTopic, acks: -1, messages: [record] });
    // Of a partition without a leader kafkajs sends nothing, and reports nothing.
    if (answers[0]?.errorCode !== 0) throw new Error('no broker took it: its partition has no leader');
  }

  async close(): Promise<void> {
    this.#closed = true;
    const closeReader = (reader: Promise<ReplyReader>) =>
      reader.then(
        (found) => found.close(),
        () => undefined,
      );
    // A record under way may have kafkajs open a connection after the end, which then nobody closes.
    const left = Promise.allSettled(this.#sending).then(() => this.#producer.disconnect());
    await Promise.all([
      inTime(this.#system, CLOSE_TIMEOUT_MS, left).catch(this.#events.onFault),
      ...[...this.#readers.values()].map(closeReader),
    ]);
  }

  /** The reader of a reply topic, which is begun when it is asked for first. */
  #reader(topic: string): Promise<ReplyReader> {
    const known = this.#readers.get(topic);
    if (known !== undefined) return known;
    if (this.#closed) return Promise.reject(closed());
    if (this.#readers.size >= MAX_REPLY_TOPICS) {
      const message = `this client reads ${MAX_REPLY_TOPICS} reply topics already: use another client for '${topic}'`;
      return Promise.reject(new IdallocError('QUEUE_FULL', message));
    }
    const reader = this.#read(topic);
    this.#readers.set(topic, reader);
    reader.catch(() => this.#readers.delete(topic));
    return reader;
  }

  async #read(topic: string): Promise<ReplyReader> {
    const { partition, offset } = await this.#place(topic);
    const reader = new ReplyReader({
      kafka: this.#kafka,
      system: this.#system,
      topic,
      partition,
      offset,
      onMessage: (message) => this.#receive(message),
      onFault: this.#events.onFault,
    });
    try {
      await reader.start();
      return reader;
    } catch (error) {
      await reader.close();
      throw error;
    }
  }

  /** The partition to read, and its end as of now. */
  async #place(topic: string): Promise<{ readonly partition: number; readonly offset: string }> {
    const admin = this.#kafka.admin({ retry: RETRY });
    await admin.connect();
    try {
      const existing = await admin.listTopics();
      const missing = [this.#requestTopic, topic].filter((name) => !existing.includes(name));
      if (missing.length > 0) throw noTopic(missing);
      const ends = await admin.fetchTopicOffsets(topic);
      const chosen = topic === this.#options.replyTopic ? this.#options.partition : undefined;
      const wanted = chosen ?? ends[Math.floor(this.#system.random() * ends.length)]?.partition;
      const end = ends.find(({ partition }) => partition === wanted);
      if (end === undefined) throw new IdallocError('TOPIC_INVALID', `'${topic}' has no partition ${wanted}`);
      return { partition: end.partition, offset: end.high };
    } finally {
      await admin.disconnect();
    }
  }

  #receive({ key, value, headers }: KafkaMessage): void {
    if (key === null || value === null) return;
    this.#events.onReply({ key, value, replayed: Object.hasOwn(headers ?? {}, this.#headers.replayed) });
  }
}

function kafkaOf(options: Extract<IdClientOptions, { readonly brokers: unknown }>): Kafka {
  mendConnections();
  const { brokers, clientId = 'idalloc-client', ssl, sasl } = options;
  return new kafkajs.Kafka({
    clientId,
    brokers: [...brokers],
    ...(ssl === undefined ? {} : { ssl }),
    ...(sasl === undefined ? {} : { sasl }),
    connectionTimeout: CONNECTION_TIMEOUT_MS,
    authenticationTimeout: REQUEST_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    enforceRequestTimeout: true,
    retry: RETRY,
    // A library does not write to its host's output; what matters reaches onFault.
    logLevel: kafkajs.logLevel.NOTHING,
  });
}

function closed(): IdallocError {
  return new IdallocError('CLIENT_CLOSED', 'the client was closed');
}

function noTopic(missing: readonly string[]): IdallocError {
  const names = missing.map((name) => `'${name}'`).join(', ');
  return new IdallocError('TOPIC_INVALID', `no topic ${names}: make it ('idalloc topics init' makes the workers' own)`);
}

import type { Runtime } from '../async/runtime.ts';
import { DEFAULT_HEADER_NAMES, type HeaderNames, readLayoutText, readRetryAfterMs } from '../codec/request-headers.ts';
import { FIRST_SENT } from '../codec/request-origin.ts';
import { describeError, IdallocError } from '../errors.ts';
import { Tail } from '../kafka/loops/tail.ts';
import { UNREADABLE } from '../kafka/records/decode.ts';
import type { FetchedRecord } from '../kafka/records/record.ts';
import { Cluster } from '../kafka/wire/cluster.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';
import { dialerOf } from '../kafka/wire/kafkajs-dialer.ts';
import type { BrokerAddress, Dialer } from '../kafka/wire/port.ts';
import { loginRefused, seedsOf } from '../kafka/wire/settings.ts';
import { accessOf, type IdClientOptions } from './options.ts';
import { findReplyPosition, type ReplyPosition } from './reply-position.ts';
import { RequestSender } from './request-sender.ts';
import type { OutgoingRequest, Transport, TransportEvents } from './transport.ts';

/** The dependencies of a link. */
export interface LinkDependencies {
  readonly dialer: Dialer;
  readonly seeds: readonly BrokerAddress[];
  readonly runtime: Runtime;
}

type LinkOptions = Pick<IdClientOptions, 'replyTopic' | 'partition' | 'requestTopic' | 'headers'>;

const FETCH_WAIT_MS = 500;
const FETCH_BYTES = 8 * 1024 * 1024;
const PARTITION_BYTES = 1024 * 1024;
const MAX_REPLY_TOPICS = 8;
/** Longest time to block the event loop. */
const SLICE_MS = 5;

/** Opens a link to the brokers of the options. Throws IdallocError CONFIG_INVALID, KAFKA_UNAVAILABLE or TOPIC_INVALID. */
export async function connectKafka(
  options: IdClientOptions,
  runtime: Runtime,
  events: TransportEvents,
): Promise<Transport> {
  const { config, brokers } = await accessOf(options);
  return openLink({ dialer: dialerOf(config), seeds: seedsOf(brokers), runtime }, options, events);
}

/**
 * Connects and reads the reply topic from its end. Throws IdallocError CONFIG_INVALID when the login is rejected,
 * KAFKA_UNAVAILABLE or TOPIC_INVALID; all connections are closed then.
 */
export async function openLink(
  wire: LinkDependencies,
  options: LinkOptions,
  events: TransportEvents,
): Promise<Transport> {
  const link = new KafkaLink(wire, options, events);
  try {
    await link.open();
    return link;
  } catch (error) {
    await link.close();
    throw error;
  }
}

/** Sends requests, and reads one partition of each reply topic in use. */
class KafkaLink implements Transport {
  readonly #options: Pick<IdClientOptions, 'replyTopic' | 'partition'>;
  readonly #events: TransportEvents;
  readonly #runtime: Runtime;
  readonly #headers: HeaderNames;
  readonly #requestTopic: string;
  readonly #cluster: Cluster;
  readonly #tail: Tail;
  readonly #sender: RequestSender;
  readonly #positions = new Map<string, Promise<ReplyPosition>>();
  readonly #closing = new AbortController();

  constructor(wire: LinkDependencies, options: LinkOptions, events: TransportEvents) {
    this.#options = options;
    this.#events = events;
    this.#runtime = wire.runtime;
    this.#headers = { ...DEFAULT_HEADER_NAMES, ...options.headers };
    this.#requestTopic = options.requestTopic ?? 'id.requests';
    this.#cluster = new Cluster(wire);
    this.#tail = new Tail({
      cluster: this.#cluster,
      runtime: wire.runtime,
      lane: 'replies',
      isolation: 'read_committed',
      maxWaitMs: FETCH_WAIT_MS,
      maxBytes: FETCH_BYTES,
      maxBytesPerPartition: PARTITION_BYTES,
      onError: (topic, partition, error) =>
        events.onError(unavailable(`partition ${partition} of '${topic}' cannot be read now`, error)),
    });
    this.#sender = new RequestSender({ cluster: this.#cluster, runtime: wire.runtime, topic: this.#requestTopic });
  }

  async open(): Promise<void> {
    await this.#positionOf(this.#options.replyTopic);
  }

  async send({ key, value, replyTopic, firstSentMs, headers: others, isWanted }: OutgoingRequest): Promise<void> {
    const { partition } = await this.#positionOf(replyTopic);
    if (this.#closing.signal.aborted) throw closed();
    const again = firstSentMs === undefined ? {} : { [FIRST_SENT]: String(firstSentMs) };
    const headers = { ...others, [this.#headers.replyPartition]: String(partition), ...again };
    try {
      await this.#sender.send({ key, value, headers }, isWanted);
    } catch (error) {
      throw unavailable(`the request could not be sent to '${this.#requestTopic}'`, error);
    }
  }

  trouble(_replyTopic: string): string | undefined {
    return undefined;
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled([this.#tail.close(), this.#cluster.close()]);
  }

  /** The partition of a reply topic, read from its end at the time of the topic's first request. */
  #positionOf(topic: string): Promise<ReplyPosition> {
    const known = this.#positions.get(topic);
    if (known !== undefined) return known;
    if (this.#closing.signal.aborted) return Promise.reject(closed());
    if (this.#positions.size >= MAX_REPLY_TOPICS) {
      const message = `this client already reads ${MAX_REPLY_TOPICS} reply topics: use another client for '${topic}'`;
      return Promise.reject(new IdallocError('QUEUE_FULL', message));
    }
    const position = this.#follow(topic);
    this.#positions.set(topic, position);
    position.catch(() => this.#positions.delete(topic));
    return position;
  }

  async #follow(topic: string): Promise<ReplyPosition> {
    const { partition, replyTopic } = this.#options;
    const wanted = {
      requestTopic: this.#requestTopic,
      replyTopic: topic,
      partition: topic === replyTopic ? partition : undefined,
      signal: this.#closing.signal,
    };
    const position = await findReplyPosition(this.#cluster, this.#runtime, wanted).catch((error: unknown) => {
      throw error instanceof IdallocError ? error : unavailable(`the replies on '${topic}' cannot be read`, error);
    });
    this.#tail.follow(
      { topic, ...position },
      {
        deliver: ({ records }) => this.#deliver(records),
        // The topic was recreated or truncated: what it has now may be for us, and lost replies are sent again.
        outOfRange: ({ logStart }) => logStart,
      },
    );
    return position;
  }

  /** In slices, so that thousands of replies do not block the service's event loop. */
  async #deliver(records: readonly FetchedRecord[]): Promise<void> {
    const runtime = this.#runtime;
    let beganMs = runtime.monotonicMs();
    for (const record of records) {
      this.#receive(record);
      if (runtime.monotonicMs() - beganMs < SLICE_MS) continue;
      await runtime.nextTurn();
      beganMs = runtime.monotonicMs();
    }
  }

  #receive({ key, value, headers }: FetchedRecord): void {
    if (key === null || value === null) {
      this.#reportUnreadable(headers[UNREADABLE]);
      return;
    }
    const replayed = Object.hasOwn(headers, this.#headers.replayed);
    const layoutText = readLayoutText(headers, this.#headers);
    this.#events.onReply({ key, value, replayed, layoutText, retryAfterMs: readRetryAfterMs(headers, this.#headers) });
  }

  /** Other records without key or value are not replies. */
  #reportUnreadable(reason: FetchedRecord['headers'][string] | undefined): void {
    if (reason === undefined) return;
    this.#events.onError(new IdallocError('MALFORMED_REPLY', `replies can't be read: ${reason}`));
  }
}

function closed(): IdallocError {
  return new IdallocError('CLIENT_CLOSED', 'the client is closed');
}

function unavailable(what: string, cause: unknown): IdallocError {
  if (kafkaErrorCode(cause) === 'LOGIN_REFUSED') return loginRefused(cause, "the client's options ssl and sasl");
  return new IdallocError('KAFKA_UNAVAILABLE', `${what}: ${describeError(cause)}`, { cause });
}

import type { Runtime } from '../async/runtime.ts';
import {
  DEFAULT_HEADER_NAMES,
  FIRST_SENT,
  type HeaderNames,
  readLayoutText,
  readRetryAfterMs,
} from '../codec/request-headers.ts';
import { IdallocError } from '../errors.ts';
import { AppendQueue } from '../kafka/loops/append-queue.ts';
import { append } from '../kafka/loops/leader-calls.ts';
import { UNREADABLE } from '../kafka/records/decode.ts';
import { type FetchedRecord, maxBytesOf, type NewRecord, partitionFor } from '../kafka/records/record.ts';
import { Cluster } from '../kafka/wire/cluster.ts';
import { dialerOf } from '../kafka/wire/kafkajs-dialer.ts';
import type { BrokerAddress, Dialer } from '../kafka/wire/port.ts';
import { accessOf, Bootstrap } from './access.ts';
import { FollowedReplies, linkFailure } from './followed-replies.ts';
import { connectTimeoutOf, type IdClientOptions } from './options.ts';
import { clientClosed } from './refusals.ts';
import type { OutgoingRequest, Transport, TransportEvents } from './requester.ts';
import { inSlices } from './waiting.ts';

/** The dependencies of a link. */
export interface LinkDependencies {
  readonly dialer: Dialer;
  /** Read anew each time. */
  readonly seeds: readonly BrokerAddress[];
  readonly runtime: Runtime;
  /** No broker has answered for a while. */
  readonly onSilence?: () => void;
  readonly onClose?: () => void;
  /** Whether a login that is refused may be another one at the next attempt. */
  readonly isLoginChanging?: boolean;
}

/** As those of IdClient.connect. */
interface LinkOptions {
  readonly replyTopic: string;
  readonly partition?: number | undefined;
  readonly requestTopic?: string | undefined;
  readonly headers?: Partial<HeaderNames> | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Longest time to find the reply topic. */
  readonly timeoutMs?: number | undefined;
}

/** Longer than a long poll. */
const SILENT_MS = 2_000;

/**
 * Opens a link to the brokers of the options. Throws IdallocError CONFIG_INVALID, KAFKA_UNAVAILABLE or TOPIC_INVALID,
 * or the reason of the options' signal.
 */
export async function connectKafka(
  options: IdClientOptions,
  runtime: Runtime,
  events: TransportEvents,
): Promise<Transport> {
  const timeoutMs = connectTimeoutOf(options);
  const untilMs = runtime.monotonicMs() + timeoutMs;
  const { brokers, connection, isChanging } = accessOf(options, runtime);
  const { signal, replyTopic, partition, requestTopic, headers } = options;
  const bootstrap = new Bootstrap(brokers, runtime, events.onError);
  const onClose = () => bootstrap.close();
  signal?.addEventListener('abort', onClose);
  try {
    signal?.throwIfAborted();
    await bootstrap.open(timeoutMs);
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    signal?.removeEventListener('abort', onClose);
  }
  const wire: LinkDependencies = {
    dialer: dialerOf(connection),
    get seeds() {
      return bootstrap.seeds;
    },
    runtime,
    onSilence: () => void bootstrap.findAgain(),
    onClose,
    isLoginChanging: isChanging,
  };
  const known = { replyTopic, partition, requestTopic, headers, signal, timeoutMs: untilMs - runtime.monotonicMs() };
  return openLink(wire, known, events);
}

/**
 * Connects and reads the reply topic from its end. Throws IdallocError CONFIG_INVALID when the login is rejected,
 * KAFKA_UNAVAILABLE or TOPIC_INVALID, or the signal's reason; all connections are closed then.
 */
export async function openLink(
  wire: LinkDependencies,
  options: LinkOptions,
  events: TransportEvents,
): Promise<Transport> {
  const { signal } = options;
  signal?.throwIfAborted();
  const link = new KafkaLink(wire, options, events);
  const close = () => void link.close();
  signal?.addEventListener('abort', close);
  try {
    await link.open();
    return link;
  } catch (error) {
    await link.close();
    signal?.throwIfAborted();
    throw error;
  } finally {
    signal?.removeEventListener('abort', close);
  }
}

/** Sends requests, and reads one partition of each reply topic in use. */
class KafkaLink implements Transport {
  readonly #options: LinkOptions;
  readonly #events: TransportEvents;
  readonly #wire: LinkDependencies;
  readonly #runtime: Runtime;
  readonly #headers: HeaderNames;
  readonly #requestTopic: string;
  readonly #cluster: Cluster;
  readonly #replies: FollowedReplies;
  readonly #sender: RequestSender;
  readonly #openedMs: number;
  #isClosed = false;

  constructor(wire: LinkDependencies, options: LinkOptions, events: TransportEvents) {
    this.#options = options;
    this.#events = events;
    this.#wire = wire;
    this.#runtime = wire.runtime;
    this.#openedMs = wire.runtime.monotonicMs();
    this.#headers = { ...DEFAULT_HEADER_NAMES, ...options.headers };
    this.#requestTopic = options.requestTopic ?? 'id.requests';
    this.#cluster = new Cluster(wire);
    this.#replies = new FollowedReplies({
      cluster: this.#cluster,
      runtime: wire.runtime,
      requestTopic: this.#requestTopic,
      replyTopic: options.replyTopic,
      partition: options.partition,
      isLoginChanging: wire.isLoginChanging ?? false,
      events,
      deliver: (records) => this.#deliver(records),
      onFailure: () => this.#failed(),
    });
    this.#sender = new RequestSender({ cluster: this.#cluster, runtime: wire.runtime, topic: this.#requestTopic });
  }

  async open(): Promise<void> {
    const { replyTopic, timeoutMs } = this.#options;
    await this.#replies.positionOf(replyTopic, timeoutMs);
  }

  async send({ key, value, correlationId, replyTopic, firstSentMs, ...rest }: OutgoingRequest): Promise<void> {
    const { partition } = await this.#replies.positionOf(replyTopic);
    if (this.#isClosed) throw clientClosed();
    const again = firstSentMs === undefined ? {} : { [FIRST_SENT]: String(firstSentMs) };
    const names = this.#headers;
    // The correlation ID is in a header, so that workers recognise requests that differ in nothing else by their bytes.
    const own = { [names.correlationId]: correlationId, [names.replyPartition]: String(partition) };
    try {
      await this.#sender.send({ key, value, headers: { ...rest.headers, ...own, ...again } }, rest.isWanted);
    } catch (error) {
      this.#failed();
      throw linkFailure(`the request could not be sent to '${this.#requestTopic}'`, error);
    }
  }

  partitionOf(key: Buffer): number | undefined {
    return this.#sender.partitionOf(key);
  }

  trouble(replyTopic: string): string | undefined {
    return this.#replies.trouble(replyTopic);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#wire.onClose?.();
    await Promise.allSettled([this.#replies.close(), this.#cluster.close()]);
  }

  /** A call has failed. If none succeeds, the brokers may have moved. */
  #failed(): void {
    const { lastResponseMs = this.#openedMs } = this.#cluster;
    if (this.#runtime.monotonicMs() - lastResponseMs >= SILENT_MS) this.#wire.onSilence?.();
  }

  /** In slices, so that thousands of replies do not block the service's event loop. */
  async #deliver(records: readonly FetchedRecord[]): Promise<void> {
    await inSlices(records, this.#runtime, (record) => this.#receive(record));
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

export interface RequestSenderOptions {
  readonly cluster: Pick<Cluster, 'partitions' | 'leader' | 'call' | 'markStale'>;
  readonly runtime: Runtime;
  readonly topic: string;
}

/** Limits of one append: far below any topic's limit, far above what arrives during one append. */
const MAX_RECORDS = 500;
const MAX_BYTES = 64_000;
const APPEND_TIMEOUT_MS = 5_000;
/** How long the broker may wait for its replicas: less than we wait for the broker. */
const REPLICATION_TIMEOUT_MS = 4_000;
/** Appends requests to the request topic, by one queue for each partition. Nothing is retried here. */
export class RequestSender {
  readonly #options: RequestSenderOptions;
  readonly #queues = new Map<number, AppendQueue>();
  /** How many the topic had when the last request was sent. */
  #partitions: number | undefined;

  constructor(options: RequestSenderOptions) {
    this.#options = options;
  }

  /** Resolves when the request is in the log, or is no longer wanted. Rejects with KafkaError. */
  async send(record: NewRecord & { readonly key: Buffer }, isWanted: () => boolean): Promise<void> {
    const { cluster, topic } = this.#options;
    const partitions = await cluster.partitions(topic, APPEND_TIMEOUT_MS);
    this.#partitions = partitions;
    await this.#queue(partitionFor(record.key, partitions, () => 0)).add([record], maxBytesOf(record), isWanted);
  }

  /** The partition for requests with this key; undefined before the first one is sent. */
  partitionOf(key: Buffer): number | undefined {
    return this.#partitions === undefined ? undefined : partitionFor(key, this.#partitions, () => 0);
  }

  #queue(partition: number): AppendQueue {
    const known = this.#queues.get(partition);
    if (known !== undefined) return known;
    const { cluster, runtime, topic } = this.#options;
    const limits = { timeoutMs: APPEND_TIMEOUT_MS, replicationTimeoutMs: REPLICATION_TIMEOUT_MS };
    const queue = new AppendQueue({
      runtime,
      append: async (records) => {
        await append(cluster, runtime, { topic, partition, records, purpose: 'append', ...limits });
      },
      maxRecords: MAX_RECORDS,
      maxBytes: MAX_BYTES,
    });
    this.#queues.set(partition, queue);
    return queue;
  }
}

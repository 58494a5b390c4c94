import type { Runtime } from '../async/runtime.ts';
import {
  DEFAULT_HEADER_NAMES,
  FIRST_SENT,
  type HeaderNames,
  readLayoutText,
  readRetryAfterMs,
} from '../codec/request-headers.ts';
import { IdallocError } from '../errors.ts';
import { UNREADABLE } from '../kafka/records/decode.ts';
import type { FetchedRecord } from '../kafka/records/record.ts';
import { Cluster } from '../kafka/wire/cluster.ts';
import { dialerOf } from '../kafka/wire/kafkajs-dialer.ts';
import type { BrokerAddress, Dialer } from '../kafka/wire/port.ts';
import { accessOf, Bootstrap } from './access.ts';
import { FollowedReplies, linkFailure } from './followed-replies.ts';
import { connectTimeoutOf, type IdClientOptions } from './options.ts';
import { clientClosed } from './refusals.ts';
import { RequestSender } from './request-sender.ts';
import type { OutgoingRequest, Transport, TransportEvents } from './transport.ts';
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

  async send({ key, value, replyTopic, firstSentMs, headers: others, isWanted }: OutgoingRequest): Promise<void> {
    const { partition } = await this.#replies.positionOf(replyTopic);
    if (this.#isClosed) throw clientClosed();
    const again = firstSentMs === undefined ? {} : { [FIRST_SENT]: String(firstSentMs) };
    const headers = { ...others, [this.#headers.replyPartition]: String(partition), ...again };
    try {
      await this.#sender.send({ key, value, headers }, isWanted);
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

import { retrying } from '../../async/retrying.ts';
import type { Runtime } from '../../async/runtime.ts';
import { EMPTY_MARKER } from '../../codec/ledger-entry.ts';
import { ANSWERED_HEADER, type CommittedPosition, encodeAnswered } from '../../codec/request-position.ts';
import type { DriftSample } from '../../core/clock-guard.ts';
import { type Reading, wallMs } from '../../core/units.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { append, END, offsetAt } from '../../kafka/loops/leader-calls.ts';
import { encodeBatch } from '../../kafka/records/encode.ts';
import type { NewRecord } from '../../kafka/records/record.ts';
import type { Cluster } from '../../kafka/wire/cluster.ts';
import type { Appended, LedgerLog, NewEntry } from '../../ledger/ledger-ports.ts';
import { isTransient, isWriteOver } from './brokers.ts';

export interface KafkaLedgerLogOptions {
  readonly cluster: Pick<Cluster, 'leader' | 'call' | 'markStale' | 'metadata'>;
  readonly runtime: Runtime;
  readonly topic: string;
  readonly requestTopic: string;
  readonly readClock: () => Reading;
  /** Gets a sample of the broker's clock from each response. */
  readonly onDriftSample: (sample: DriftSample) => void;
  /** What this worker has answered of the partition's requests; undefined while it does not know. */
  readonly answered: (partition: number) => CommittedPosition | undefined;
}

/** The time limit of an append with its retries: a silent broker blocks a partition no longer than this. */
const APPEND_TIMEOUT_MS = 5_000;
/** How long a broker may wait for its followers before it answers. */
const REPLICATION_TIMEOUT_MS = 4_000;
/** The time limit of reading the end of a partition, with retries. */
const OFFSET_TIMEOUT_MS = 5_000;
const ONE_OFFSET_TIMEOUT_MS = 1_500;
const METADATA_TIMEOUT_MS = 5_000;
/** For this long an isolated broker may believe that it still leads, and return an outdated end. */
const DEPOSED_MS = 10_000;
const RETRY_DELAY_MS = 500;
/** The most brokers whose clocks are sampled at a time: the median of five tolerates two that are wrong. */
const MAX_SAMPLED = 5;
/** How long after the first response the others are waited for. */
const LATE_RESPONSE_MS = 1_500;

interface Timed {
  readonly appended: Appended;
  readonly sample: DriftSample;
}

/** Writes the ledger topic. One record batch per append, neither idempotent nor transactional. */
export class KafkaLedgerLog implements LedgerLog {
  readonly #options: KafkaLedgerLogOptions;
  /** Of the leaders, how many were sampled: the next ones are sampled next, so that each is in its turn. */
  #sampled = 0;

  constructor(options: KafkaLedgerLogOptions) {
    this.#options = options;
  }

  /**
   * The first entry also says what is answered, should the group's committed offset be lost or moved by another
   * program.
   */
  async append(partition: number, entries: readonly NewEntry[]): Promise<Appended> {
    const { answered, onDriftSample } = this.#options;
    const position = answered(partition);
    const firstHeaders = position && { [ANSWERED_HEADER]: encodeAnswered(position) };
    const { appended, sample } = await this.#timedAppend(partition, entries, firstHeaders);
    onDriftSample(sample);
    return appended;
  }

  /**
   * Samples the clocks of the leaders of the ledger by appending an empty marker: no other response of a broker
   * contains its time. Resolves with one sample per response, once most have answered or the others are too late;
   * onDriftSample does not get them. Rejects with APPEND_UNANSWERED or KAFKA_UNAVAILABLE if none answers.
   */
  async sampleBrokerClocks(): Promise<readonly DriftSample[]> {
    const partitions = await this.#onePartitionOfEachLeader();
    if (partitions.length === 0) {
      throw new IdallocError('KAFKA_UNAVAILABLE', `no partition of ${this.#options.topic} has a leader`);
    }
    const appends = partitions.map((partition) => this.#timedAppend(partition, [{ key: null, value: EMPTY_MARKER }]));
    const responses = await mostOf(this.#options.runtime, appends);
    return responses.map(({ sample }) => sample);
  }

  endOffset(partition: number, known = 0): Promise<number> {
    return this.#endFrom(this.#options.topic, partition, known);
  }

  requestEnd(partition: number, known: number): Promise<number> {
    return this.#endFrom(this.#options.requestTopic, partition, known + 1);
  }

  /** The end of a partition; one below `least` is requested again for a while. */
  async #endFrom(topic: string, partition: number, least: number): Promise<number> {
    const { cluster, runtime } = this.#options;
    const untilMs = runtime.monotonicMs() + DEPOSED_MS;
    for (;;) {
      const end = await this.#endOf(topic, partition);
      if (end >= least || runtime.monotonicMs() >= untilMs) return end;
      cluster.markStale(topic);
      await runtime.sleep(RETRY_DELAY_MS);
    }
  }

  async #onePartitionOfEachLeader(): Promise<number[]> {
    const { cluster, topic } = this.#options;
    const { topics } = await cluster.metadata([topic], METADATA_TIMEOUT_MS).catch((error: unknown) => {
      const message = `no broker reports the time: ${describeError(error)}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    });
    const partitions = topics.find(({ name }) => name === topic)?.partitions ?? [];
    const byLeader = new Map(partitions.map(({ partition, leader }) => [leader, partition]));
    byLeader.delete(-1); // no leader
    const all = [...byLeader.values()];
    const from = all.length > MAX_SAMPLED ? this.#sampled % all.length : 0;
    this.#sampled += MAX_SAMPLED;
    return [...all.slice(from), ...all.slice(0, from)].slice(0, MAX_SAMPLED);
  }

  async #timedAppend(
    partition: number,
    entries: readonly NewRecord[],
    firstHeaders?: NewRecord['headers'],
  ): Promise<Timed> {
    const { cluster, runtime, topic, readClock } = this.#options;
    const batch = encodeBatch(entries, runtime.wallMs(), firstHeaders);
    try {
      return await retrying(runtime, { timeoutMs: APPEND_TIMEOUT_MS, isTransient: isWriteOver }, async (timeoutMs) => {
        const sent = readClock();
        const appending = {
          topic,
          partition,
          purpose: 'append' as const,
          timeoutMs,
          replicationTimeoutMs: REPLICATION_TIMEOUT_MS,
        };
        const { baseOffset, appendedAtMs, node } = await append(cluster, runtime, { ...appending, batch });
        const received = readClock();
        requireStamped(appendedAtMs);
        return {
          appended: { baseOffset: safeOffset(baseOffset), appendedAtMs },
          sample: { broker: String(node), sent: sent.wall, received: received.wall, appended: wallMs(appendedAtMs) },
        };
      });
    } catch (error) {
      if (error instanceof IdallocError) throw error;
      const message = `the ledger did not answer an append: ${describeError(error)}`;
      throw new IdallocError('APPEND_UNANSWERED', message, { cause: error });
    }
  }

  async #endOf(topic: string, partition: number): Promise<number> {
    const { cluster, runtime } = this.#options;
    try {
      return await retrying(runtime, { timeoutMs: OFFSET_TIMEOUT_MS, isTransient }, async (leftMs) => {
        const timeoutMs = Math.min(leftMs, ONE_OFFSET_TIMEOUT_MS);
        return safeOffset(
          await offsetAt(cluster, runtime, { topic, partition, isolation: 'read_uncommitted', timeoutMs }, END),
        );
      });
    } catch (error) {
      if (error instanceof IdallocError) throw error;
      const message = `the end of partition ${partition} of topic '${topic}' is unknown: ${describeError(error)}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
  }
}

function requireStamped(appendedAtMs: number): void {
  if (appendedAtMs >= 0) return;
  throw new IdallocError(
    'LEDGER_WEAK',
    "the ledger topic does not use the brokers' timestamps: set its message.timestamp.type to LogAppendTime",
  );
}

/** Throws LEDGER_UNREADABLE for a number that is not an offset, such as -1. */
function safeOffset(offset: number): number {
  if (Number.isSafeInteger(offset) && offset >= 0) return offset;
  throw new IdallocError('LEDGER_UNREADABLE', `Kafka returned invalid offset ${offset}`);
}

/**
 * The results of more than half of the promises; fewer once all have settled, or STRAGGLER_MS after the first resolved.
 * Rejects if none resolves.
 */
function mostOf<T>(runtime: Runtime, promises: readonly Promise<T>[]): Promise<readonly T[]> {
  const { promise, resolve, reject } = Promise.withResolvers<readonly T[]>();
  const responses: T[] = [];
  let left = promises.length;
  let late: { cancel(): void } | undefined;
  const settled = (error?: unknown) => {
    left -= 1;
    if (responses.length > 0) late ??= runtime.schedule(LATE_RESPONSE_MS, () => resolve([...responses]));
    if (left > 0 && responses.length <= promises.length / 2) return;
    late?.cancel();
    if (responses.length > 0) resolve([...responses]);
    else reject(error);
  };
  for (const one of promises) {
    one.then((response) => {
      responses.push(response);
      settled();
    }, settled);
  }
  return promise;
}

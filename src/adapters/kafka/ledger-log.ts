import type { Admin, ITopicMetadata, Producer, RecordMetadata } from 'kafkajs';
import { encodeLedgerEntry } from '../../codec/ledger-entry.ts';
import type { DriftSample } from '../../core/clock-guard.ts';
import type { Reading } from '../../core/units.ts';
import { wallMs } from '../../core/units.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { Appended, LedgerLog } from '../../pipeline/ports.ts';

export interface KafkaLedgerLogOptions {
  /** Not idempotent and not transactional: the first entry of a key decides, so a doubled append is harmless. */
  readonly producer: Producer;
  readonly admin: Admin;
  readonly topic: string;
  readonly requestTopic: string;
  readonly readClock: () => Reading;
  /** Each answer tells the broker's clock. */
  readonly onDriftSample: (sample: DriftSample) => void;
}

/** How long a broker may wait for its followers before it answers. */
const REPLICATION_TIMEOUT_MS = 5_000;
/** So many brokers are asked for the time: the median of five stands two that are wrong. */
const MAX_ASKED = 5;
/** A marker that tells nothing of the log, wherever it lies: whoever wrote it had read nothing. */
const EMPTY_MARKER = encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 });

/** The ledger topic, written through kafkajs. */
export class KafkaLedgerLog implements LedgerLog {
  readonly #options: KafkaLedgerLogOptions;
  #leaders: ReadonlyMap<number, number> = new Map();

  constructor(options: KafkaLedgerLogOptions) {
    this.#options = options;
  }

  async append(partition: number, entries: readonly { key: Buffer | null; value: Buffer }[]): Promise<Appended> {
    const { appended, sample } = await this.#timedAppend(partition, entries);
    this.#options.onDriftSample(sample);
    return appended;
  }

  /**
   * Asks the leaders of the ledger for the time, by an entry that says nothing: no other answer of a broker tells its
   * clock. One sample for each that answered, which nobody else is told of. Rejects with APPEND_UNANSWERED or
   * KAFKA_UNAVAILABLE when none did.
   */
  async askClocks(): Promise<readonly DriftSample[]> {
    const { admin, topic } = this.#options;
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] }).catch((error: unknown) => {
      throw new IdallocError('KAFKA_UNAVAILABLE', `no broker tells the time: ${describeError(error)}`, {
        cause: error,
      });
    });
    this.learnLeaders(topics);
    const partitions = new Map([...this.#leaders].map(([partition, leader]) => [leader, partition]));
    partitions.delete(-1); // no leader
    const asked = [...partitions.values()].slice(0, MAX_ASKED).map((partition) => {
      return this.#timedAppend(partition, [{ key: null, value: EMPTY_MARKER }]);
    });
    const answers = await Promise.allSettled(asked);
    const samples = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value.sample] : []));
    if (samples.length > 0) return samples;
    const failed = answers.find((answer) => answer.status === 'rejected');
    throw failed?.reason ?? new IdallocError('KAFKA_UNAVAILABLE', `no partition of ${topic} has a leader`);
  }

  async #timedAppend(
    partition: number,
    entries: readonly { key: Buffer | null; value: Buffer }[],
  ): Promise<{ readonly appended: Appended; readonly sample: DriftSample }> {
    const { producer, topic, readClock } = this.#options;
    const sent = readClock();
    const answer = await this.#send(() =>
      producer.send({
        topic,
        acks: -1,
        timeout: REPLICATION_TIMEOUT_MS,
        messages: entries.map(({ key, value }) => ({ key, value, partition })),
      }),
    );
    const appended = readAnswer(answer, partition);
    const received = readClock();
    const sample = {
      broker: String(this.#leaders.get(partition) ?? 'unknown'),
      sent: sent.wall,
      received: received.wall,
      appended: wallMs(appended.appendedAtMs),
    };
    return { appended, sample };
  }

  endOffset(partition: number): Promise<number> {
    return this.#endOf(this.#options.topic, partition);
  }

  requestEnd(partition: number): Promise<number> {
    return this.#endOf(this.#options.requestTopic, partition);
  }

  /** Takes which broker leads each partition, by which the brokers' clocks are told apart. */
  learnLeaders(topics: readonly ITopicMetadata[]): void {
    const partitions = topics.filter(({ name }) => name === this.#options.topic).flatMap((topic) => topic.partitions);
    this.#leaders = new Map(partitions.map(({ partitionId, leader }) => [partitionId, leader]));
  }

  async #endOf(topic: string, partition: number): Promise<number> {
    const offsets = await this.#options.admin.fetchTopicOffsets(topic);
    const found = offsets.find((offset) => offset.partition === partition);
    if (found === undefined) throw new IdallocError('TOPIC_INVALID', `topic ${topic} has no partition ${partition}`);
    return safeOffset(found.high);
  }

  async #send(send: () => Promise<RecordMetadata[]>): Promise<RecordMetadata[]> {
    try {
      return await send();
    } catch (error) {
      throw new IdallocError('APPEND_UNANSWERED', `the ledger gave no answer to an append: ${describeError(error)}`, {
        cause: error,
      });
    }
  }
}

/** Anything but exactly one good answer for the partition counts as no answer. */
function readAnswer(answer: readonly RecordMetadata[], partition: number): Appended {
  const [only] = answer;
  const good = answer.length === 1 && only?.errorCode === 0 && only.partition === partition;
  if (!good || only.baseOffset === undefined || only.logAppendTime === undefined) {
    throw new IdallocError(
      'APPEND_UNANSWERED',
      `the ledger's answer to an append can't be relied on: ${JSON.stringify(answer)}`,
    );
  }
  const appendedAtMs = Number(only.logAppendTime);
  if (appendedAtMs < 0) {
    throw new IdallocError(
      'LEDGER_WEAK',
      'the ledger topic does not stamp its entries: set its message.timestamp.type to LogAppendTime',
    );
  }
  return { baseOffset: safeOffset(only.baseOffset), appendedAtMs };
}

/** An offset as a number. Throws LEDGER_UNREADABLE outside [0, 2^53). */
export function safeOffset(text: string): number {
  const offset = Number(text);
  if (Number.isSafeInteger(offset) && offset >= 0) return offset;
  throw new IdallocError('LEDGER_UNREADABLE', `Kafka gave the offset ${text}, which is none`);
}

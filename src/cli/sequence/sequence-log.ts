import {
  offsetAtTime,
  offsetsAtTime,
  partitionsOf,
  type Source,
  type Span,
  wholePartition,
  wholeTopic,
} from '../../adapters/kafka/topics/offsets.ts';
import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { retentionOf } from '../../adapters/kafka/topics/topics.ts';
import type { Pending, PendingNumbers } from '../../codec/sequence-head.ts';
import type { KafkaConfig } from '../../config/config.ts';
import { statedOf } from '../../core/sequence.ts';
import { partitionFor } from '../../kafka/records/partitioner.ts';
import { PartitionReading } from './partition-reading.ts';
import { StatedPart, statedSinceMs } from './stated-part.ts';

/** The partition of the ledger that a sequence, or what else names a request, lives in. */
export async function homePartition(source: Source, ledger: string, name: string | Buffer): Promise<number> {
  const key = typeof name === 'string' ? Buffer.from(name, 'latin1') : name;
  return partitionFor(key, await partitionsOf(source, ledger), () => 0);
}

export interface SequenceLogOptions {
  readonly source: Source;
  readonly topics: Pick<KafkaConfig['topics'], 'ledger' | 'ledgerRetentionMs'>;
  /** Reads the spans, and gives each record to `take`, in log order. */
  readonly read: (spans: readonly Span[], take: (record: TopicRecord) => undefined) => Promise<void>;
}

/** What the ledger says of its sequences, in some or all partitions, and up to where it was read. */
export class SequenceLog {
  readonly #options: SequenceLogOptions;
  readonly #readings = new Map<number, PartitionReading>();

  constructor(options: SequenceLogOptions) {
    this.#options = options;
  }

  /** What was read of a partition. Throws TypeError if nothing was. */
  reading(partition: number): PartitionReading {
    const reading = this.#readings.get(partition);
    if (reading === undefined) throw new TypeError(`nothing was read of ledger partition ${partition}`);
    return reading;
  }

  /** Reads all that the ledger has. */
  async readAll(): Promise<void> {
    const spans = await wholeTopic(this.#options.source, this.#topic);
    await this.#read(spans.map((span) => [span, new PartitionReading(span, { isWhole: true })]));
  }

  /**
   * Reads of each partition the part in which workers have stated all that they serve, and all of it where the part does not show that
   * they did. Returns the time at which the parts begin, in milliseconds.
   */
  async readStated(partitions?: ReadonlySet<number>): Promise<number> {
    const { source } = this.#options;
    const { sinceMs, stated } = await this.#statedPart();
    const all = await wholeTopic(source, this.#topic);
    const spans = all.filter(({ partition }) => partitions?.has(partition) ?? true);
    const starts = await offsetsAtTime(source, this.#topic, sinceMs);
    const parts = spans.map((span) => partOf(span, starts.get(span.partition)));
    await this.#read(
      parts.map((part, i) => [part, new PartitionReading(part, { isWhole: part.from === spans[i]?.from })]),
      stated,
    );
    const unknown = spans.filter(({ partition }) => !this.reading(partition).isWhole && !stated.has(partition));
    await this.#read(unknown.map((span) => [span, new PartitionReading(span, { isWhole: true })]));
    return sinceMs;
  }

  /**
   * Reads the home partition of a sequence to its end. At first only the part in which each sequence that is served was stated again;
   * if that does not have this one, all of it. Of a name that should be new, that is also enough if the part has all that are served:
   * if the ledger has it all the same, no reader sets it back.
   */
  async readHome(partition: number, name: string, isNew = false): Promise<void> {
    const { source } = this.#options;
    const { sinceMs, stated } = await this.#statedPart();
    const whole = await wholePartition(source, this.#topic, partition);
    const part = partOf(whole, await offsetAtTime(source, this.#topic, partition, sinceMs));
    const reading = new PartitionReading(part, { isWhole: part.from === whole.from });
    await this.#read([[part, reading]], stated);
    const isFound = statedOf(reading.rows.get(name)) !== undefined;
    if (reading.isWhole || isFound || (isNew && stated.has(partition))) return;
    await this.readWhole(partition);
  }

  /** Likewise, and so much that the keys of what is pending of the sequence are known. */
  async readFor(partition: number, name: string, pending: readonly Pending[]): Promise<void> {
    await this.readHome(partition, name);
    const own = pending.flatMap((one) => (one.kind === 'numbers' && one.sequence === name ? [one] : []));
    if (!own.every((one) => this.reading(partition).knows(one))) await this.readWhole(partition, own);
  }

  /** Reads all that a partition has, so that the keys of these are known from then on. */
  async readWhole(partition: number, watched: readonly PendingNumbers[] = []): Promise<void> {
    const span = await wholePartition(this.#options.source, this.#topic, partition);
    await this.#read([[span, new PartitionReading(span, { isWhole: true, watched })]]);
  }

  /** Reads what was appended since; everything, if the log has become shorter. */
  async readOn(partition: number): Promise<void> {
    const reading = this.reading(partition);
    const whole = await wholePartition(this.#options.source, this.#topic, partition);
    if (whole.to < reading.end) return await this.readWhole(partition);
    await this.#read([[{ ...whole, from: Math.max(whole.from, reading.end) }, reading]]);
  }

  get #topic(): string {
    return this.#options.topics.ledger;
  }

  /** Workers go by the variable; the topic may have been changed, and this process may lack the variable. */
  async #statedPart(): Promise<{ readonly sinceMs: number; readonly stated: StatedPart }> {
    const { source, topics } = this.#options;
    const all = [topics.ledgerRetentionMs, (await retentionOf(source, this.#topic)) ?? 0];
    const retentionMs = all.includes(-1) ? -1 : Math.max(...all);
    const sinceMs = statedSinceMs(source.runtime.wallMs(), retentionMs);
    return { sinceMs, stated: new StatedPart(sinceMs, retentionMs) };
  }

  /** Until the spans are read, what was read of the partitions before is what is known. */
  async #read(works: readonly (readonly [Span, PartitionReading])[], stated?: StatedPart): Promise<void> {
    const readings = new Map(works.map(([{ partition }, reading]) => [partition, reading]));
    await this.#options.read(
      works.map(([span]) => span),
      (record) => {
        readings.get(record.partition)?.take(record, stated);
        return undefined;
      },
    );
    for (const [{ partition, to }, reading] of works) {
      reading.end = Math.max(reading.end, to);
      this.#readings.set(partition, reading);
    }
  }
}

function partOf(whole: Span, start: number | undefined): Span {
  return { ...whole, from: Math.max(whole.from, start ?? whole.from) };
}

import { offsetsAtTime, type Source, type Span, wholeTopic } from '../../adapters/kafka/topics/offsets.ts';
import { readSpans, type TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { encodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { encodeStatementKey, readLedgerKey } from '../../codec/ledger-key.ts';
import { countsAt, readLedgerPosition } from '../../codec/ledger-position.ts';
import { RENEWAL } from '../../codec/sequence-entry.ts';
import type { KafkaConfig } from '../../config/config.ts';
import { afterNumbers, afterStatement, type SequenceRow, type Statement } from '../../core/sequence.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { append } from '../../kafka/loops/leader-calls.ts';
import { partitionFor } from '../../kafka/records/partitioner.ts';
import { kafkaErrorCode } from '../../kafka/wire/kafka-error.ts';

export interface LogTools {
  readonly source: Source;
  readonly config: KafkaConfig;
  readonly signal: AbortSignal;
  readonly onProgress: (done: number, total: number) => void;
}

/** Rows by name, with the partition of each. */
export type Rows = Map<string, { readonly partition: number; readonly row: SequenceRow }>;

/** Workers state a sequence again when its statement is a quarter of the ledger's retention old, an hour later at most. */
const RESTATED_WITHIN = 1 / 4;
const MARKER_MS = 2 * 3_600_000;
/** Another append may come first, each time. */
const MAX_TRIES = 50;
const APPEND_TIMEOUT_MS = 10_000;
const REPLICATION_TIMEOUT_MS = 5_000;

/** What the ledger says of its sequences, in some or all partitions, and up to where it was read. */
export class SequenceLog {
  readonly #tools: LogTools;
  readonly rows: Rows = new Map();
  /** The next offset to read, by partition. */
  readonly #ends = new Map<number, number>();

  constructor(tools: LogTools) {
    this.#tools = tools;
  }

  get #topic(): string {
    return this.#tools.config.topics.ledger;
  }

  /** The partition of a sequence. */
  async homeOf(name: string): Promise<number> {
    const whole = await wholeTopic(this.#tools.source, this.#topic);
    return partitionFor(Buffer.from(name, 'latin1'), whole.length, () => 0);
  }

  /**
   * Reads to the end. At first only the part in which each sequence that is served was stated again; if that does not have
   * `name`, or with `everything`, all that the ledger has.
   */
  async read(partition: number | undefined, { name, everything = false }: { name?: string; everything?: boolean }) {
    const { source, config } = this.#tools;
    const whole = await wholeTopic(source, this.#topic);
    const wanted = whole.filter((span) => partition === undefined || span.partition === partition);
    const sinceMs = source.runtime.wallMs() - config.topics.ledgerRetentionMs * RESTATED_WITHIN - MARKER_MS;
    const recent = everything ? undefined : await offsetsAtTime(source, this.#topic, sinceMs);
    await this.#readSpans(wanted.map((span) => ({ ...span, from: recent?.get(span.partition) ?? span.from })));
    if (everything || name === undefined || this.rows.has(name)) return;
    this.rows.clear();
    await this.#readSpans(wanted);
  }

  /** Reads what was appended since. */
  async readOn(partition: number): Promise<number> {
    const whole = await wholeTopic(this.#tools.source, this.#topic);
    const span = whole.find((one) => one.partition === partition) as Span;
    await this.#readSpans([{ ...span, from: Math.max(span.from, this.#ends.get(partition) ?? span.from) }]);
    return this.#ends.get(partition) ?? span.to;
  }

  /**
   * Appends what `change` makes of the sequence, for the end of the log, until it counts.
   *
   * @throws IdallocError of `change`; OVERTAKEN if other appends always came first; KAFKA_UNAVAILABLE.
   */
  async state(name: string, partition: number, change: (row: SequenceRow | undefined) => Statement): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const at = await this.readOn(partition);
      const entry = { kind: 'statement', end: 0, through: -1, at, ...change(this.rows.get(name)?.row) } as const;
      const baseOffset = await this.#append(partition, encodeStatementKey(name), encodeLedgerEntry(entry));
      if (baseOffset === at) {
        await this.readOn(partition);
        return;
      }
    }
    const message = `other appends to ledger partition ${partition} came before each of ${MAX_TRIES} of this command: run it again while fewer requests arrive`;
    throw new IdallocError('OVERTAKEN', message);
  }

  async #append(partition: number, key: Buffer, value: Buffer): Promise<number> {
    const { cluster, runtime } = this.#tools.source;
    const limits = { timeoutMs: APPEND_TIMEOUT_MS, replicationTimeoutMs: REPLICATION_TIMEOUT_MS };
    try {
      const appending = { topic: this.#topic, partition, lane: 'append', ...limits } as const;
      return (await append(cluster, runtime, { ...appending, records: [{ key, value }] })).baseOffset;
    } catch (error) {
      if (kafkaErrorCode(error) === 'TOPIC_AUTHORIZATION_FAILED') {
        const remedy = 'the role admin may: see idalloc topics acls';
        throw new IdallocError('TOPIC_INVALID', `this login may not write topic '${this.#topic}': ${remedy}`);
      }
      const message = `the ledger did not answer (${describeError(error)}): 'idalloc sequence show' says whether the change took effect`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
  }

  async #readSpans(spans: readonly Span[]): Promise<void> {
    const { source, signal, onProgress } = this.#tools;
    const total = spans.reduce((sum, { from, to }) => sum + Math.max(0, to - from), 0);
    for (const { partition, to } of spans) this.#ends.set(partition, to);
    await readSpans(source, spans, {
      signal,
      take: (records) => {
        for (const record of records) this.#apply(record);
        return false;
      },
      onProgress: (done) => onProgress(done, total),
    });
  }

  /** Records that can't be read are left to an audit. */
  #apply({ partition, offset, key, value, timestampMs }: TopicRecord): void {
    if (key === null || value === null || (key[0] !== 2 && key[0] !== 3)) return;
    const position = readLedgerPosition(value);
    const read = readLedgerKey(key);
    if (read.kind === 'batch' || position.at === RENEWAL || !countsAt(position, offset)) return;
    const before = this.rows.get(read.sequence)?.row;
    const set = (row: SequenceRow) => this.rows.set(read.sequence, { partition, row });
    if (position.kind === 'statement') set(afterStatement(before, position, { offset, appendedAtMs: timestampMs }));
    else if (position.kind === 'numbers' && before !== undefined) set(afterNumbers(before, position));
  }
}

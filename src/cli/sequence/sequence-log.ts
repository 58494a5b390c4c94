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
import { decodeLedgerEntry, encodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { encodeStatementKey, isOfSequence, readLedgerKey } from '../../codec/ledger-key.ts';
import { changesSequence } from '../../codec/ledger-position.ts';
import { type LedgerNumbers, type LedgerStatement, statementHeaders } from '../../codec/sequence-entry.ts';
import { afterRecord, type SequenceRow, type Statement, statedOf } from '../../core/sequence.ts';
import { describeError, IdallocError, unlessInvalid } from '../../errors.ts';
import { append } from '../../kafka/loops/leader-calls.ts';
import { partitionFor } from '../../kafka/records/partitioner.ts';
import { kafkaErrorCode } from '../../kafka/wire/kafka-error.ts';
import { type KafkaSession, readShown } from '../kafka-session.ts';
import { StatedPart, statedSinceMs } from './stated-part.ts';

/** Rows by name, with the partition of each. */
type Rows = Map<string, { readonly partition: number; readonly row: SequenceRow }>;

/** Another append may come first, each time. */
const MAX_TRIES = 50;
const APPEND_TIMEOUT_MS = 10_000;
const REPLICATION_TIMEOUT_MS = 5_000;

/** A record of a sequence. */
type SequenceRecord =
  | { readonly sequence: string; readonly requestId: Buffer; readonly entry: LedgerNumbers }
  | { readonly sequence: string; readonly requestId?: undefined; readonly entry: LedgerStatement };

/** Reads a record of a sequence; undefined for any other, and for one that can't be read, which an audit reports. */
export function sequenceRecord({ key, value, headers }: TopicRecord): SequenceRecord | undefined {
  if (key === null || value === null || !isOfSequence(key)) return undefined;
  return unlessInvalid(() => {
    const read = readLedgerKey(key);
    const entry = decodeLedgerEntry(value, headers);
    if (read.kind === 'numbers' && entry.kind === 'numbers') return { ...read, entry };
    return read.kind === 'statement' && entry.kind === 'statement' ? { ...read, entry } : undefined;
  });
}

/** The partition of the ledger that a sequence lives in. */
export async function homePartition(source: Source, ledger: string, name: string): Promise<number> {
  return partitionFor(Buffer.from(name, 'latin1'), await partitionsOf(source, ledger), () => 0);
}

/** What the ledger says of its sequences, in some or all partitions, and up to where it was read. */
export class SequenceLog {
  readonly #session: KafkaSession;
  /** Those of which only numbers were read are unstated. */
  readonly rows: Rows = new Map();
  /** The next offset to read, by partition. */
  readonly #ends = new Map<number, number>();

  constructor(session: KafkaSession) {
    this.#session = session;
  }

  get #topic(): string {
    return this.#session.config.topics.ledger;
  }

  /** Reads all that the ledger has. */
  async readAll(): Promise<void> {
    await this.#readSpans(await wholeTopic(this.#session.source, this.#topic));
  }

  /**
   * Reads of each partition the part in which workers have stated all that they serve, and all of it where the part does not show that
   * they did. Returns the time at which the parts begin, in milliseconds.
   */
  async readStated(): Promise<number> {
    const { source } = this.#session;
    const { sinceMs, stated } = await this.#statedPart();
    const spans = await wholeTopic(source, this.#topic);
    const starts = await offsetsAtTime(source, this.#topic, sinceMs);
    const startOf = ({ partition, from }: Span) => Math.max(from, starts.get(partition) ?? from);
    await this.#readSpans(
      spans.map((span) => ({ ...span, from: startOf(span) })),
      stated,
    );
    const unknown = spans.filter((span) => startOf(span) > span.from && !stated.has(span.partition));
    for (const [name, { partition }] of this.rows) {
      if (unknown.some((span) => span.partition === partition)) this.rows.delete(name);
    }
    await this.#readSpans(unknown);
    return sinceMs;
  }

  /** Workers go by the variable; the topic may have been changed, and this process may lack the variable. */
  async #statedPart(): Promise<{ readonly sinceMs: number; readonly stated: StatedPart }> {
    const { source, config } = this.#session;
    const all = [config.topics.ledgerRetentionMs, (await retentionOf(source, this.#topic)) ?? 0];
    const retentionMs = all.includes(-1) ? -1 : Math.max(...all);
    const sinceMs = statedSinceMs(source.runtime.wallMs(), retentionMs);
    return { sinceMs, stated: new StatedPart(sinceMs, retentionMs) };
  }

  /**
   * Reads the partition of a sequence to its end, and returns which one that is. At first only the part in which each sequence that is
   * served was stated again; if that does not have this one, all of it. Of a name that should be new, that is also enough if the part
   * has all that are served: if the ledger has it all the same, no reader sets it back.
   */
  async readHome(name: string, isNew = false): Promise<number> {
    const { source } = this.#session;
    const partition = await homePartition(source, this.#topic, name);
    const { sinceMs, stated } = await this.#statedPart();
    const whole = await wholePartition(source, this.#topic, partition);
    const from = Math.max(whole.from, await offsetAtTime(source, this.#topic, partition, sinceMs));
    await this.#readSpans([{ ...whole, from }], stated);
    const isFound = statedOf(this.rows.get(name)?.row) !== undefined;
    if (from === whole.from || isFound || (isNew && stated.has(partition))) return partition;
    this.rows.clear();
    await this.#readSpans([whole]);
    return partition;
  }

  /** Reads what was appended since, and returns the end. */
  async #readOn(partition: number): Promise<number> {
    const whole = await wholePartition(this.#session.source, this.#topic, partition);
    await this.#readSpans([{ ...whole, from: Math.max(whole.from, this.#ends.get(partition) ?? whole.from) }]);
    return whole.to;
  }

  /**
   * Appends what `change` makes of the sequence, for the end of the log, until it counts.
   *
   * @throws IdallocError of `change`; OVERTAKEN if other appends always came first; TOPIC_INVALID, KAFKA_UNAVAILABLE.
   */
  async state(name: string, partition: number, change: (row: SequenceRow | undefined) => Statement): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const at = await this.#readOn(partition);
      const row = this.rows.get(name)?.row;
      const place = { end: 0, through: -1, at, first: row?.known.next, isLoss: false };
      const baseOffset = await this.#append(partition, name, { kind: 'statement', ...place, ...change(row) });
      if (baseOffset !== at) continue;
      await this.#readOn(partition);
      return;
    }
    const message = `other appends to ledger partition ${partition} came before each of ${MAX_TRIES} of this command: run it again while fewer requests arrive`;
    throw new IdallocError('OVERTAKEN', message);
  }

  async #append(partition: number, name: string, entry: LedgerStatement): Promise<number> {
    const record = { key: encodeStatementKey(name), value: encodeLedgerEntry(entry), headers: statementHeaders(entry) };
    const { cluster, runtime } = this.#session.source;
    const limits = { timeoutMs: APPEND_TIMEOUT_MS, replicationTimeoutMs: REPLICATION_TIMEOUT_MS };
    try {
      const appending = { topic: this.#topic, partition, lane: 'append', ...limits } as const;
      return (await append(cluster, runtime, { ...appending, records: [record] })).baseOffset;
    } catch (error) {
      if (kafkaErrorCode(error) === 'TOPIC_AUTHORIZATION_FAILED') {
        const remedy = 'the role admin may: see idalloc topics acls';
        throw new IdallocError('TOPIC_INVALID', `this login may not write topic '${this.#topic}': ${remedy}`);
      }
      const message = `the ledger did not answer (${describeError(error)}): 'idalloc sequence show' says whether the change took effect`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
  }

  async #readSpans(spans: readonly Span[], stated?: StatedPart): Promise<void> {
    for (const { partition, to } of spans) this.#ends.set(partition, to);
    await readShown(this.#session, spans, 'reading the ledger', (record) => {
      this.#apply(record, stated);
    });
  }

  #apply(record: TopicRecord, stated?: StatedPart): void {
    const { partition, offset, timestampMs, key, value } = record;
    if (key === null) stated?.marker(partition, offset, timestampMs, value);
    const read = sequenceRecord(record);
    if (read === undefined || !changesSequence(read.entry, offset)) return;
    if (read.entry.kind === 'statement') stated?.statement(partition, read.entry);
    const before = this.rows.get(read.sequence)?.row;
    const row = afterRecord(before, read.entry, { offset, appendedAtMs: timestampMs });
    if (statedOf(row) === undefined) stated?.lacks(partition);
    this.rows.set(read.sequence, { partition, row });
  }
}

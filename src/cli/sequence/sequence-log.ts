import {
  offsetAtTime,
  offsetsAtTime,
  type Source,
  type Span,
  type TopicRecord,
  wholePartition,
  wholeTopic,
} from '../../adapters/kafka/topics/spans.ts';
import { retentionOf } from '../../adapters/kafka/topics/topics.ts';
import type { Pending, PendingNumbers } from '../../codec/head-values.ts';
import { changesSequence, decodeLedgerEntry, readLedgerPosition } from '../../codec/ledger-entry.ts';
import { isOfSequence, readLedgerKey } from '../../codec/ledger-key.ts';
import { isAdoption } from '../../codec/request-position.ts';
import { type LedgerNumbers, type LedgerStatement, RENEWAL } from '../../codec/sequence-entry.ts';
import type { KafkaConfig } from '../../config/config.ts';
import { afterRecord, MAX_STATEMENTS, restatedAfterMs, type SequenceRow, statedOf } from '../../core/sequence-row.ts';
import { unlessInvalid } from '../../errors.ts';
import { partitionFor } from '../../kafka/records/record.ts';
import type { LogReading } from '../../ledger/sequence-order.ts';

/** Which of so many ledger partitions a sequence, or what else names a request, lives in. */
export function homePartition(name: string | Buffer, partitions: number): number {
  const key = typeof name === 'string' ? Buffer.from(name, 'latin1') : name;
  return partitionFor(key, partitions, () => 0);
}

export interface SequenceLogOptions {
  readonly source: Source;
  /** How many partitions of the ledger are served. The topic may have more, which were added and decide nothing. */
  readonly partitions: number;
  readonly topics: Pick<KafkaConfig['topics'], 'ledger' | 'ledgerRetentionMs'>;
  /** Reads the spans, and gives each record to `take`, in log order. */
  readonly read: (spans: readonly Span[], take: (record: TopicRecord) => void) => Promise<void>;
}

/** What the ledger says of its sequences, in some or all partitions, and up to where it was read. */
export class SequenceLog {
  readonly #options: SequenceLogOptions;
  readonly #readings = new Map<number, PartitionReading>();

  constructor(options: SequenceLogOptions) {
    this.#options = options;
  }

  /** The partition that a sequence lives in. */
  homeOf(sequence: string): number {
    return homePartition(sequence, this.#options.partitions);
  }

  /** The partitions of which something was read, in order. */
  get partitions(): readonly number[] {
    return [...this.#readings.keys()].toSorted((a, b) => a - b);
  }

  /** What was read of a partition. Throws TypeError if nothing was. */
  reading(partition: number): PartitionReading {
    const reading = this.#readings.get(partition);
    if (reading === undefined) throw new TypeError(`nothing was read of ledger partition ${partition}`);
    return reading;
  }

  /** Reads all that the served partitions have. */
  async readAll(): Promise<void> {
    const spans = await this.#served();
    await this.#read(spans.map((span) => [span, new PartitionReading(span, { isWhole: true })]));
  }

  /**
   * Reads of each served partition the part in which workers have stated all that they serve, and all of it where the
   * part does not show that they did. Returns the time at which the parts begin, in milliseconds.
   */
  async readStated(): Promise<number> {
    const { source } = this.#options;
    const { sinceMs, stated } = await this.#statedPart();
    const spans = await this.#served();
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
   * Reads the home partition of a sequence to its end. At first only the part in which each sequence that is served was
   * stated again; if that does not have this one, all of it. Of a name that should be new, that is also enough if the
   * part has all that are served: if the ledger has it all the same, no reader sets it back.
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

  /**
   * Reads the home partition as `readHome` does, and so much of it that the keys of what is pending of the sequence are
   * known.
   */
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

  async #served(): Promise<readonly Span[]> {
    const { source, partitions } = this.#options;
    return (await wholeTopic(source, this.#topic)).filter(({ partition }) => partition < partitions);
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
      (record) => readings.get(record.partition)?.take(record, stated),
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

/** The keys of so many records of numbers stay known: many more than are ever pending. */
const MAX_RECENT = 10_000;

const keyName = (key: Buffer): string => key.toString('latin1');

/** A record of a sequence. */
type NamedRecord =
  | { readonly sequence: string; readonly requestId: Buffer; readonly entry: LedgerNumbers }
  | { readonly sequence: string; readonly requestId?: undefined; readonly entry: LedgerStatement };

/** Reads a record of a sequence; undefined for any other, and for one that can't be read, which an audit reports. */
export function sequenceRecord({ key, value, headers }: TopicRecord): NamedRecord | undefined {
  if (key === null || value === null || !isOfSequence(key)) return undefined;
  return unlessInvalid(() => {
    const read = readLedgerKey(key);
    const entry = decodeLedgerEntry(value, headers);
    if (read.kind === 'numbers' && entry.kind === 'numbers') return { ...read, entry };
    return read.kind === 'statement' && entry.kind === 'statement' ? { ...read, entry } : undefined;
  });
}

/** What was read of one ledger partition, about its sequences. */
export class PartitionReading implements LogReading {
  readonly partition: number;
  /** Whether it was read from the start of the log. */
  readonly isWhole: boolean;
  /** What is known of each sequence. One of which only numbers were read has no statement. */
  readonly rows = new Map<string, SequenceRow>();
  /** The offset behind the last record that was read. */
  end: number;
  /** The first number of each of the latest records, by its key. */
  readonly #recent = new Map<string, number>();
  /** The first number of each record under the keys that are watched. */
  readonly #watched: ReadonlyMap<string, { first: number | undefined }>;
  /**
   * Requests up to here may have been decided by what retention took, or the ledger lost; undefined until a record
   * shows it.
   */
  #horizon: number | undefined;
  #lost = -1;

  /** `watched`: pending numbers whose keys must be known afterwards, in a reading of everything. */
  constructor(
    { partition, from }: { readonly partition: number; readonly from: number },
    { isWhole = false, watched = [] as readonly PendingNumbers[] } = {},
  ) {
    this.partition = partition;
    this.end = from;
    this.isWhole = isWhole;
    this.#watched = new Map(watched.map(({ key }) => [keyName(key), { first: undefined }]));
    if (from === 0) this.#horizon = -1;
  }

  /** Takes each record, in log order. */
  take(record: TopicRecord, stated: StatedPart | undefined): void {
    const { offset, timestampMs, key, value } = record;
    if (key === null) stated?.marker(this.partition, offset, timestampMs, value);
    if (key === null && value !== null) this.#adopt(record, value);
    if (this.isWhole && this.#horizon === undefined && value !== null) this.#anchor(offset, value);
    const read = sequenceRecord(record);
    if (read === undefined || key === null) return;
    const { sequence, entry } = read;
    const isRenewal = entry.at === RENEWAL;
    if (!isRenewal && !changesSequence(entry, offset)) return;
    if (entry.kind === 'numbers') this.#remember(key, entry.first);
    if (isRenewal) return;
    if (entry.kind === 'statement') {
      stated?.statement(this.partition, entry);
      if (entry.isLoss) this.#lost = Math.max(this.#lost, entry.through);
    }
    const row = afterRecord(this.rows.get(sequence), entry, { offset, appendedAtMs: timestampMs });
    if (statedOf(row) === undefined) stated?.lacks(this.partition);
    this.rows.set(sequence, row);
  }

  row(name: string): SequenceRow | undefined {
    return this.rows.get(name);
  }

  knows({ key }: PendingNumbers): boolean {
    const name = keyName(key);
    return this.#recent.has(name) || this.#watched.has(name);
  }

  firstOf({ key }: PendingNumbers): number | undefined {
    const name = keyName(key);
    return this.#watched.get(name)?.first ?? this.#recent.get(name);
  }

  isForgotten(pending: PendingNumbers): boolean {
    return !this.knows(pending) || pending.entry.requestOffset <= Math.max(this.#horizon ?? -1, this.#lost);
  }

  /** What is before an adoption says nothing of today's requests, all of which it covers. */
  #adopt(record: TopicRecord, value: Buffer): void {
    const adopted = unlessInvalid(() => (isAdoption(record) ? readLedgerPosition(value) : undefined));
    if (adopted !== undefined) this.#horizon = this.#lost = adopted.through;
  }

  /** The first record whose writer had read everything before it had read what retention took since. */
  #anchor(offset: number, value: Buffer): void {
    const position = unlessInvalid(() => readLedgerPosition(value)); // an audit reports an invalid one
    if (position?.end === offset) this.#horizon = position.through;
  }

  /** The first record of a key decides. */
  #remember(key: Buffer, first: number): void {
    const name = keyName(key);
    const watched = this.#watched.get(name);
    if (watched !== undefined) watched.first ??= first;
    if (this.#recent.has(name)) return;
    this.#recent.set(name, first);
    if (this.#recent.size <= MAX_RECENT) return;
    const [oldest = ''] = this.#recent.keys();
    this.#recent.delete(oldest);
  }
}

/** Workers write a marker each hour; a late one, and clocks that differ from the brokers', have an hour each. */
const LATE_MS = 3_600_000;
const MARKED_WITHIN_MS = 2 * 3_600_000;

/**
 * The part of a ledger in which workers that run have stated all their sequences: from this time on, in milliseconds.
 */
export function statedSinceMs(nowMs: number, retentionMs: number): number {
  return nowMs - MARKED_WITHIN_MS - LATE_MS - restatedAfterMs(retentionMs);
}

/**
 * Shows whether a part of the ledger, which is read from `sinceMs` on, has a statement of every sequence that workers
 * serve. A marker shows that: its writer had read everything before it, and wrote again, in the same append, each
 * statement that was due.
 */
export class StatedPart {
  readonly #markedFromMs: number;
  /** The last such marker of each partition, and the statements that came with it. */
  readonly #last = new Map<number, { readonly offset: number; statements: number }>();
  readonly #whole = new Set<number>();
  readonly #lacking = new Set<number>();

  constructor(sinceMs: number, retentionMs: number) {
    this.#markedFromMs = sinceMs + LATE_MS + restatedAfterMs(retentionMs);
  }

  /** Takes each record without a key, in log order. */
  marker(partition: number, offset: number, timestampMs: number, value: Buffer | null): void {
    if (timestampMs < this.#markedFromMs || value === null || !isAtItsEnd(value, offset)) return;
    this.#settle(partition);
    this.#last.set(partition, { offset, statements: 0 });
  }

  /** Takes each statement. */
  statement(partition: number, { end }: Pick<LedgerStatement, 'end'>): void {
    const last = this.#last.get(partition);
    if (last?.offset === end) last.statements += 1;
  }

  /** Numbers of a sequence were read, but no statement: workers go by another retention. */
  lacks(partition: number): void {
    this.#lacking.add(partition);
  }

  /** Whether what was read of the partition has them all. */
  has(partition: number): boolean {
    this.#settle(partition);
    return this.#whole.has(partition) && !this.#lacking.has(partition);
  }

  /** A full append leaves statements for the next one. */
  #settle(partition: number): void {
    const last = this.#last.get(partition);
    if (last !== undefined && last.statements < MAX_STATEMENTS) this.#whole.add(partition);
  }
}

function isAtItsEnd(value: Buffer, offset: number): boolean {
  const entry = unlessInvalid(() => decodeLedgerEntry(value)); // an audit reports an invalid one
  return entry?.kind === 'marker' && entry.end === offset;
}

import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { decodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { isOfSequence, readLedgerKey } from '../../codec/ledger-key.ts';
import { changesSequence, readLedgerPosition } from '../../codec/ledger-position.ts';
import { type LedgerNumbers, type LedgerStatement, RENEWAL } from '../../codec/sequence-entry.ts';
import type { PendingNumbers } from '../../codec/sequence-head.ts';
import { afterRecord, type SequenceRow, statedOf } from '../../core/sequence.ts';
import { unlessInvalid } from '../../errors.ts';
import type { LogReading } from '../../ledger/order-view.ts';
import type { StatedPart } from './stated-part.ts';

/** The keys of so many records of numbers stay known: many more than are ever pending. */
const MAX_RECENT = 10_000;

const nameOf = (key: Buffer): string => key.toString('latin1');

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

/** What was read of one ledger partition, about its sequences. */
export class PartitionReading implements LogReading {
  readonly partition: number;
  /** Whether it was read from the start of the log. */
  readonly isWhole: boolean;
  /** Those of which only numbers were read are unstated. */
  readonly rows = new Map<string, SequenceRow>();
  /** The offset behind the last record that was read. */
  end: number;
  /** By key: the first number of each of the latest records. */
  readonly #recent = new Map<string, number>();
  /** Likewise, of the records under the keys that are watched. */
  readonly #watched: ReadonlyMap<string, { first: number | undefined }>;
  /** Requests up to here may have been decided by what retention took, or the ledger lost; undefined until a record shows it. */
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
    this.#watched = new Map(watched.map(({ key }) => [nameOf(key), { first: undefined }]));
    if (from === 0) this.#horizon = -1;
  }

  /** Takes each record, in log order. */
  take(record: TopicRecord, stated: StatedPart | undefined): void {
    const { offset, timestampMs, key, value } = record;
    if (key === null) stated?.marker(this.partition, offset, timestampMs, value);
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
    const name = nameOf(key);
    return this.#recent.has(name) || this.#watched.has(name);
  }

  firstOf({ key }: PendingNumbers): number | undefined {
    const name = nameOf(key);
    return this.#watched.get(name)?.first ?? this.#recent.get(name);
  }

  isForgotten(pending: PendingNumbers): boolean {
    return !this.knows(pending) || pending.entry.requestOffset <= Math.max(this.#horizon ?? -1, this.#lost);
  }

  /** The first record whose writer had read everything before it had read what retention took since. */
  #anchor(offset: number, value: Buffer): void {
    const position = unlessInvalid(() => readLedgerPosition(value)); // an audit reports an invalid one
    if (position?.end === offset) this.#horizon = position.through;
  }

  /** The first record of a key decides. */
  #remember(key: Buffer, first: number): void {
    const name = nameOf(key);
    const watched = this.#watched.get(name);
    if (watched !== undefined) watched.first ??= first;
    if (this.#recent.has(name)) return;
    this.#recent.set(name, first);
    if (this.#recent.size <= MAX_RECENT) return;
    const [oldest = ''] = this.#recent.keys();
    this.#recent.delete(oldest);
  }
}

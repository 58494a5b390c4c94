import { readLedgerKey } from '../../codec/ledger-key.ts';
import { changesSequence, type LedgerPosition, readLedgerPosition } from '../../codec/ledger-position.ts';
import { readReplay } from '../../codec/request-position.ts';
import { IdallocError } from '../../errors.ts';
import type { LedgerRecord } from '../../ledger/ports.ts';

/** Records that follow each other, and what the index takes from each. */
export interface Readings {
  readonly records: readonly LedgerRecord[];
  readonly positions: readonly LedgerPosition[];
  /** What is known of sequences changes with these records; by offset. */
  readonly changes: ReadonlyMap<number, SequenceChange>;
  /** The statements of replays among them; by offset. */
  readonly replays: ReadonlyMap<number, number>;
}

/** A record that changes what is known of a sequence. */
export interface SequenceChange {
  readonly name: string;
  readonly position: Extract<LedgerPosition, { readonly kind: 'numbers' | 'statement' }>;
  readonly place: { readonly offset: number; readonly appendedAtMs: number };
}

/** Throws LEDGER_UNREADABLE for a record that is no entry of a ledger. */
export function readRecords(partition: number, records: readonly LedgerRecord[]): Readings {
  const changes = new Map<number, SequenceChange>();
  const replays = new Map<number, number>();
  const positions = records.map((record) => {
    const position = positionOf(partition, record);
    const change = changeBy(partition, position, record);
    if (change !== undefined) changes.set(record.offset, change);
    const below = readReplay(record);
    if (below !== undefined) replays.set(record.offset, below);
    return position;
  });
  return { records, positions, changes, replays };
}

function positionOf(partition: number, record: LedgerRecord): LedgerPosition {
  if (record.value === null) throw foreign(partition, record, 'no value');
  const position: LedgerPosition = record.entry ?? readLedgerPosition(record.value, record.headers);
  if (position.requestOffset !== undefined && record.key === null) throw foreign(partition, record, 'no key');
  return position;
}

/** Undefined for entries of IDs, void records and renewals. */
function changeBy(partition: number, position: LedgerPosition, record: LedgerRecord): SequenceChange | undefined {
  if (position.kind !== 'numbers' && position.kind !== 'statement') return undefined;
  const { key, offset, appendedAtMs } = record;
  const read = key === null ? undefined : readLedgerKey(key);
  if (read?.kind !== position.kind)
    throw foreign(partition, record, `${position.kind} of a sequence under another key`);
  if (!changesSequence(position, offset)) return undefined;
  return { name: read.sequence, position, place: { offset, appendedAtMs } };
}

function foreign(partition: number, record: LedgerRecord, what: string): IdallocError {
  return new IdallocError(
    'LEDGER_UNREADABLE',
    `ledger partition ${partition} has an entry with ${what} at offset ${record.offset}: another program writes to the ledger topic`,
  );
}

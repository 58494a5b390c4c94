import { readLedgerKey } from '../../codec/ledger-key.ts';
import { changesSequence, type LedgerPosition } from '../../codec/ledger-position.ts';
import { IdallocError } from '../../errors.ts';
import type { LedgerRecord } from '../../ledger/ports.ts';

/** A record that changes what is known of a sequence. */
export interface SequenceChange {
  readonly name: string;
  readonly position: Extract<LedgerPosition, { readonly kind: 'numbers' | 'statement' }>;
  readonly place: { readonly offset: number; readonly appendedAtMs: number };
}

/** The changes by records that count, by offset. */
export function changesBy(
  positions: readonly LedgerPosition[],
  records: readonly LedgerRecord[],
): ReadonlyMap<number, SequenceChange> {
  const changes = new Map<number, SequenceChange>();
  for (const [i, record] of records.entries()) {
    const change = changeBy(positions[i] as LedgerPosition, record);
    if (change !== undefined) changes.set(record.offset, change);
  }
  return changes;
}

/**
 * What a record changes; undefined for entries of IDs, void records and renewals. Throws LEDGER_UNREADABLE for a key that fits no
 * record of a sequence.
 */
function changeBy(position: LedgerPosition, { key, offset, appendedAtMs }: LedgerRecord): SequenceChange | undefined {
  if (position.kind !== 'numbers' && position.kind !== 'statement') return undefined;
  const read = key === null ? undefined : readLedgerKey(key);
  if (read?.kind !== position.kind) {
    const message = `the entry at offset ${offset} has ${position.kind} of a sequence under another key: another program writes to the ledger topic`;
    throw new IdallocError('LEDGER_UNREADABLE', message);
  }
  if (!changesSequence(position, offset)) return undefined;
  return { name: read.sequence, position, place: { offset, appendedAtMs } };
}

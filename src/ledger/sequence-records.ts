import { encodeLedgerEntry } from '../codec/ledger-entry.ts';
import { encodeStatementKey } from '../codec/ledger-key.ts';
import { type LedgerStatement, statementHeaders } from '../codec/sequence-entry.ts';
import type { Pending } from '../codec/sequence-head.ts';
import type { NewEntry } from './ports.ts';
import type { SequenceDue } from './sequence-rule.ts';

/** What the writer of a record says of its copy of the log, and the offset for which it writes the record. */
export type Placed = Pick<LedgerStatement, 'end' | 'through' | 'at'>;

/** The record of a pending decision, with the numbers that were swapped in. */
export function pendingRecord(pending: Pending, placed: Placed): NewEntry {
  if (pending.kind === 'numbers') {
    return { key: pending.key, value: encodeLedgerEntry({ ...pending.entry, ...placed }) };
  }
  const { sequence, first, statement } = pending;
  return statementRecord(sequence, { ...statement, first: first < 0 ? undefined : first, isLoss: false }, placed);
}

/** The record of a loss, or of a definition that the log does not show. */
export function statedRecord(
  { kind, sequence, next, definition }: Extract<SequenceDue, { readonly kind: 'loss' | 'again' }>,
  placed: Placed,
): NewEntry {
  return statementRecord(sequence, { ...definition, next, first: next, isLoss: kind === 'loss' }, placed);
}

function statementRecord(
  sequence: string,
  said: Omit<LedgerStatement, 'kind' | 'end' | 'through' | 'at'>,
  placed: Placed,
): NewEntry {
  const entry: LedgerStatement = { kind: 'statement', ...said, ...placed };
  return { key: encodeStatementKey(sequence), value: encodeLedgerEntry(entry), headers: statementHeaders(entry) };
}

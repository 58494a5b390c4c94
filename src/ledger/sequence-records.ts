import type { Pending } from '../codec/head-values.ts';
import { encodeLedgerEntry } from '../codec/ledger-entry.ts';
import { encodeStatementKey } from '../codec/ledger-key.ts';
import { type LedgerStatement, statementHeaders } from '../codec/sequence-entry.ts';
import { MAX_STATEMENTS } from '../core/sequence.ts';
import type { Head } from './heads.ts';
import type { DraftedEntry } from './ports.ts';
import type { SequenceDue } from './sequence-rule.ts';

/** What the writer of a record says of its copy of the log, and the offset for which it writes the record. */
type Placed = Pick<LedgerStatement, 'end' | 'through' | 'at'>;

/**
 * The record of a pending decision, with the numbers that were swapped in. An order is the same, whoever appends it:
 * all that the head had decided before (`decided`) is hidden by one that comes late to a log which has lost it; but
 * nothing comes before a creation.
 */
export function pendingRecord(pending: Pending, placed: Placed, decided: Pick<Head, 'through'>): DraftedEntry {
  if (pending.kind === 'numbers') {
    const entry = { ...pending.entry, ...placed };
    return { key: pending.key, value: encodeLedgerEntry(entry), entry };
  }
  const { sequence, first, statement } = pending;
  const isNew = first < 0;
  const place = { end: 0, through: isNew ? -1 : decided.through, at: placed.at };
  return statementRecord(sequence, { ...place, ...statement, first: isNew ? undefined : first, isLoss: false });
}

/**
 * The record of a loss, or of a definition that the log does not show. `first` is the next number in the writer's copy.
 */
export function statedRecord(
  { kind, sequence, next, definition }: Extract<SequenceDue, { readonly kind: 'loss' | 'again' }>,
  first: number | undefined,
  placed: Placed,
): DraftedEntry {
  return statementRecord(sequence, { ...placed, ...definition, next, first, isLoss: kind === 'loss' });
}

/**
 * The records of losses for the end of a log, as many as fit into one append. `next`: that of each sequence in the
 * writer's copy.
 */
export function lossRecords(
  losses: readonly Extract<SequenceDue, { readonly kind: 'loss' }>[],
  next: (sequence: string) => number | undefined,
  { end, through }: Pick<Placed, 'end' | 'through'>,
): readonly DraftedEntry[] {
  return losses.slice(0, MAX_STATEMENTS).map((loss, i) => {
    return statedRecord(loss, next(loss.sequence), { end, through, at: end + i });
  });
}

function statementRecord(sequence: string, said: Omit<LedgerStatement, 'kind'>): DraftedEntry {
  const entry: LedgerStatement = { kind: 'statement', ...said };
  const headers = statementHeaders(entry);
  return { key: encodeStatementKey(sequence), value: encodeLedgerEntry(entry), headers, entry };
}

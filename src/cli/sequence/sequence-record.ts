import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { decodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { isOfSequence, readLedgerKey } from '../../codec/ledger-key.ts';
import type { LedgerNumbers, LedgerStatement } from '../../codec/sequence-entry.ts';
import { unlessInvalid } from '../../errors.ts';

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

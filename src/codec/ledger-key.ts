import { IdallocError } from '../errors.ts';
import { decodeLedgerKey } from './ledger-entry.ts';
import { checkCorrelationId, checkSequence } from './request-checks.ts';

/**
 * The key of a ledger record that is not a marker:
 *
 *   01 | request ID                          IDs for a request
 *   02 | length (1) | sequence | request ID  numbers of a sequence for a request
 *   03 | sequence                            a statement: what the sequence is
 *
 * The request ID is its correlation ID if it has no other. So it is recognised within its sequence, and never meets
 * that of a request for IDs.
 */
export type LedgerKey =
  | { readonly kind: 'batch'; readonly requestId: Buffer }
  | { readonly kind: 'numbers'; readonly sequence: string; readonly requestId: Buffer }
  | { readonly kind: 'statement'; readonly sequence: string };

const NUMBERS = 2;
const STATEMENT = 3;

export function encodeNumbersKey(sequence: string, requestId: Buffer): Buffer {
  const name = Buffer.from(checkSequence(sequence), 'latin1');
  return Buffer.concat([Buffer.of(NUMBERS, name.length), name, checkCorrelationId(requestId)]);
}

export function encodeStatementKey(sequence: string): Buffer {
  return Buffer.concat([Buffer.of(STATEMENT), Buffer.from(checkSequence(sequence), 'latin1')]);
}

/** Whether it is the key of a record of a sequence, as its first byte says. */
export function isOfSequence(key: Buffer): boolean {
  return key[0] === NUMBERS || key[0] === STATEMENT;
}

/** What a key says; byte fields are views. Throws LEDGER_UNREADABLE for a key that workers don't write. */
export function readLedgerKey(key: Buffer): LedgerKey {
  try {
    if (key[0] === STATEMENT) return { kind: 'statement', sequence: nameIn(key, 1, key.length) };
    if (key[0] === NUMBERS) {
      const end = 2 + (key[1] ?? 0);
      return { kind: 'numbers', sequence: nameIn(key, 2, end), requestId: checkCorrelationId(key.subarray(end)) };
    }
  } catch (error) {
    const message = `a ledger key of ${key.length} bytes is not that of a sequence: another program wrote to the ledger topic`;
    throw new IdallocError('LEDGER_UNREADABLE', message, { cause: error });
  }
  return { kind: 'batch', requestId: decodeLedgerKey(key) };
}

function nameIn(key: Buffer, from: number, to: number): string {
  if (to > key.length) throw new RangeError('the name is cut');
  return checkSequence(key.toString('latin1', from, to));
}

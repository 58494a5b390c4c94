import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeLedgerKey, encodeLedgerKey } from '../../src/codec/ledger-entry.ts';
import { encodeNumbersKey, encodeStatementKey, readLedgerKey } from '../../src/codec/ledger-key.ts';
import { anyCorrelationId } from './samples.ts';

const anyName = fc.stringMatching(/^[A-Za-z0-9._/-]{1,64}$/);
const UNREADABLE = expect.objectContaining({ code: 'LEDGER_UNREADABLE' });

describe('a ledger key', () => {
  it('round-trips for IDs, numbers and statements, and none is another', () => {
    fc.assert(
      fc.property(anyName, anyCorrelationId, (sequence, requestId) => {
        expect(readLedgerKey(encodeLedgerKey(requestId))).toEqual({ kind: 'batch', requestId });
        expect(readLedgerKey(encodeNumbersKey(sequence, requestId))).toEqual({ kind: 'numbers', sequence, requestId });
        expect(readLedgerKey(encodeStatementKey(sequence))).toEqual({ kind: 'statement', sequence });
      }),
    );
  });

  it('of numbers differs for each pair of sequence and request', () => {
    fc.assert(
      fc.property(anyName, anyCorrelationId, anyName, anyCorrelationId, (name, id, otherName, otherId) => {
        const isSame = encodeNumbersKey(name, id).equals(encodeNumbersKey(otherName, otherId));
        expect(isSame).toBe(name === otherName && id.equals(otherId));
      }),
    );
  });

  it('has the bytes that the format says', () => {
    expect(encodeNumbersKey('ab', Buffer.from('c'))).toEqual(Buffer.from([2, 2, 0x61, 0x62, 0x63]));
    expect(encodeStatementKey('ab')).toEqual(Buffer.from([3, 0x61, 0x62]));
  });

  it.each([
    ['no version', ''],
    ['an unknown version', '04 61'],
    ['no request ID', '02 02 61 62'],
    ['a cut name', '02 05 61 62'],
    ['no name', '02 00 63'],
    ['a name that no sequence can have', '02 01 20 63'],
    ['a statement without a name', '03'],
    ['a statement with a name that no sequence can have', '03 20'],
    ['a name that is too long', `03 ${'61'.repeat(65)}`],
    ['a request ID that is too long', `02 01 61 ${'62'.repeat(257)}`],
  ])('with %s is unreadable', (_, hex) => {
    expect(() => readLedgerKey(Buffer.from(hex.replaceAll(' ', ''), 'hex'))).toThrow(UNREADABLE);
  });

  it('of a sequence is not that of an entry of IDs', () => {
    expect(() => decodeLedgerKey(encodeNumbersKey('a', Buffer.from('b')))).toThrow(UNREADABLE);
    expect(() => encodeNumbersKey('a b', Buffer.from('b'))).toThrow();
    expect(() => encodeNumbersKey('a', Buffer.alloc(0))).toThrow();
  });
});

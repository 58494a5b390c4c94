import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  decodeLedgerKey,
  digestEntry,
  EntryKey,
  encodeLedgerKey,
  encodeNumbersKey,
  encodeStatementKey,
  readLedgerKey,
} from '../../src/codec/ledger-key.ts';
import { adoptionHeaders, replayRecord } from '../../src/codec/request-position.ts';
import { STATEMENT_HEADER } from '../../src/codec/sequence-entry.ts';
import { Slice } from '../../src/core/slice.ts';
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

const marker = { offset: 7, key: null, value: Buffer.from('marker'), appendedAtMs: 1_700_000_000_000 };

test('an entry has one digest, of 16 bytes', () => {
  expect(digestEntry({ ...marker })).toEqual(digestEntry(marker));
  expect(digestEntry(marker)).toHaveLength(16);
});

test('a statement with another header has another digest, as bytes or as text; of other headers it has the same', () => {
  const digest = (header: Buffer | string) => digestEntry({ ...marker, headers: { [STATEMENT_HEADER]: header } });
  const edition = digest('{"edition":1}');
  expect(digest(Buffer.from('{"edition":1}'))).toEqual(edition);
  expect(digest('{"edition":2}')).not.toEqual(edition);
  expect(digestEntry(marker)).not.toEqual(edition);
  expect(digestEntry({ ...marker, headers: { 'idalloc-answered': '7 {}' } })).toEqual(digestEntry(marker));
  const moved = { value: Buffer.from('marker{"edition":1}'), headers: {} };
  expect(digestEntry({ ...marker, ...moved })).not.toEqual(edition);
});

test('the statements of two replays have different digests', () => {
  const digest = (below: number, at = 7) => digestEntry({ ...marker, headers: replayRecord(below, at).headers });
  expect(digest(0)).not.toEqual(digest(1));
  expect(digest(0)).not.toEqual(digest(0, 8));
  expect(digest(1)).not.toEqual(digestEntry(marker));
});

test('an adoption has another digest than the same marker', () => {
  expect(digestEntry({ ...marker, headers: adoptionHeaders(7) })).not.toEqual(digestEntry(marker));
});

test.each([
  ['another offset', { offset: 8 }],
  ['another time of its append', { appendedAtMs: 1_700_000_000_001 }],
  ['another value', { value: Buffer.from('Marker') }],
  ['no value', { value: null }],
  ['bytes of its value in its key', { key: Buffer.from('mark'), value: Buffer.from('er') }],
])('an entry with %s has another digest', (_, fields) => {
  expect(digestEntry({ ...marker, ...fields })).not.toEqual(digestEntry(marker));
});

describe('the key of an entry as a place in other bytes', () => {
  it('is equal to its bytes, and is written as them', () => {
    fc.assert(
      fc.property(anyCorrelationId, anyCorrelationId, fc.nat(9), (requestId, other, at) => {
        const around = Buffer.concat([Buffer.alloc(at, 7), requestId, Buffer.of(8)]);
        const key = EntryKey.ofIds(new Slice(around, at, requestId.length));
        const bytes = encodeLedgerKey(requestId);
        const written = Buffer.alloc(key.length + 2);
        key.copy(written, 1);
        expect([key.toBuffer(), written.subarray(1, -1)]).toEqual([bytes, bytes]);
        expect([key.equals(bytes), key.equals(encodeLedgerKey(other))]).toEqual([true, requestId.equals(other)]);
        const same = EntryKey.of(bytes);
        expect([same.name, same.sketch]).toEqual([key.name, key.sketch]);
        expect(EntryKey.ofIds(Slice.of(other)).name === key.name).toBe(requestId.equals(other));
      }),
    );
  });
});

import { expect, test } from 'vitest';
import { digestEntry } from '../../src/codec/ledger-digest.ts';
import { replayRecord } from '../../src/codec/request-position.ts';
import { STATEMENT_HEADER } from '../../src/codec/sequence-entry.ts';

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
  const digest = (below: number) => digestEntry({ ...marker, headers: replayRecord(below).headers });
  expect(digest(0)).not.toEqual(digest(1));
  expect(digest(1)).not.toEqual(digestEntry(marker));
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

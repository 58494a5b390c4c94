import { expect, test } from 'vitest';
import { digestEntry } from '../../src/codec/ledger-digest.ts';

const marker = { offset: 7, key: null, value: Buffer.from('marker'), appendedAtMs: 1_700_000_000_000 };

test('an entry has one digest, of 16 bytes', () => {
  expect(digestEntry({ ...marker })).toEqual(digestEntry(marker));
  expect(digestEntry(marker)).toHaveLength(16);
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

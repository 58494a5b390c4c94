import { expect, test } from 'vitest';
import { readId } from '../../src/codec/id-text.ts';

const ID = 117688545224777728n;

test.each([
  ['decimal', '117688545224777728'],
  ['padded', '0117688545224777728'],
  ['the hexadecimal of every table and answer', '01a21d1bbc416000'],
  ['hexadecimal in capitals', '01A21D1BBC416000'],
  ['hexadecimal after 0x', '0x1a21d1bbc416000'],
])('reads an ID in %s', (_form, text) => {
  expect(readId(text)).toBe(ID);
});

test('of 16 digits that could be either, a leading zero makes them hexadecimal', () => {
  expect(readId('0000000000000012')).toBe(0x12n);
  expect(readId('1000000000000012')).toBe(1_000_000_000_000_012n);
});

test.each([
  '',
  ' 1',
  '-1',
  '1e3',
  '1.5',
  'a',
  '01a21d1bbc41600',
  '0x',
  '0x8000000000000000',
  '8000a00000000000',
  String(2n ** 63n),
  '１',
])("'%s' is rejected as an ID", (text) => {
  expect(readId(text)).toBeUndefined();
});

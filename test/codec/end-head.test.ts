import fc from 'fast-check';
import { expect, it } from 'vitest';
import { decodeEndHead, encodeEndHead } from '../../src/codec/end-head.ts';

const number = (min: number) => fc.integer({ min, max: Number.MAX_SAFE_INTEGER });
const head = fc.record({
  end: number(1),
  digest: fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => Buffer.from(bytes)),
  through: number(-1),
  time: number(0),
  life: number(0),
});

it('how far a partition had gone is read as it was written', () => {
  fc.assert(
    fc.property(head, (one) => {
      expect(decodeEndHead('k', encodeEndHead(one))).toEqual(one);
    }),
  );
});

const GOOD = { end: 1, digest: 'ab'.repeat(16), through: -1, time: 0, life: 0 };

it.each([
  ['nothing', ''],
  ['another text', 'hello'],
  ['a list', '[]'],
  ['a missing field', JSON.stringify({ ...GOOD, life: undefined })],
  ['an unknown field', JSON.stringify({ ...GOOD, more: 1 })],
  ['no end', JSON.stringify({ ...GOOD, end: 0 })],
  ['a fraction', JSON.stringify({ ...GOOD, through: 0.5 })],
  ['a short digest', JSON.stringify({ ...GOOD, digest: 'ab' })],
])('%s is NAMESPACE_DAMAGED, with the key and the remedy', (_, text) => {
  const message = expect.stringMatching(/^\/k\/end .*adopt-cluster/);
  expect(() => decodeEndHead('/k/end', Buffer.from(text))).toThrow(
    expect.objectContaining({ code: 'NAMESPACE_DAMAGED', message }),
  );
});

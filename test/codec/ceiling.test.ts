import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeCeiling, encodeCeiling } from '../../src/codec/ceiling.ts';
import { ticks } from '../../src/core/units.ts';

describe('a ceiling', () => {
  it('is ticks and nonce with one space between', () => {
    expect(encodeCeiling({ ticks: ticks(13190700000), nonce: 'n-1_A' }).toString('latin1')).toBe('13190700000 n-1_A');
  });

  it('round-trips', () => {
    const anyCeiling = fc.record({
      ticks: fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }).map(ticks),
      nonce: fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/),
    });
    fc.assert(
      fc.property(anyCeiling, (ceiling) => {
        expect(decodeCeiling(encodeCeiling(ceiling))).toEqual(ceiling);
      }),
    );
  });

  it.each([
    '',
    ' ',
    '5',
    '5 ',
    ' 5 n',
    '5  n',
    '5 n ',
    '5 n\n',
    '05 n',
    '-5 n',
    '+5 n',
    '5.0 n',
    '5e3 n',
    '0x5 n',
    'five n',
    '5 n m',
    '5 ñ',
    '9007199254740992 n',
    '99999999999999999 n',
    `5 ${'n'.repeat(65)}`,
    '\u00a05 n',
  ])('stored as %j is NAMESPACE_DAMAGED, and never counts as missing', (text) => {
    expect(() => decodeCeiling(Buffer.from(text))).toThrow(expect.objectContaining({ code: 'NAMESPACE_DAMAGED' }));
  });

  it.each([
    { ticks: ticks(-1), nonce: 'n' },
    { ticks: ticks(1.5), nonce: 'n' },
    { ticks: ticks(2 ** 53), nonce: 'n' },
    { ticks: ticks(1e21), nonce: 'n' },
    { ticks: ticks(Number.NaN), nonce: 'n' },
    { ticks: ticks(1), nonce: '' },
    { ticks: ticks(1), nonce: 'a b' },
  ])("can't be written as %j", (ceiling) => {
    expect(() => encodeCeiling(ceiling)).toThrow(RangeError);
  });
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DEAD_LETTER_HEADERS, RANGE_HEADERS, readDeadLetterNote, runsText } from '../../src/codec/dead-letter.ts';

function noteOf(first: number, offsets: string, count: string) {
  const place = Buffer.alloc(8);
  place.writeBigInt64BE(BigInt(first));
  const range = { [RANGE_HEADERS.offsets]: offsets, [RANGE_HEADERS.count]: count };
  return readDeadLetterNote({ [DEAD_LETTER_HEADERS.offset]: place, ...range });
}

describe('the offsets of a range letter', () => {
  it('are written as runs', () => {
    expect(runsText([17, 18, 19, 40, 42, 43])).toBe('17-19,40,42-43');
  });

  it('are read as they were written', () => {
    const from = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER - 10_000 });
    const steps = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 499 });
    fc.assert(
      fc.property(from, steps, (first, gaps) => {
        const offsets = [first];
        for (const gap of gaps) offsets.push((offsets.at(-1) ?? 0) + gap);
        const note = noteOf(first, runsText(offsets), String(offsets.length));
        expect([note.isRange, note.offsets]).toEqual([true, offsets]);
      }),
    );
  });

  it.each([
    ['are fewer than it says', 17, '17-40', '25'],
    ['are more than it says', 17, '17-40', '23'],
    ['do not begin at its record', 16, '17-40', '24'],
    ['do not rise', 17, '17-20,20', '5'],
    ['have a run that falls', 17, '17-16', '0'],
    ['are not numbers', 17, '17-', '1'],
    ['are empty', 17, '', '0'],
    ['are too many', 0, '0-9007199254740990', '9007199254740991'],
    ['are not exact', 2 ** 53 - 1, '9007199254740991-9007199254740993', '3'],
  ])('are unknown if they %s', (_, first, offsets, count) => {
    const note = noteOf(first, offsets, count);
    expect([note.isRange, note.offsets]).toEqual([true, undefined]);
  });

  it('are that of its record in a letter for one', () => {
    const place = Buffer.from([0, 0, 0, 0, 0, 0, 0, 7]);
    const note = readDeadLetterNote({ [DEAD_LETTER_HEADERS.offset]: place });
    expect([note.isRange, note.offsets]).toEqual([false, [7]]);
  });
});

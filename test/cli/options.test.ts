import { describe, expect, test } from 'vitest';
import { futureReader, timeReader, wholeNumber } from '../../src/cli/options.ts';

const NOW_MS = Date.UTC(2026, 5, 2, 16, 5);
const now = () => NOW_MS;
const DAY_MS = 86_400_000;

/** What a parser makes of a text; undefined if it rejects it. */
const read = (parse: (text: string) => number, text: string): number | undefined => {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
};

describe('the value of an option', () => {
  test('is a whole number from its least to its largest one', () => {
    const texts = ['1', '3', '0', '4', '2.0', '-1', '', '0x2', '99999999999999999'];
    expect(texts.map((text) => read(wholeNumber(1, 3), text))).toEqual([1, 3, ...Array(7).fill(undefined)]);
  });

  test.each([
    ['now', NOW_MS],
    ['90s', NOW_MS - 90_000],
    ['30m', NOW_MS - 1_800_000],
    ['2h', NOW_MS - 7_200_000],
    ['7d', NOW_MS - 7 * DAY_MS],
    ['2026-06-02', Date.UTC(2026, 5, 2)],
    ['2026-06-02T18:05+02:00', NOW_MS],
    ['2026-06-02T16:05:00.5Z', NOW_MS + 500],
    ['12345', 12_345],
    ['1234', undefined],
    ['in 5m', undefined],
  ])('is the time that %s means', (text, time) => {
    expect(read(timeReader(now), text)).toBe(time);
  });

  test.each([
    ['in 5s', NOW_MS + 5_000],
    ['in 2 minutes', NOW_MS + 120_000],
    ['in 1 hour', NOW_MS + 3_600_000],
    ['in 3days', NOW_MS + 3 * DAY_MS],
    ['2026-06-03', Date.UTC(2026, 5, 3)],
    ['5m', undefined],
    ['soon', undefined],
  ])('is the time to come that %s means', (text, time) => {
    expect(read(futureReader(now), text)).toBe(time);
  });

  test('that is an age, where a time to come is due, is refused with what to write', () => {
    expect(() => futureReader(now)('5m')).toThrow("would be in the past: write 'in 5m'.");
  });
});

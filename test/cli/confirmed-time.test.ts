import { describe, expect, it } from 'vitest';
import { confirmedTime } from '../../src/cli/namespace/namespace-run.ts';
import { wallMs } from '../../src/core/units.ts';

const NOW = Date.UTC(2026, 5, 2, 16, 5);
const DAY_MS = 86_400_000;

/** The context of a command at a terminal where a person types `typed`; without `typed`, no terminal. */
function at(typed?: string) {
  const terminal = { input: typed !== undefined, output: true, errors: typed !== undefined };
  return { now: () => NOW, terminal, ask: async () => typed ?? '' };
}

describe('the time above which IDs start after a rebuild', () => {
  it.each([
    ['the clock, after a use of today', undefined, NOW - DAY_MS],
    ['the clock, a moment behind the last use', undefined, NOW + 60_000],
    ['what is given, within a day after the last use', NOW + DAY_MS, NOW],
    ['what is given, where the clock says the same', NOW - 60_000, NOW - 400 * DAY_MS],
  ])('is %s, without a confirmation', async (_what, given, lastUse) => {
    expect(await confirmedTime(at(), given, wallMs(lastUse))).toBe(given ?? NOW);
  });

  it.each([
    ['a use long ago', undefined, NOW - DAY_MS - 1],
    ['a use in the future', undefined, NOW + 60_001],
    ['a time far ahead of both', NOW + 400 * DAY_MS, NOW],
    ['no use at all', undefined, undefined],
  ])('with %s is refused in scripts, and must be confirmed at a terminal', async (_what, given, last) => {
    const lastUse = last === undefined ? undefined : wallMs(last);
    const time = given ?? NOW;
    const date = new Date(time).toISOString().slice(0, 10);
    await expect(confirmedTime(at(), given, lastUse)).rejects.toMatchObject({ code: 'NOT_CONFIRMED' });
    await expect(confirmedTime(at('y'), given, lastUse)).rejects.toMatchObject({ code: 'NOT_CONFIRMED' });
    await expect(confirmedTime(at(''), given, lastUse)).rejects.toMatchObject({ code: 'NOT_CONFIRMED' });
    expect(await confirmedTime(at(`${date}\n`), given, lastUse)).toBe(time);
  });
});

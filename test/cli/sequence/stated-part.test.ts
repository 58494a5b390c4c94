import { describe, expect, test } from 'vitest';
import { StatedPart, statedSinceMs } from '../../../src/cli/sequence/sequence-log.ts';
import { encodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import { MAX_STATEMENTS } from '../../../src/core/sequence-row.ts';

const HOUR_MS = 3_600_000;
const NOW_MS = 1_800_000_000_000;
const RETENTION_MS = 26 * HOUR_MS;
const SINCE_MS = statedSinceMs(NOW_MS, RETENTION_MS);
const RECENT_MS = NOW_MS - HOUR_MS;

const markerOf = (end: number) => encodeLedgerEntry({ kind: 'marker', end, through: 7 });

/** Whether a partition has all, after a marker at offset 40 with so many statements, written at that time. */
function hasAll({ end = 40, atMs = RECENT_MS, statements = 0, more = [] as readonly number[] } = {}): boolean {
  const part = new StatedPart(SINCE_MS, RETENTION_MS);
  part.marker(0, 40, atMs, markerOf(end));
  for (let i = 0; i < statements; i += 1) part.statement(0, { end });
  for (const offset of more) part.marker(0, offset, atMs, markerOf(offset));
  return part.has(0);
}

describe('the part of a ledger in which sequences are stated again', () => {
  test('begins before the statements that the oldest marker in question left as they were', () => {
    expect(NOW_MS - SINCE_MS).toBe((6.5 + 3) * HOUR_MS);
    expect(NOW_MS - statedSinceMs(NOW_MS, -1)).toBe((7 * 24 + 3) * HOUR_MS);
  });

  test('has them all if a worker has written a marker in the last two hours', () => {
    expect(hasAll()).toBe(true);
    expect(hasAll({ atMs: NOW_MS - 2 * HOUR_MS })).toBe(true);
    expect(hasAll({ atMs: NOW_MS - 2 * HOUR_MS - 1 })).toBe(false);
  });

  test('may lack some without a marker, or with one whose writer had not read up to it, or in another partition alone', () => {
    const part = new StatedPart(SINCE_MS, RETENTION_MS);
    expect(part.has(0)).toBe(false);
    part.marker(1, 40, RECENT_MS, markerOf(40));
    expect([part.has(0), part.has(1)]).toEqual([false, true]);
    expect(hasAll({ end: 39 })).toBe(false);
    part.marker(0, 40, RECENT_MS, Buffer.from('nonsense'));
    part.marker(0, 40, RECENT_MS, null);
    expect(part.has(0)).toBe(false);
  });

  test('lacks some if it has numbers without a statement', () => {
    const part = new StatedPart(SINCE_MS, RETENTION_MS);
    part.lacks(0);
    for (const partition of [0, 1]) part.marker(partition, 40, RECENT_MS, markerOf(40));
    expect([part.has(0), part.has(1)]).toEqual([false, true]);
  });

  test('may lack some while the statements of a marker filled its append, until the next marker', () => {
    expect(hasAll({ statements: MAX_STATEMENTS - 1 })).toBe(true);
    expect(hasAll({ statements: MAX_STATEMENTS })).toBe(false);
    expect(hasAll({ statements: MAX_STATEMENTS, more: [4_000] })).toBe(true);
  });
});

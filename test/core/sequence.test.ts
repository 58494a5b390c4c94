import { describe, expect, it } from 'vitest';
import {
  afterLoss,
  afterNumbers,
  afterStatement,
  refusalOf,
  restatedAfterMs,
  type SequenceRow,
} from '../../src/core/sequence.ts';

const PLACE = { offset: 4, appendedAtMs: 1_000 };
const STATEMENT = { next: 10, step: 1, max: 99, format: '', closed: false };
const row = afterStatement(undefined, STATEMENT, PLACE);
const next = (of: SequenceRow | undefined) => of?.known?.next;

describe('what is known of a sequence', () => {
  it('is what its statement says, and moves with numbers that count', () => {
    expect(row).toEqual({ known: STATEMENT, stated: PLACE, floor: undefined });
    const moved = afterNumbers(row, { first: 10, count: 5, step: 1 });
    expect(moved).toEqual({ known: { ...STATEMENT, next: 15 }, stated: PLACE, floor: undefined });
  });

  it('follows from no numbers without a statement', () => {
    const lost = afterLoss(row) as SequenceRow;
    expect(afterNumbers(lost, { first: 10, count: 5, step: 1 })).toBe(lost);
  });

  it('is in doubt after numbers that do not continue it, until a statement of the highest number or above', () => {
    const damaged = afterNumbers(row, { first: 30, count: 5, step: 1 });
    expect([next(damaged), damaged.floor]).toEqual([35, 35]);
    const back = afterNumbers(row, { first: 3, count: 2, step: 1 });
    expect([next(back), back.floor]).toEqual([5, 10]);
    const on = afterNumbers(back, { first: 5, count: 9, step: 1 });
    expect([next(on), on.floor]).toEqual([14, 10]);
    expect(afterStatement(on, { ...STATEMENT, next: 13 }, PLACE).floor).toBe(14);
    expect(afterStatement(on, { ...STATEMENT, next: 14 }, PLACE).floor).toBeUndefined();
  });

  it('is in doubt after numbers beyond the largest one', () => {
    expect(afterNumbers(row, { first: 10, count: 200, step: 1 }).floor).toBe(210);
    expect(afterNumbers(row, { first: 10, count: 90, step: 1 }).floor).toBeUndefined();
  });

  it('is in doubt after a statement below it', () => {
    const back = afterStatement(afterNumbers(row, { first: 10, count: 5, step: 1 }), STATEMENT, PLACE);
    expect([next(back), back.floor]).toEqual([10, 15]);
  });

  it('leaves the highest number when the log must be read again, and nothing of what was never stated', () => {
    expect(afterLoss(row)).toEqual({ known: undefined, stated: undefined, floor: 10 });
    expect(afterLoss({ ...row, floor: 40 })?.floor).toBe(40);
    expect(afterLoss({ known: undefined, stated: undefined, floor: undefined })).toBeUndefined();
  });
});

it('is stated again four times within the retention, and in an endless ledger each week', () => {
  const hourMs = 3_600_000;
  expect(restatedAfterMs(26 * hourMs)).toBe(6.5 * hourMs);
  expect(restatedAfterMs(-1)).toBe(7 * 24 * hourMs);
});

describe('a new request', () => {
  it.each([
    ['UNKNOWN_SEQUENCE', undefined, 1],
    ['SEQUENCE_CLOSED', { ...STATEMENT, closed: true }, 1],
    ['SEQUENCE_EXHAUSTED', STATEMENT, 91],
    [undefined, STATEMENT, 90],
    ['SEQUENCE_EXHAUSTED', { ...STATEMENT, step: 10 }, 10],
    [undefined, { ...STATEMENT, step: 10 }, 9],
  ])('gets %s from %o for %i numbers', (code, known, count) => {
    expect(refusalOf(known, count)).toBe(code);
  });
});

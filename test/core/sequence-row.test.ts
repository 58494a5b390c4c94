import { describe, expect, it } from 'vitest';
import {
  afterRecord,
  hidesDecisions,
  refusalOf,
  restatedAfterMs,
  type SequenceRecord,
  type SequenceRow,
  type Statement,
  statedOf,
  statementAt,
  UNSTATED,
} from '../../src/core/sequence-row.ts';

const MAX = Number.MAX_SAFE_INTEGER;
const PLACE = { offset: 4, appendedAtMs: 1_000 };
const LATER = { offset: 9, appendedAtMs: 2_000 };
const STATEMENT: Statement = { next: 10, step: 1, max: 99, format: '', closed: false, edition: 2 };
const ROW: SequenceRow = { known: STATEMENT, stated: PLACE, gap: 0 };

type Said = Partial<Extract<SequenceRecord, { readonly kind: 'statement' }>>;

function stated(row: SequenceRow | undefined, said: Said): SequenceRow {
  const record = { kind: 'statement', first: undefined, isLoss: false, ...STATEMENT, ...said } as const;
  return afterRecord(row, record, LATER) as SequenceRow;
}

function numbered(row: SequenceRow, first: number, count: number, step = 1): SequenceRow {
  return afterRecord(row, { kind: 'numbers', first, count, step }, LATER) as SequenceRow;
}

describe('what is known of a sequence', () => {
  it('is what its first statement says, and moves with numbers that count', () => {
    const row = stated(undefined, { next: 10, first: 7 });
    expect(row).toEqual({ known: STATEMENT, stated: LATER, gap: 0 });
    expect(numbered(row, 10, 5)).toEqual({ known: { ...STATEMENT, next: 15 }, stated: LATER, gap: 0 });
  });

  it('is only where it continues, behind numbers without a statement', () => {
    const row = afterRecord(undefined, { kind: 'numbers', first: 10, count: 5, step: 2 }, PLACE);
    expect(row).toMatchObject({ known: { next: 20, step: 2, closed: true, edition: UNSTATED }, stated: PLACE, gap: 0 });
    expect(numbered(row, 20, 1, 2)).toMatchObject({ known: { next: 22, edition: UNSTATED }, gap: 0 });
    expect(statedOf(row)).toBeUndefined();
    expect(stated(row, { next: 30, first: 25, edition: 0 })).toMatchObject({
      known: { next: 30, edition: 0 },
      gap: 25,
    });
  });

  it('never falls back: neither behind numbers nor behind statements below it', () => {
    expect(numbered(ROW, 3, 2)).toEqual(ROW);
    expect(stated(ROW, { next: 1 }).known.next).toBe(10);
    expect(stated(ROW, { next: 1, isLoss: true }).known.next).toBe(10);
  });

  it('gets a new definition from the same edition or a newer one, never from an older one', () => {
    const closed = { closed: true, step: 5, max: 50, format: 'A{number}' };
    expect(stated(ROW, { ...closed, edition: 3 })).toMatchObject({ known: { ...closed, edition: 3 }, stated: LATER });
    expect(stated(ROW, { ...closed })).toMatchObject({ known: closed, stated: LATER });
    expect(stated(ROW, { ...closed, next: 30, edition: 1 })).toEqual({ ...ROW, known: { ...STATEMENT, next: 30 } });
  });

  it('has a gap behind numbers that skip some, and behind a statement whose writer knew more', () => {
    expect(numbered(ROW, 30, 5)).toMatchObject({ known: { next: 35 }, gap: 30 });
    expect(stated(ROW, { next: 25, first: 20 })).toMatchObject({ known: { next: 25 }, gap: 20 });
    expect(numbered(numbered(ROW, 30, 5), 50, 1).gap).toBe(50);
  });

  it('has no gap behind an announced one, nor behind a statement that does not say what its writer knew', () => {
    expect(stated(ROW, { next: 25, first: 10 })).toMatchObject({ known: { next: 25 }, gap: 0 });
    expect(stated(ROW, { next: 25 }).gap).toBe(0);
  });

  it('keeps its gap until a loss states it or more', () => {
    const gap = numbered(ROW, 30, 5);
    expect(numbered(gap, 35, 1).gap).toBe(30);
    expect(stated(gap, { next: 40, first: 35 }).gap).toBe(30);
    expect(stated(gap, { next: 29, first: 29, isLoss: true }).gap).toBe(30);
    expect(stated(gap, { next: 30, first: 30, isLoss: true }).gap).toBe(0);
  });

  it('has no gap that its next number does not reach, so that a loss can end it', () => {
    expect(stated(ROW, { next: 25, first: MAX })).toMatchObject({ known: { next: 25 }, gap: 25 });
  });

  it('can be stated again even behind numbers that another program wrote beyond the largest one', () => {
    expect(numbered(ROW, 10, 200).known).toEqual({ ...STATEMENT, next: 210, max: 209 });
    expect(numbered(ROW, MAX, 1).known).toEqual({ ...STATEMENT, next: MAX, max: MAX - 1 });
    expect(refusalOf(numbered(ROW, 10, 200).known, 1)).toBe('SEQUENCE_EXHAUSTED');
    expect(statementAt(100, STATEMENT)).toEqual({ ...STATEMENT, next: 100 });
  });
});

describe('earlier decisions', () => {
  const said = { kind: 'statement', first: 10, isLoss: false, ...STATEMENT } as const;

  it('may be gone behind a loss, and behind what begins a row, unless an operator wrote it', () => {
    expect(hidesDecisions(ROW, { ...said, isLoss: true }, 5)).toBe(true);
    expect(hidesDecisions(undefined, said, 5)).toBe(true);
    expect(hidesDecisions(undefined, { kind: 'numbers', first: 1, count: 1, step: 1 }, 0)).toBe(true);
    expect(hidesDecisions(undefined, said, -1)).toBe(false);
    expect(hidesDecisions(ROW, said, 5)).toBe(false);
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

import { expect, test } from 'vitest';
import { definition } from '../../../src/cli/sequence/sequence-run.ts';
import { cli } from '../harness.ts';

const MAX = Number.MAX_SAFE_INTEGER;
const PLAIN = { next: 1, step: 1, max: MAX, format: '', closed: false, edition: 1 };

test('the largest number is the largest possible one by default, and leaves room for a step', () => {
  expect(definition('invoices', PLAIN, {}).max).toBe(MAX - 1);
  expect(definition('invoices', PLAIN, { step: 10 }).max).toBe(MAX - 10);
});

test('a longer step needs no other largest number', () => {
  const created = definition('invoices', PLAIN, {});
  expect(definition('invoices', created, { step: 10 })).toEqual({ ...PLAIN, step: 10, max: MAX - 10 });
  expect(definition('invoices', { ...created, max: 500 }, { step: 10 })).toMatchObject({ step: 10, max: 500 });
});

test('what is not changed stays', () => {
  const before = { next: 7, step: 2, max: 99, format: 'A{number}', closed: false, edition: 3 };
  expect(definition('invoices', before, {})).toEqual(before);
  expect(definition('invoices', before, { format: 'B{number}' })).toEqual({ ...before, format: 'B{number}' });
});

test('a new one that is wrong is refused before any server is asked', async () => {
  const { code, err } = await cli(['sequence', 'create', 'invoices', '--start', '9', '--max', '5']);
  expect([code, err]).toEqual([78, expect.stringContaining('invoices continues at 9, which is beyond its largest')]);
});

test('a sequence is not closed, and no server is asked, before that was confirmed', async () => {
  const { code, err } = await cli(['sequence', 'close', 'invoices']);
  expect([code, err]).toEqual([1, expect.stringMatching(/^NOT_CONFIRMED: Close the sequence invoices\? It can't be/)]);
});

test.each([
  [{ max: MAX }, /largest number of invoices is at most 9007199254740990/],
  [{ max: 5 }, /continues at 7, which is beyond its largest number 5/],
])('%o is refused, with the reason', (change, reason) => {
  expect(() => definition('invoices', { ...PLAIN, next: 7 }, change)).toThrow(reason);
});

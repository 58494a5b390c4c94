import fc from 'fast-check';
import { expect, test } from 'vitest';
import { planReplay, planText, remaining, requestsIn } from '../../../src/cli/replay/plan.ts';

const STATE = { partition: 0, low: 10, high: 100, committed: 80, wanted: 30, ledgerFrom: 0 };

test('reads from the wanted offset to the committed offset', () => {
  expect(planReplay([STATE])).toEqual([{ partition: 0, from: 30, to: 80, maybeForgotten: 0, gone: 0 }]);
});

test.each([
  ['a partition that the group never read', { committed: undefined }],
  ['a partition that was not chosen', { wanted: undefined }],
  ['a place ahead of the group', { wanted: 90 }],
  ['the committed offset itself', { wanted: 80 }],
])('leaves alone %s', (_, change) => {
  expect(planReplay([{ ...STATE, ...change }])).toEqual([]);
});

test('counts requests that the topic no longer has, and those that the ledger may not have', () => {
  const plan = planReplay([{ ...STATE, wanted: 4, ledgerFrom: 15 }]);
  expect(plan).toEqual([{ partition: 0, from: 10, to: 80, maybeForgotten: 5, gone: 6 }]);
  expect(planText(plan, 'g')).toMatch(/70 requests would be read again by group 'g'\n6 more .*\nup to 5 .*FORGOTTEN/);
});

test('never moves a group forward, nor before the oldest kept request', () => {
  const offset = fc.integer({ min: 0, max: 50 });
  const state = fc
    .tuple(offset, offset, fc.option(offset, { nil: undefined }), fc.option(offset, { nil: undefined }), offset)
    .map(([a, b, committed, wanted, ledgerFrom]) => {
      return { partition: 1, low: Math.min(a, b), high: Math.max(a, b), committed, wanted, ledgerFrom };
    });
  fc.assert(
    fc.property(fc.array(state), (states) => {
      for (const given of states) {
        for (const { from, to, maybeForgotten } of planReplay([given])) {
          expect(to).toBe(given.committed);
          expect(from).toBeLessThanOrEqual(to);
          expect(from).toBeGreaterThanOrEqual(Math.min(given.low, to));
          expect(maybeForgotten).toBeLessThanOrEqual(to - from);
        }
      }
    }),
  );
});

test('counts the requests that are left from the committed offsets', () => {
  const plan = planReplay([STATE, { ...STATE, partition: 1 }]);
  expect(requestsIn(plan)).toBe(100);
  expect(remaining(plan, new Map([[0, { offset: 70 }]]))).toBe(60);
  expect(
    remaining(
      plan,
      new Map([
        [0, { offset: 200 }],
        [1, { offset: 80 }],
      ]),
    ),
  ).toBe(0);
});

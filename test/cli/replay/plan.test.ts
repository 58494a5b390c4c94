import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Committed } from '../../../src/adapters/kafka/consumer-group.ts';
import {
  concernedBy,
  planReplay,
  planText,
  remaining,
  requestsIn,
  requireAnswered,
  undecidedJson,
  undecidedText,
} from '../../../src/cli/replay/plan.ts';

const by = (next: number, small = next): Committed => ({ offset: next, position: { next, small } });
const STATE = { partition: 0, low: 10, committed: by(80), stated: 0, wanted: 30, ledgerFrom: 0 };
const PLAN = { partition: 0, from: 30, to: 80, below: 80, small: 80, maybeForgotten: 0, gone: 0 };

test('reads from the wanted offset to the committed offset, below which everything was answered', () => {
  expect(planReplay([STATE])).toEqual([PLAN]);
});

test('a replay that comes while another one is in progress does not say that less was answered', () => {
  expect(planReplay([{ ...STATE, stated: 95 }])).toEqual([{ ...PLAN, below: 95 }]);
  expect(planReplay([{ ...STATE, stated: 60 }])).toEqual([PLAN]);
});

test('the requests of a replay in progress are among those that --decide-refused may decide, though others read them again', () => {
  const plan = planReplay([
    { ...STATE, stated: 95 },
    { ...STATE, partition: 1 },
  ]);
  expect(concernedBy(plan)).toEqual([
    { partition: 0, from: 30, to: 95 },
    { partition: 1, from: 30, to: 80 },
  ]);
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
  expect(plan).toEqual([{ ...PLAN, from: 10, maybeForgotten: 5, gone: 6 }]);
  expect(planText(plan, 'g')).toMatch(/70 requests would be read again by group 'g'\n6 more .*\nup to 5 .*FORGOTTEN/);
});

test('never moves a group forward, nor before the oldest kept request', () => {
  const offset = fc.integer({ min: 0, max: 50 });
  const state = fc
    .tuple(offset, offset, fc.option(offset, { nil: undefined }), fc.option(offset, { nil: undefined }), offset)
    .map(([low, stated, next, wanted, ledgerFrom]) => {
      return { partition: 1, low, stated, committed: next === undefined ? next : by(next), wanted, ledgerFrom };
    });
  fc.assert(
    fc.property(fc.array(state), (states) => {
      for (const given of states) {
        for (const { from, to, below, maybeForgotten } of planReplay([given])) {
          expect(to).toBe(given.committed?.offset);
          expect(from).toBeLessThanOrEqual(to);
          expect(below).toBeGreaterThanOrEqual(to);
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

test.each([
  ['large requests wait behind the committed offset', 81, /partitions 0, 4 still wait.*start the workers/],
  ['no worker committed the offset', undefined, /no worker committed.*partitions 0, 4.*start the workers/],
])('is refused while not everything is answered: %s', (_, small, why) => {
  const plan = [PLAN, { ...PLAN, partition: 4 }].map((one) => ({ ...one, small }));
  const check = (decideRefused: boolean) => () => requireAnswered(plan, decideRefused);
  expect(check(false)).toThrow(
    expect.objectContaining({ code: 'REPLAY_REFUSED', message: expect.stringMatching(why) }),
  );
  if (small === undefined) expect(check(true)).toThrow(/no worker committed/);
  else expect(check(true)).not.toThrow();
});

test('is not refused for large requests that an earlier replay states as answered, and reads again', () => {
  const [first] = planReplay([{ ...STATE, committed: by(40, 70), stated: 80 }]);
  expect(() => requireAnswered(first === undefined ? [] : [first], false)).not.toThrow();
});

const UNDECIDED = [
  { sequence: 'invoices/2027', replyTopic: 'id.replies.a', requests: 4, wanted: 5 },
  { sequence: undefined, replyTopic: 'id.replies.b', requests: 29, wanted: 290 },
];

test('lists what has no decision, by sequence and by reply topic, and what becomes of it', () => {
  const rows =
    'wanted  of             by requests  reply topic\n     5  invoices/2027            4  id.replies.a\n   290  IDs                     29  id.replies.b\n';
  expect(undecidedText(UNDECIDED, false)).toMatch(/^33 requests have no decision.*\nthey are refused again/);
  expect(undecidedText(UNDECIDED, true)).toMatch(/the others take:\n/);
  expect(undecidedText(UNDECIDED, true).endsWith(rows)).toBe(true);
  expect(undecidedText([], true)).toBe('all of them have a decision\n');
  expect(undecidedJson(UNDECIDED)).toEqual([
    { sequence: 'invoices/2027', reply_topic: 'id.replies.a', requests: 4, wanted: 5 },
    { reply_topic: 'id.replies.b', requests: 29, wanted: 290 },
  ]);
});

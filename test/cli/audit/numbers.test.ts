import { tmpdir } from 'node:os';
import { describe, expect, it, test } from 'vitest';
import type { TopicRecord } from '../../../src/adapters/kafka/topics/spans.ts';
import type { Finding, FoundNumbers } from '../../../src/cli/audit/found.ts';
import { NumberJoin, ToldTwice } from '../../../src/cli/audit/numbers.ts';
import { AuditReader } from '../../../src/cli/audit/read.ts';
import { AuditStore } from '../../../src/cli/audit/store.ts';
import { encodeIdReply } from '../../../src/codec/id-reply.ts';
import { RENEWAL } from '../../../src/codec/sequence-entry.ts';
import { numbers, statement } from '../../support/memory-records.ts';

const PLACE = { headers: {}, timestampMs: 1_000, partition: 0 };

function reply(requestId: string, first: number, count = 1, timestampMs = PLACE.timestampMs): TopicRecord {
  const correlationId = Buffer.from(requestId);
  const own = { sequence: 'invoices', first, count, step: 1, format: '' };
  const value = encodeIdReply({ correlationId, numbers: own }, 'RANGES');
  return { ...PLACE, topic: 'replies', offset: 0, key: correlationId, value, timestampMs };
}

interface Entry {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly headers?: TopicRecord['headers'];
}

/** The codes of what an audit finds. */
function codes(records: readonly Entry[], replies: readonly TopicRecord[] = [], from = 0): readonly string[] {
  return audit(records, replies, from).found.map(({ code }) => code);
}

/** Audits records of a ledger partition that starts at `from`, and replies. */
function audit(records: readonly Entry[], replies: readonly TopicRecord[] = [], from = 0) {
  const found: Finding[] = [];
  using store = new AuditStore(tmpdir());
  const find = (finding: Finding) => void found.push(finding);
  const sink = { add: () => undefined, addNumbers: (one: FoundNumbers) => store.addNumbers(one), find };
  const ledger = { topic: 'ledger', partition: 0, from, to: 100 };
  const reader = new AuditReader({ ledger: [ledger] }, sink, { clockMarginMs: 0 });
  for (const [i, { headers = PLACE.headers, ...record }] of records.entries()) {
    reader.ledgerRecord({ ...PLACE, topic: 'ledger', offset: from + i, ...record, headers });
  }
  reader.end();
  for (const [offset, one] of replies.entries()) reader.replyRecord({ ...one, offset });
  const { ledgerReachesMs, losses } = reader;
  const join = new NumberJoin({ ledgerReachesMs, losses, find });
  for (const one of store.groupedNumbers()) join.take(one);
  for (const lost of losses.all) {
    const twice = new ToldTwice(find);
    for (const one of store.numbersBetween(lost.sequence, lost.from, lost.to)) twice.take(one);
  }
  return { found, lost: losses.all.map(({ from, to }) => [from, to]) };
}

const CREATED = statement(0);
const THREE = numbers('a', { at: 1, count: 3 });

test('numbers that follow each other, void records, renewals and replies with them are no finding', () => {
  const records = [CREATED, THREE, numbers('b', { at: 1, first: 1 }), numbers('b', { at: 3, first: 4 })];
  const later = [numbers('a', { at: RENEWAL, count: 3 }), statement(5, { next: 9 }), numbers('c', { at: 6, first: 9 })];
  const replies = [reply('a', 1, 3), reply('b', 4), reply('a', 1, 3), reply('c', 9)];
  expect(codes([...records, ...later], replies)).toEqual([]);
});

test.for([
  ['a number is left out', [CREATED, THREE, numbers('b', { at: 2, first: 5 })], ['GAP']],
  ['a number is given out twice', [CREATED, THREE, numbers('b', { at: 2, first: 3 })], ['GAP']],
  ['an order sets the sequence back', [CREATED, THREE, statement(2, { next: 2, edition: 2 })], ['GAP']],
  ['a correlation ID has two records that count', [CREATED, THREE, numbers('a', { at: 2, first: 4 })], ['SPLIT']],
  [
    'a renewal repeats other numbers',
    [CREATED, THREE, numbers('a', { at: RENEWAL, first: 2, count: 3, end: 2 })],
    ['SPLIT'],
  ],
] as const)('it is a finding if %s', ([, records, expected]) => {
  expect(codes(records)).toEqual(expected);
});

test('a reply with other numbers than were decided is a finding, as are two replies that differ', () => {
  expect(codes([CREATED, THREE], [reply('a', 2, 3)])).toEqual(['DIVERGENT']);
  expect(codes([CREATED, THREE], [reply('a', 1, 3), reply('a', 2, 3)])).toEqual(['DIVERGENT']);
  expect(codes([CREATED], [reply('a', 1)])).toEqual(['UNDECIDED']);
});

test('where the beginning of the ledger was deleted, what it may have had is not a finding', () => {
  const later = numbers('b', { at: 41, first: 70 });
  expect(codes([statement(40, { next: 70 }), later], [], 40)).toEqual([]);
  expect(codes([numbers('a', { at: RENEWAL, first: 3 }), later], [reply('a', 3)], 40)).toEqual([]);
  expect(codes([], [reply('a', 3)], 40)).toEqual([]);
});

describe('a loss', () => {
  const lossAt = (at: number, next: number, step = 1) =>
    statement(at, { next, first: next, isLoss: true, end: at, step });

  it('says which numbers were lost with the tail, and is no finding, nor are replies that have them', () => {
    const records = [CREATED, THREE, lossAt(2, 8), numbers('c', { at: 3, first: 8 })];
    const replies = [reply('a', 1, 3), reply('b', 4, 2), reply('b', 4, 2), reply('d', 6), reply('c', 8)];
    expect(audit(records, replies)).toEqual({ found: [], lost: [[4, 7]] });
    const fives = [statement(0, { step: 5 }), numbers('a', { at: 1, step: 5 }), lossAt(2, 21, 5)];
    expect(audit(fives)).toEqual({ found: [], lost: [[6, 16]] });
  });

  it('explains numbers that others skipped before it, if it reaches them', () => {
    const skipping = [CREATED, numbers('b', { at: 1, first: 2 })];
    expect(audit([...skipping, lossAt(2, 3)], [reply('x', 1)])).toEqual({ found: [], lost: [[1, 1]] });
    expect(audit([...skipping, lossAt(2, 4)])).toEqual({
      found: [],
      lost: [
        [1, 1],
        [3, 3],
      ],
    });
    expect(codes([...skipping, lossAt(2, 1)])).toEqual(['GAP']);
    expect(codes([...skipping, statement(2, { next: 3, first: 3 })])).toEqual(['GAP']);
  });

  it('is all that a trimmed ledger shows of a sequence: then another worker may know that it had gone further', () => {
    const further = [lossAt(40, 17), numbers('c', { at: 41, first: 57 })];
    expect(codes(further, [], 40)).toEqual([]);
    expect(codes([...further, numbers('d', { at: 42, first: 60 })], [], 40)).toEqual(['GAP']);
    expect(codes([numbers('a', { at: 39, first: 16 }), ...further], [], 39)).toEqual(['GAP']);
    expect(codes([lossAt(0, 17), numbers('c', { at: 1, first: 57 })])).toEqual(['GAP']);
  });

  it('explains no reply with other numbers, nor one that differs from another', () => {
    expect(codes([CREATED, THREE, lossAt(2, 6)], [reply('b', 5, 2)])).toEqual(['UNDECIDED']);
    expect(codes([CREATED, THREE, lossAt(2, 6)], [reply('b', 4), reply('b', 5)])).toEqual(['DIVERGENT']);
    const again = [CREATED, THREE, lossAt(2, 6), numbers('b', { at: 3, first: 6 })];
    expect(codes(again, [reply('b', 4)])).toEqual(['DIVERGENT']);
  });

  it('does not hide that a number was told twice', () => {
    const lost = [CREATED, THREE, lossAt(2, 9)];
    expect(codes(lost, [reply('b', 4, 2), reply('c', 5, 2)])).toEqual(['GAP']);
    expect(codes(lost, [reply('b', 4, 4), reply('c', 4), reply('d', 7)])).toEqual(['GAP', 'GAP']);
    expect(codes([...lost, numbers('c', { at: 3, first: 8 })])).toEqual(['GAP']);
  });
});

test('a statement that arrives late, behind a newer one or more numbers, is no finding, and changes nothing', () => {
  const renewed = statement(1, { next: 9, edition: 2, step: 2 });
  const late = [CREATED, renewed, statement(2, { next: 1 }), numbers('a', { at: 3, first: 9, step: 2 })];
  expect(codes(late)).toEqual([]);
  expect(codes([CREATED, THREE, statement(2, { next: 2 }), numbers('b', { at: 3, first: 4 })])).toEqual([]);
  expect(codes([CREATED, THREE, statement(2, { next: 2 }), numbers('b', { at: 3, first: 2 })])).toEqual(['GAP']);
});

test('a statement whose writer knew more shows that numbers are missing', () => {
  expect(codes([CREATED, THREE, statement(2, { next: 9, first: 6 })])).toEqual(['GAP']);
  expect(codes([CREATED, THREE, statement(2, { next: 9, first: 4 })])).toEqual([]);
});

test('a renewal that arrives late, after its correlation ID was used again, decides nothing', () => {
  const again = [statement(40, { next: 70 }), numbers('a', { at: 41, first: 70 })];
  const unread = numbers('a', { at: RENEWAL, first: 3, end: 41 });
  const beforeStart = numbers('a', { at: RENEWAL, first: 3, end: 39 });
  expect(codes([...again, unread], [reply('a', 70)], 40)).toEqual([]);
  expect(codes([beforeStart, ...again.slice(0, 1), numbers('a', { at: 42, first: 70 })], [reply('a', 70)], 40)).toEqual(
    [],
  );
});

test('a correlation ID that the ledger forgot may have other numbers than in an older reply', () => {
  const anew = [statement(40, { next: 70 }), numbers('a', { at: 41, first: 70 })];
  const older = reply('a', 3, 1, PLACE.timestampMs - 1);
  expect(codes(anew, [older, reply('a', 70)], 40)).toEqual([]);
  expect(codes(anew, [reply('a', 3), reply('a', 70)], 40)).toEqual(['DIVERGENT']);
});

test('each correlation ID is judged by itself, in each sequence, among any number of others', () => {
  const ids = Array.from({ length: 90 }, (_, i) => `id-${i}`);
  const records = ids.map((id, i) => numbers(id, { at: i + 1, first: i + 1 }));
  const replies = ids.map((id, i) => reply(id, i === 7 ? 1 : i + 1));
  expect(codes([CREATED, ...records], replies)).toEqual(['DIVERGENT']);
});

test('numbers that are told again may have been decided before what is left, or was read, of the ledger', () => {
  const later = [statement(40, { next: 70 }), numbers('b', { at: 41, first: 70 })];
  const again = { headers: { 'idalloc-replayed': Buffer.from('1') } };
  expect(codes(later, [reply('a', 3)], 40), 'told for the first time').toEqual(['UNDECIDED']);
  expect(codes(later, [{ ...reply('a', 3), ...again }], 40)).toEqual([]);
  expect(codes(later, [{ ...reply('b', 3), ...again }], 40), 'of a decision that is there').toEqual(['DIVERGENT']);
  expect(codes([CREATED, THREE], [{ ...reply('b', 3), ...again }]), 'the ledger is whole').toEqual(['UNDECIDED']);
});

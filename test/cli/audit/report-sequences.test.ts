import { describe, expect, it } from 'vitest';
import { NumberOrder, type SequenceAccount } from '../../../src/cli/audit/numbers.ts';
import { commandOf, sequenceLines, sequencesJson } from '../../../src/cli/audit/report.ts';
import type { JournalEntry } from '../../../src/codec/journal-entry.ts';
import { decodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import type { SequenceEntry } from '../../../src/codec/sequence-entry.ts';
import { numbers, statement } from '../../support/memory-records.ts';

const AT_MS = Date.UTC(2027, 0, 31, 8);
const NONE = { entries: [], clockMarginMs: 1_000 };

const restart: JournalEntry = {
  id: '01234567-89ab-4cde-8f01-23456789abcd',
  atMs: AT_MS - 500,
  who: 'alice@ops1',
  command: 'sequence restart',
  arguments: { sequence: 'invoices', at: 9 },
  outcome: 'done',
  code: '',
  note: '',
};

/** What becomes of the sequence in these records, one a second. */
function accountsOf(
  records: readonly { readonly value: Buffer; readonly headers?: object }[],
): readonly SequenceAccount[] {
  const ignore = () => undefined;
  const order = new NumberOrder({ find: ignore, add: ignore, losses: { add: ignore }, startOf: () => 0 });
  for (const [offset, { value, headers = {} }] of records.entries()) {
    const entry = decodeLedgerEntry(value, headers as never) as SequenceEntry;
    const location = { source: 'ledger', topic: 'ledger', partition: 0, offset, requestId: Buffer.from('a') } as const;
    order.take('ledger/0', 'invoices', entry, location, AT_MS);
  }
  order.end();
  return order.accounts;
}

const RESTARTED = [
  statement(0),
  numbers('a', { at: 1, count: 3 }),
  numbers('b', { at: 1, first: 1, count: 2 }),
  statement(3, { next: 9, first: 4, edition: 2 }),
  numbers('c', { at: 4, first: 9 }),
];

describe('a sequence', () => {
  it('is accounted for, from its first number to its last one', () => {
    const [account] = accountsOf(RESTARTED);
    expect(account).toMatchObject({ from: 1, to: 9, given: 4, leftOut: 5, lost: 0, missing: 0, void: 2 });
    expect(account?.leftOutRanges).toMatchObject([{ from: 4, to: 8, count: 5, location: { offset: 3 } }]);
  });

  it('has lost what a statement of the loss says, and misses what nothing explains', () => {
    const loss = statement(2, { next: 8, first: 8, isLoss: true, end: 2 });
    expect(accountsOf([...RESTARTED.slice(0, 2), loss])).toMatchObject([{ given: 3, lost: 4, leftOut: 0 }]);
    expect(accountsOf([...RESTARTED.slice(0, 2), numbers('b', { at: 2, first: 6 })])).toMatchObject([{ missing: 2 }]);
  });

  it('has a line, with the command that left numbers out and its time', () => {
    const journal = { ...NONE, entries: [restart] };
    expect(sequenceLines(accountsOf(RESTARTED), journal)).toEqual([
      'sequence invoices from 1 to 9: 4 given, 5 left out, 2 void',
      "         4 to 8 were left out: 'sequence restart' of alice@ops1 at 2027-01-31T07:59:59.500Z",
    ]);
    expect(sequencesJson(accountsOf(RESTARTED), journal)).toMatchObject([
      { sequence: 'invoices', left_out: 5, left_out_ranges: [{ from: 4, to: 8, who: 'alice@ops1' }] },
    ]);
  });

  it('names the statement where the journal does not have the command', () => {
    expect(sequenceLines(accountsOf(RESTARTED), NONE).at(-1)).toBe(
      '         4 to 8 were left out: stated at 2027-01-31T08:00:00.000Z, ledger/0 at 3',
    );
  });
});

it('no command is named that failed, is later, or is for another sequence', () => {
  const nameOf = (entry: JournalEntry) =>
    commandOf({ ...NONE, entries: [entry] }, 'invoices', { timeMs: AT_MS })?.command;
  expect(nameOf(restart)).toBe('sequence restart');
  expect(nameOf({ ...restart, outcome: 'failed' })).toBeUndefined();
  expect(nameOf({ ...restart, atMs: AT_MS + 1_001 })).toBeUndefined();
  expect(nameOf({ ...restart, arguments: { sequence: 'tickets' } })).toBeUndefined();
  expect(nameOf({ ...restart, command: 'sequence close' })).toBeUndefined();
});

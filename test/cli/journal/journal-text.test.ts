import { expect, test } from 'vitest';
import { journalText } from '../../../src/cli/journal/journal-run.ts';
import type { StoredEntry } from '../../../src/cli/journal/journaled.ts';
import type { JournalEntry } from '../../../src/codec/journal-entry.ts';

const ENTRY: JournalEntry = {
  id: '',
  atMs: Date.UTC(2027, 0, 31, 8),
  who: 'alice@host',
  command: 'sequence restart',
  arguments: { ledger: 'id.ledger', sequence: 'invoices', at: 58 },
  outcome: 'done',
  code: '',
  note: 'left out 55 numbers of invoices: 3 to 57',
};

test('each command has a line with its time, who gave it, its arguments and what came of it', () => {
  const entries: readonly StoredEntry[] = [
    { number: 1, entry: ENTRY, fault: undefined },
    {
      number: 2,
      fault: undefined,
      entry: {
        ...ENTRY,
        ...{ outcome: 'failed', code: 'REBUILD_REFUSED', command: 'namespace rebuild', note: '' },
        arguments: { ledger: ['one', 'two'], bound: null },
      },
    },
    { number: 3, entry: undefined, fault: 'no entry' },
  ];
  expect(journalText(entries)).toBe(
    [
      'entry  time                      who         outcome                  command',
      '    1  2027-01-31T08:00:00.000Z  alice@host  done                     sequence restart: ledger id.ledger, sequence invoices, at 58 (left out 55 numbers of invoices: 3 to 57)',
      '    2  2027-01-31T08:00:00.000Z  alice@host  failed, REBUILD_REFUSED  namespace rebuild: ledger one,two',
      '    3                                        unreadable               no entry',
      '3 entries',
      '',
    ].join('\n'),
  );
});

test('an entry of another program can not control the terminal', () => {
  const entry = { ...ENTRY, who: '\u001b[2J', note: 'a\nb' };
  const text = journalText([{ number: 1, entry, fault: undefined }]);
  expect([text.includes('\u001b'), text.includes('a\nb')]).toEqual([false, false]);
});

test('an empty journal is said to have no entries', () => {
  expect(journalText([])).toBe('0 entries\n');
});

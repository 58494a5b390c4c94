import { expect, test } from 'vitest';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { readLedgerKey } from '../../src/codec/ledger-key.ts';
import type { DraftedEntry } from '../../src/ledger/ports.ts';
import { pendingRecord, statedRecord } from '../../src/ledger/sequence-records.ts';

const PLACED = { end: 40, through: 90, at: 41 };
const DEFINITION = { step: 1, max: 100, format: '', closed: false, edition: 3 };
const HEAD_THROUGH = 95;

/** What readers find in a record. */
function read({ key, value, headers }: DraftedEntry): unknown {
  return [readLedgerKey(key as Buffer), decodeLedgerEntry(value, headers)];
}

test.each([
  ['a new sequence', -1, { first: undefined, through: -1 }],
  ['a known one, which hides what was decided if the ledger has lost it all', 17, { first: 17, through: HEAD_THROUGH }],
])('an order for %s says nothing of what its writer read', (_, first, shown) => {
  const order = { kind: 'order', sequence: 'invoices', first, statement: { ...DEFINITION, next: 20 } } as const;
  expect(read(pendingRecord(order, PLACED, { through: HEAD_THROUGH }))).toEqual([
    { kind: 'statement', sequence: 'invoices' },
    { kind: 'statement', end: 0, at: 41, ...DEFINITION, next: 20, isLoss: false, ...shown },
  ]);
});

test.each(['loss', 'again'] as const)('what is due as %s says what its writer read', (kind) => {
  const due = { kind, sequence: 'invoices', next: 20, definition: DEFINITION };
  expect(read(statedRecord(due, 17, PLACED))).toEqual([
    { kind: 'statement', sequence: 'invoices' },
    { kind: 'statement', ...PLACED, ...DEFINITION, next: 20, first: 17, isLoss: kind === 'loss' },
  ]);
});

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { decodeJournalEntry, encodeJournalEntry, type JournalEntry } from '../../src/codec/journal-entry.ts';

const text = fc.string({ maxLength: 40 });
const entry: fc.Arbitrary<JournalEntry> = fc.record({
  id: fc.uuid(),
  atMs: fc.integer({ min: 0, max: Date.UTC(9999, 0) }),
  who: text,
  command: text,
  arguments: fc.dictionary(
    text.filter((name) => name !== '__proto__'),
    fc.oneof(text, fc.integer(), fc.boolean(), fc.constant(null), fc.array(text, { maxLength: 5 })),
    { maxKeys: 4, noNullPrototype: true },
  ),
  outcome: fc.constantFrom('done', 'failed', 'unknown'),
  code: text,
  note: text,
});

const KNOWN: JournalEntry = {
  id: '00000000-0000-4000-8000-000000000001',
  atMs: Date.UTC(2027, 0, 31, 8),
  who: 'alice@host',
  command: 'sequence restart',
  arguments: { sequence: 'invoices/2027', at: 58, format: undefined },
  outcome: 'done',
  code: '',
  note: '',
};
const STORED = {
  v: 1,
  id: KNOWN.id,
  at: '2027-01-31T08:00:00.000Z',
  who: 'alice@host',
  command: 'sequence restart',
  arguments: { sequence: 'invoices/2027', at: 58 },
  outcome: 'done',
  code: '',
  note: '',
};

it('an entry of the journal is read as it was written', () => {
  fc.assert(
    fc.property(entry, (one) => {
      expect(decodeJournalEntry('k', encodeJournalEntry(one))).toEqual(one);
    }),
  );
});

it('an entry has these bytes, without arguments that were not given', () => {
  expect(encodeJournalEntry(KNOWN).toString()).toBe(JSON.stringify(STORED));
});

it('a long note is cut, so that the entry has at most 4 KiB', () => {
  const value = encodeJournalEntry({ ...KNOWN, note: 'ä'.repeat(10_000) });
  expect(value.length).toBeLessThan(4_096);
  expect(decodeJournalEntry('k', value).note).toBe(`${'ä'.repeat(512)}…`);
});

it('arguments beyond 4 KiB are CONFIG_INVALID', () => {
  const ledger = Array.from({ length: 40 }, (_, i) => `${i}`.padStart(200, 'l'));
  expect(() => encodeJournalEntry({ ...KNOWN, arguments: { ledger } })).toThrow(
    expect.objectContaining({ code: 'CONFIG_INVALID', message: expect.stringContaining('give it fewer arguments') }),
  );
});

it.each([
  ['nothing', ''],
  ['a list', '[]'],
  ['a missing field', JSON.stringify({ ...STORED, who: undefined })],
  ['an unknown field', JSON.stringify({ ...STORED, more: 1 })],
  ['a later version', JSON.stringify({ ...STORED, v: 2 })],
  ['another outcome', JSON.stringify({ ...STORED, outcome: 'begun' })],
  ['a time without a zone', JSON.stringify({ ...STORED, at: '2027-01-31T08:00:00' })],
  ['a day that does not exist', JSON.stringify({ ...STORED, at: '2027-13-31T08:00:00.000Z' })],
  ['an argument that is an object', JSON.stringify({ ...STORED, arguments: { at: {} } })],
  ['arguments that are a list', JSON.stringify({ ...STORED, arguments: [] })],
  ['no arguments', JSON.stringify({ ...STORED, arguments: null })],
])('%s is NAMESPACE_DAMAGED, with the key', (_, value) => {
  expect(() => decodeJournalEntry('/ids/journal/0/entries/1', Buffer.from(value))).toThrow(
    expect.objectContaining({
      code: 'NAMESPACE_DAMAGED',
      message: expect.stringMatching(/^\/ids\/journal\/0\/entries\/1 /),
    }),
  );
});

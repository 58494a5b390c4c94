import { beforeEach, describe, expect, test } from 'vitest';
import { findDecision, findNumber, homesOf } from '../../../src/cli/trace/search.ts';
import { encodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import { encodeLedgerKey, encodeNumbersKey } from '../../../src/codec/ledger-key.ts';
import { idOfText, textOfId } from '../../../src/codec/request-checks.ts';
import { RENEWAL } from '../../../src/codec/sequence-entry.ts';
import { entry, numbers, statement } from '../../support/memory-records.ts';
import { LedgerStage } from './ledger-stage.ts';

const OF_ORDER = encodeLedgerKey(Buffer.from('order'));
const NUMBERS_OF_ORDER = encodeNumbersKey('invoices', Buffer.from('order'));

let ledger: LedgerStage;

beforeEach(() => {
  ledger = new LedgerStage(1);
});

/** The offset, and the first ID or number, of what decides. */
async function decided(key: Buffer): Promise<readonly [number, bigint | number | undefined] | undefined> {
  const found = await ledger.run((session) => findDecision(session, 0, key));
  if (found === undefined) return undefined;
  const { record, entry: one } = found;
  return [record.offset, one.kind === 'batch' ? one.batch.ranges[0]?.first : one.first];
}

const marker = { key: null, value: encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 }) };

describe('what a correlation ID has', () => {
  test('is what its first entry says', async () => {
    ledger.append(0, entry('other'), entry('order', { first: 5n }), entry('order', { first: 9n }));
    expect(await decided(OF_ORDER)).toEqual([1, 5n]);
  });

  test('is nothing if the log has no entry of it', async () => {
    ledger.append(0, entry('other'), numbers('order'));
    expect(await decided(OF_ORDER)).toBeUndefined();
  });

  test('is what a renewal says, once retention has taken the first entry', async () => {
    ledger.append(0, entry('order', { first: 5n }), marker, entry('order', { first: 5n, end: 2 }));
    ledger.trim(0, 1);
    expect(await decided(OF_ORDER)).toEqual([2, 5n]);
  });

  test('is forgotten if retention has taken what decided, and only a later copy is left', async () => {
    ledger.append(0, entry('order', { first: 5n }), marker, entry('order', { first: 9n }));
    ledger.trim(0, 2);
    await expect(decided(OF_ORDER)).rejects.toMatchObject({ code: 'FORGOTTEN' });
  });

  test('is found behind a copy whose writer did not know the first entry', async () => {
    ledger.append(
      0,
      marker,
      entry('order', { first: 5n }),
      entry('order', { first: 9n }),
      entry('order', { first: 5n, end: 3 }),
    );
    ledger.trim(0, 2);
    expect(await decided(OF_ORDER)).toEqual([3, 5n]);
  });

  test('is not guessed from an entry that can not be read', async () => {
    ledger.append(0, { key: OF_ORDER, value: Buffer.from('junk') }, entry('order', { first: 9n }));
    await expect(decided(OF_ORDER)).rejects.toMatchObject({ code: 'LEDGER_UNREADABLE' });
  });
});

describe('the numbers of a correlation ID', () => {
  test('are those of the record that lies where it was written for', async () => {
    ledger.append(0, numbers('order', { first: 7, at: 3 }), numbers('order', { first: 8, at: 1 }));
    expect(await decided(NUMBERS_OF_ORDER)).toEqual([1, 8]);
  });

  test('are none if every record of it is void', async () => {
    ledger.append(0, numbers('order', { at: 3 }), numbers('other', { at: 1 }));
    expect(await decided(NUMBERS_OF_ORDER)).toBeUndefined();
  });

  test('are those of a renewal, once retention has taken the record', async () => {
    ledger.append(
      0,
      numbers('order', { first: 7, at: 0 }),
      marker,
      numbers('order', { first: 7, at: RENEWAL, end: 2 }),
    );
    ledger.trim(0, 1);
    expect(await decided(NUMBERS_OF_ORDER)).toEqual([2, 7]);
  });
});

describe('the record of a number', () => {
  /** Where it lies, and what names the request. */
  async function given(number: number, sequence = 'invoices') {
    const { record, requestId } = await ledger.run((session) => findNumber(session, sequence, number));
    return [record.offset, String(requestId)];
  }

  beforeEach(() => {
    ledger.append(0, marker, entry('order'), statement(2), numbers('void', { at: 9, first: 4, count: 3 }));
    ledger.append(
      0,
      numbers('first', { at: 4, first: 1, count: 3 }),
      numbers('second', { at: 5, first: 4, count: 3, step: 2 }),
    );
  });

  test('is the one that counts and has it, whatever else the ledger has', async () => {
    expect([await given(3), await given(4), await given(8)]).toEqual([
      [4, 'first'],
      [5, 'second'],
      [5, 'second'],
    ]);
  });

  test.each([
    ['between two numbers of a step', 5, 'invoices'],
    ['below the first', 0, 'invoices'],
    ['above the last', 10, 'invoices'],
    ['of another sequence', 3, 'tickets'],
  ])('is NOT_FOUND for one %s', async (_, number, sequence) => {
    await expect(given(number, sequence)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  });
});

test.each(['order-4710', 'http/shop/key 1', '0xbeef', '0x', '0xno', 'ü', 'a b'])(
  'the correlation ID %s is read back from the text that is shown of it',
  (text) => {
    const id = Buffer.from(text);
    expect(idOfText(textOfId(id))).toEqual(id);
  },
);

describe('the ledger partitions in which the decision for a sequence may lie', () => {
  /** In short: the homes of `invoices`, which is in the last one of 3 partitions, and in the second one of 2. */
  async function homes(topic: number, configured: number): Promise<readonly number[]> {
    ledger.grow(topic);
    return await ledger.run((session) => homesOf(session, 'invoices'), configured);
  }

  test.each([
    ['is the one that workers choose', 2, 2, [1]],
    ['are two where partitions were added to the topic', 3, 2, [1, 2]],
    ['follow from the topic alone where fewer partitions are there than REQUEST_PARTITIONS says', 2, 12, [1]],
  ])('%s', async (_, topic, configured, expected) => {
    expect(await homes(topic, configured)).toEqual(expected);
  });
});

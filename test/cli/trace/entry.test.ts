import { beforeEach, describe, expect, test } from 'vitest';
import { findEntry } from '../../../src/cli/trace/search.ts';
import { entry } from '../../support/memory-records.ts';
import { LedgerStage } from './ledger-stage.ts';

const ID = 5n;
const MINUTE_MS = 60_000;

let ledger: LedgerStage;

beforeEach(() => {
  ledger = new LedgerStage(2);
});

/** What is found of the ID that was allocated at this time. */
async function traced(timeMs: number) {
  const found = await ledger.run((session) => findEntry(session, ID, timeMs));
  if (found === undefined) return undefined;
  const { record, requestId, loserTo, doubtful } = found;
  return { at: [record.partition, record.offset], of: String(requestId), loserTo, doubtful };
}

const FOUND = { at: [1, 1], of: 'order', loserTo: undefined, doubtful: false };

describe('the entry of an ID', () => {
  test.each([
    ['by a broker whose clock is five seconds behind', -5_000, FOUND],
    ['by one that is further behind', -5_001, undefined],
    ['at once', 0, FOUND],
    ['within a minute', MINUTE_MS - 1, FOUND],
    ['within a quarter of an hour', 15 * MINUTE_MS - 1, FOUND],
    ['later', 15 * MINUTE_MS, undefined],
  ])('that was appended %s is searched', async (_, afterMs, expected) => {
    ledger.append(1, entry('other', { first: 4n }), entry('order', { first: ID }), entry('another', { first: 6n }));
    expect(await traced(ledger.nowMs - afterMs)).toEqual(expected);
  });

  test('has lost if an earlier entry of its request came behind what its writer had read', async () => {
    const early = { first: 9n, end: 0 };
    ledger.append(1, entry('order', early), entry('order', { first: ID, end: 0 }));
    expect(await traced(ledger.nowMs)).toEqual({ ...FOUND, loserTo: 0 });
  });

  test('decides where its writer had read all that is before it', async () => {
    ledger.append(1, entry('order', { first: 9n }), entry('order', { first: ID, end: 1 }));
    expect(await traced(ledger.nowMs)).toEqual(FOUND);
  });

  test('is doubtful once retention has taken what its writer had not read', async () => {
    ledger.append(1, entry('other', { first: 4n }), entry('order', { first: ID, end: 0 }));
    ledger.trim(1, 1);
    expect(await traced(ledger.nowMs)).toEqual({ ...FOUND, doubtful: true });
  });
});

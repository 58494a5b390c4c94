import { expect, test } from 'vitest';
import { PartitionReading } from '../../../src/cli/sequence/sequence-log.ts';
import { decodeLedgerEntry, encodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import { adoptionHeaders } from '../../../src/codec/request-position.ts';
import type { LedgerNumbers } from '../../../src/codec/sequence-entry.ts';
import { numbers } from '../../support/memory-records.ts';

/** A marker whose writer knew requests up to `through`. */
const markerAt = (offset: number, through: number, headers = {}) => ({
  ...{ topic: 'ledger', partition: 0, offset, key: null, headers, timestampMs: 1_800_000_000_000 },
  value: encodeLedgerEntry({ kind: 'marker', end: offset, through }),
});

test('pending numbers of a request behind an adoption are not forgotten, however far requests had gone in another topic', () => {
  const pendingAt = (requestOffset: number) => {
    const { key, value } = numbers('a', { requestOffset });
    const entry = decodeLedgerEntry(value) as LedgerNumbers;
    return { kind: 'numbers', sequence: 'invoices', key, edition: 0, entry } as const;
  };
  const watched = [pendingAt(12)];
  const reading = new PartitionReading({ partition: 0, from: 5 }, { isWhole: true, watched });
  const forgotten = () => [3, 12].map((offset) => reading.isForgotten(pendingAt(offset)));
  reading.take(markerAt(5, 900), undefined);
  expect(forgotten()).toEqual([true, true]);
  reading.take(markerAt(6, 3, adoptionHeaders(5)), undefined);
  expect(forgotten(), 'it is not at its place').toEqual([true, true]);
  reading.take(markerAt(7, 3, adoptionHeaders(7)), undefined);
  expect(forgotten()).toEqual([true, false]);
});

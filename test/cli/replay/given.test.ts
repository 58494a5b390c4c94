import { expect, test } from 'vitest';
import type { FoundBatch } from '../../../src/cli/audit/found.ts';
import { AuditStore } from '../../../src/cli/audit/store.ts';
import { Given, givenJson, givenLines } from '../../../src/cli/replay/outcome.ts';
import { numbers } from '../../support/memory-records.ts';
import { batchAt, entry, reply } from '../audit/batches.ts';

const LEDGER = 'ledger';
const BEGAN = 10;
const of = (offset: number) => ({ offset, hash: Buffer.alloc(16), isRenewal: false });

const isNew = ({ offset }: { readonly offset: number }) => offset >= BEGAN;

/** A replay of the requests 20 to 29 of partition 0, of which one was forwarded to partition 1, as the request at 7. */
function given({ most = 10 } = {}): Given {
  const plan = [{ partition: 0, from: 20, to: 30, below: 30, small: 30, maybeForgotten: 0, gone: 0 }];
  return new Given({ ledger: LEDGER, plan, copies: new Map([[1, new Set([7])]]), isNew, most });
}

function ids(found: readonly FoundBatch[]): Given {
  const all = given();
  using store = new AuditStore(process.env.TMPDIR ?? '/tmp');
  for (const one of found) store.add(one);
  for (const one of store.grouped()) all.takeFound(one);
  all.end();
  return all;
}

const batch = batchAt(5);

test('an entry that was written since is newly given, if it decides a request that was read again, or a copy of one', () => {
  const found = ids([
    entry('again', batch, { offset: 10, of: of(20) }),
    entry('copy', batch, { partition: 1, offset: 11, of: of(7) }),
    entry('behind', batch, { offset: 12, of: of(30) }),
    entry('elsewhere', batch, { partition: 1, offset: 13, of: of(20) }),
    entry('before', batch, { offset: 9, of: of(20) }),
    reply('told', batch, { offset: 14 }),
    entry('another pair', batch, { topic: 'ledger.2', offset: 15, of: of(21) }),
  ]);
  expect(givenJson(found)).toEqual({
    requests: 2,
    ids: 8,
    numbers: 0,
    listed: expect.arrayContaining([
      { correlation_id: 'again', count: 4, partition: 0, offset: 10 },
      { correlation_id: 'copy', count: 4, partition: 1, offset: 11 },
    ]),
  });
});

test('an entry that repeats an earlier one, or came second, is not newly given', () => {
  const found = ids([
    entry('renewed', batch, { offset: 3, of: of(5) }),
    entry('renewed', batch, { offset: 11, of: of(21) }),
    entry('renewed, the first gone', batch, { offset: 13, of: { ...of(23), isRenewal: true } }),
    entry('lost', batchAt(6), { offset: 12, of: of(22) }),
    entry('lost', batchAt(7), { offset: 4, of: of(22) }),
  ]);
  expect(givenLines(found)).toEqual(['nothing was newly given']);
});

/** A record of numbers at an offset of the ledger, for a request. */
function record(
  name: string,
  fields: { readonly offset: number; readonly requestOffset: number; readonly at?: number; readonly count?: number },
) {
  const { offset, at = offset, ...rest } = fields;
  const { key, value } = numbers(name, { at, first: 61, ...rest });
  return { topic: LEDGER, partition: 0, offset, key, value, headers: {}, timestampMs: 1 };
}

test('each number that is newly given is named, up to a limit, and all are counted', () => {
  const all = given({ most: 1 });
  all.takeRecord(record('order-1', { offset: 12, requestOffset: 25, count: 4 }));
  all.takeRecord(record('order-2', { offset: 13, requestOffset: 26 }));
  expect(givenLines(all)).toEqual([
    '5 numbers newly given, to 2 requests without a decision before',
    '  invoices 61 to 64 for order-1, decided in ledger/0 at 12',
    '  and 1 more',
  ]);
  expect(givenJson(all)).toMatchObject({
    numbers: 5,
    listed: [{ sequence: 'invoices', from: 61, to: 64, count: 4, correlation_id: 'order-1', partition: 0, offset: 12 }],
  });
});

test('void numbers, renewals, numbers of other requests, and what cannot be read are not newly given', () => {
  const all = given();
  all.takeRecord(record('void', { offset: 12, at: 11, requestOffset: 25 }));
  all.takeRecord(record('renewal', { offset: 13, at: -1, requestOffset: 25 }));
  all.takeRecord(record('new', { offset: 14, requestOffset: 30 }));
  all.takeRecord({ ...record('bad', { offset: 15, requestOffset: 25 }), value: Buffer.from('junk') });
  expect(all.requests).toBe(0);
});

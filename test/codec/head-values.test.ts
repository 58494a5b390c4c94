import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeEndHead,
  decodePending,
  decodeSequenceHead,
  encodeEndHead,
  encodePending,
  encodeSequenceHead,
  type Pending,
  type SequenceHead,
} from '../../src/codec/head-values.ts';
import { encodeNumbersKey, encodeStatementKey } from '../../src/codec/ledger-key.ts';
import { anyCorrelationId, anyNumbers, anyStatement } from './samples.ts';

const number = (min: number) => fc.integer({ min, max: Number.MAX_SAFE_INTEGER });
const head = fc.record({
  end: number(1),
  digest: fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => Buffer.from(bytes)),
  through: number(-1),
  time: number(0),
  life: number(0),
});

it('how far a partition had gone is read as it was written', () => {
  fc.assert(
    fc.property(head, (one) => {
      expect(decodeEndHead('k', encodeEndHead(one))).toEqual(one);
    }),
  );
});

const GOOD = { end: 1, digest: 'ab'.repeat(16), through: -1, time: 0, life: 0 };

it.each([
  ['nothing', ''],
  ['another text', 'hello'],
  ['a list', '[]'],
  ['a missing field', JSON.stringify({ ...GOOD, life: undefined })],
  ['an unknown field', JSON.stringify({ ...GOOD, more: 1 })],
  ['no end', JSON.stringify({ ...GOOD, end: 0 })],
  ['a fraction', JSON.stringify({ ...GOOD, through: 0.5 })],
  ['a short digest', JSON.stringify({ ...GOOD, digest: 'ab' })],
])('%s is NAMESPACE_DAMAGED, with the key and the remedy', (_, text) => {
  const message = expect.stringMatching(/^\/k\/end .*adopt-cluster/);
  expect(() => decodeEndHead('/k/end', Buffer.from(text))).toThrow(
    expect.objectContaining({ code: 'NAMESPACE_DAMAGED', message }),
  );
});

const NAMESPACE = '0c9fbb4e-9a31-4b7f-8e55-2a6c5dfb1f10';
const KEY = '/idalloc/ledger/3/id.ledger/0/pending';

const anyEdition = fc.integer({ min: 1, max: 1_000_000 });
const anyName = fc.stringMatching(/^[A-Za-z0-9._/-]{1,64}$/);
const anyHead: fc.Arbitrary<SequenceHead> = fc
  .record({ statement: anyStatement, edition: anyEdition })
  .map(({ statement: { next, step, max, format, closed }, edition }) => ({ next, step, max, format, closed, edition }));
const anyPending: fc.Arbitrary<Pending> = fc.oneof(
  fc
    .record({ sequence: anyName, requestId: anyCorrelationId, numbers: anyNumbers, edition: anyEdition })
    .map(({ sequence, requestId, numbers: { end, through, at, ...entry }, edition }) => {
      return { kind: 'numbers' as const, sequence, key: encodeNumbersKey(sequence, requestId), edition, entry };
    }),
  fc.record({
    kind: fc.constant('order' as const),
    sequence: anyName,
    first: fc.oneof(fc.constant(-1), fc.maxSafeNat()),
    statement: anyHead,
  }),
);

describe('what is pending in a ledger partition', () => {
  it('round-trips', () => {
    fc.assert(
      fc.property(
        fc.array(anyPending, { maxLength: 10 }),
        fc.integer({ min: -1, max: 2 ** 40 }),
        (records, through) => {
          const value = { namespace: NAMESPACE, through, records };
          expect(decodePending(encodePending(value), KEY)).toEqual(value);
        },
      ),
    );
  });

  const numbers = encodeNumbersKey('a', Buffer.from('k')).toString('base64');
  const order = encodeStatementKey('a').toString('base64');
  const written = JSON.parse(
    encodePending({
      namespace: NAMESPACE,
      through: 7,
      records: [
        {
          kind: 'order',
          sequence: 'a',
          first: 1,
          statement: { next: 1, step: 1, max: 9, format: '', closed: false, edition: 1 },
        },
      ],
    }).toString(),
  );
  const [record] = written.records;

  it.each([
    ['not JSON', 'x'],
    ['a list', []],
    ['without a field', { namespace: NAMESPACE, through: 7 }],
    ['with another field', { ...written, more: 1 }],
    ['of no namespace', { ...written, namespace: '' }],
    ['with a wrong offset', { ...written, through: -2 }],
    ['with records that are no list', { ...written, records: {} }],
    ['with a record that is none', { ...written, records: [7] }],
    ['with a record of edition 0', { ...written, records: [{ ...record, edition: 0 }] }],
    ['with an order from nowhere', { ...written, records: [{ ...record, first: -2 }] }],
    ['with an order under the key of numbers', { ...written, records: [{ ...record, key: numbers }] }],
    [
      'with an order that lacks its first number',
      { ...written, records: [{ key: order, value: record.value, edition: 1 }] },
    ],
    ['with a key that is not base64', { ...written, records: [{ ...record, key: '?' }] }],
    ['with a value of another schema', { ...written, records: [{ ...record, value: 'AAAA' }] }],
    ['of 2 MB', { ...written, namespace: 'x'.repeat(2_000_000) }],
  ])('is damaged %s', (_, value) => {
    const bytes = Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
    const refused = { code: 'NAMESPACE_DAMAGED', message: expect.stringContaining(KEY) };
    expect(() => decodePending(bytes, KEY)).toThrow(expect.objectContaining(refused));
  });
});

describe('the head of a sequence', () => {
  it('round-trips', () => {
    fc.assert(
      fc.property(anyHead, (head) => {
        expect(decodeSequenceHead(encodeSequenceHead(head), KEY)).toEqual(head);
      }),
    );
  });

  const HEAD = { next: 5, step: 1, max: 9, format: '', closed: false, edition: 2 };

  it.each([
    ['next', -1],
    ['next', 11],
    ['next', 1.5],
    ['step', 0],
    ['max', Number.MAX_SAFE_INTEGER],
    ['format', 7],
    ['format', 'x'.repeat(65)],
    ['closed', 'no'],
    ['edition', 0],
    ['more', 1],
  ])('is damaged where %s is %s', (field, value) => {
    const head = { ...HEAD, [field]: value };
    const refused = { code: 'NAMESPACE_DAMAGED', message: expect.stringContaining(KEY) };
    expect(() => decodeSequenceHead(Buffer.from(JSON.stringify(head)), KEY)).toThrow(expect.objectContaining(refused));
  });

  it.each([{ next: 11 }, { max: Number.MAX_SAFE_INTEGER }, { edition: 0 }, { edition: -1 }])(
    'is not written with %j',
    (wrong) => {
      expect(() => encodeSequenceHead({ ...HEAD, ...wrong })).toThrow(RangeError);
    },
  );
});

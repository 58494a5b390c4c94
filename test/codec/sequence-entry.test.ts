import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { frame, HEADER_BYTES } from '../../src/codec/framing.ts';
import { decodeIdReply, encodeIdReply, WIDE_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import {
  decodeLedgerEntry,
  encodeLedgerEntry,
  LEDGER_ENTRY_HEADER,
  readLedgerPosition,
  SEQUENCE_ENTRY_HEADER,
} from '../../src/codec/ledger-entry.ts';
import {
  type LedgerNumbers,
  type LedgerStatement,
  type SequenceEntry,
  STATEMENT_HEADER,
  statementHeaders,
} from '../../src/codec/sequence-entry.ts';
import { anyCorrelationId, anyNumbers, anyStatement, CORRELATION_ID, plainAvro } from './samples.ts';

const plain = plainAvro('ledger-sequence');
const MAX = Number.MAX_SAFE_INTEGER;
const NUMBERS: LedgerNumbers = {
  kind: 'numbers',
  end: 7,
  through: 3,
  at: 8,
  requestHash: Buffer.alloc(16, 1),
  replyTopic: 'id.replies.a',
  requestOffset: 4,
  framing: 'SINGLE_OBJECT',
  schemaFingerprint: WIDE_REPLY_FINGERPRINT,
  first: 10,
  count: 3,
  step: 2,
  format: '',
};
const STATEMENT: LedgerStatement = {
  kind: 'statement',
  end: 0,
  through: -1,
  at: 9,
  next: 1,
  step: 1,
  max: 100,
  format: '',
  closed: false,
  edition: 0,
  first: undefined,
  isLoss: false,
};

const headersOf = (entry: SequenceEntry) => (entry.kind === 'statement' ? statementHeaders(entry) : {});

describe('a record of a sequence', () => {
  it('round-trips, and is read by unmodified avsc', () => {
    fc.assert(
      fc.property(fc.oneof(anyNumbers, anyStatement), (entry) => {
        const value = encodeLedgerEntry(entry);
        const headers = headersOf(entry);
        expect(decodeLedgerEntry(value, headers)).toEqual(entry);
        expect(readLedgerPosition(value, headers)).toMatchObject(factsOf(entry));
        const fields = plain.fromBuffer(value.subarray(HEADER_BYTES));
        expect([fields.end, fields.through, fields.at].map(Number)).toEqual([entry.end, entry.through, entry.at]);
        expect(frame(SEQUENCE_ENTRY_HEADER, plain.toBuffer(fields)).equals(value)).toBe(true);
      }),
    );
  });

  it.each([
    { ...NUMBERS, at: -2 },
    { ...NUMBERS, count: 0 },
    { ...NUMBERS, step: 0 },
    { ...NUMBERS, first: -1 },
    { ...NUMBERS, first: MAX - 3 },
    { ...NUMBERS, requestOffset: -1 },
    { ...NUMBERS, format: 'x'.repeat(65) },
    { ...STATEMENT, at: -1 },
    { ...STATEMENT, step: 0 },
    { ...STATEMENT, max: MAX },
    { ...STATEMENT, next: 102 },
    { ...STATEMENT, next: -1 },
    { ...STATEMENT, end: -1 },
    { ...STATEMENT, through: -2 },
    { ...STATEMENT, format: 'x'.repeat(65) },
  ] as const)('is refused out of range: %j', (entry) => {
    expect(() => encodeLedgerEntry(entry)).toThrow(RangeError);
  });

  it('may have the largest numbers', () => {
    expect(encodeLedgerEntry({ ...NUMBERS, first: MAX - 4 })).toBeInstanceOf(Buffer);
    expect(encodeLedgerEntry({ ...STATEMENT, max: MAX - 1, next: MAX })).toBeInstanceOf(Buffer);
  });

  it('out of range that avsc wrote is LEDGER_UNREADABLE, to the decoder and to the reader of positions', () => {
    const body = (change: object) => {
      const fields = plain.fromBuffer(encodeLedgerEntry(NUMBERS).subarray(HEADER_BYTES));
      Object.assign(fields.content['idalloc.ledger.SequenceNumbers'] ?? {}, change);
      return frame(SEQUENCE_ENTRY_HEADER, plain.toBuffer(fields));
    };
    expect(readLedgerPosition(body({}))).toEqual({
      kind: 'numbers',
      end: 7,
      through: 3,
      at: 8,
      requestOffset: 4,
      first: 10,
      count: 3,
      step: 2,
    });
    for (const change of [
      { count: 0 },
      { count: -1 },
      { step: 0n },
      { first: BigInt(MAX) },
      { step: 2n ** 62n },
      { count: 2 ** 26, step: 2n ** 30n },
    ]) {
      expect(() => decodeLedgerEntry(body(change))).toThrow(/can't be read/);
      expect(() => readLedgerPosition(body(change))).toThrow(/can't be read/);
    }
  });

  it('is unreadable wherever it is cut, with a byte more, and under the fingerprint of entries', () => {
    for (const whole of [encodeLedgerEntry(NUMBERS), encodeLedgerEntry(STATEMENT)]) {
      const broken = Array.from({ length: whole.length }, (_, length) => whole.subarray(0, length));
      broken.push(Buffer.concat([whole, Buffer.of(0)]), frame(LEDGER_ENTRY_HEADER, whole.subarray(HEADER_BYTES)));
      for (const value of broken) {
        expect(() => decodeLedgerEntry(value)).toThrow(expect.objectContaining({ code: 'LEDGER_UNREADABLE' }));
        expect(() => readLedgerPosition(value)).toThrow(expect.objectContaining({ code: 'LEDGER_UNREADABLE' }));
      }
    }
  });

  it('with any bytes is read as both readers agree, or is LEDGER_UNREADABLE', () => {
    fc.assert(
      fc.property(fc.oneof(anyNumbers, anyStatement), fc.nat(), fc.nat(255), (entry, place, byte) => {
        const value = encodeLedgerEntry(entry);
        value[HEADER_BYTES + (place % (value.length - HEADER_BYTES))] = byte;
        const outcome = (read: () => { end: number; through: number }) => {
          try {
            const { end, through, at, requestOffset } = read() as LedgerNumbers;
            return { end, through, at, requestOffset };
          } catch (error) {
            return (error as { code: string }).code;
          }
        };
        const decoded = outcome(() => decodeLedgerEntry(value));
        expect(outcome(() => readLedgerPosition(value))).toEqual(decoded);
        if (typeof decoded === 'string') expect(decoded).toBe('LEDGER_UNREADABLE');
      }),
    );
  });
});

/** What the index needs of a record. */
function factsOf(entry: SequenceEntry): object {
  const { kind, end, through, at } = entry;
  if (entry.kind === 'statement') return entry;
  const { requestOffset, first, count, step } = entry;
  return { kind, end, through, at, requestOffset, first, count, step };
}

describe('the header of a statement', () => {
  const value = encodeLedgerEntry(STATEMENT);
  const withHeader = (header: Buffer | string | null | readonly Buffer[]) => ({
    [STATEMENT_HEADER]: header,
    other: 'x',
  });
  const text = (facts: Pick<LedgerStatement, 'edition' | 'first' | 'isLoss'>) =>
    statementHeaders(facts)[STATEMENT_HEADER].toString();

  it('has the edition, and the rest only where there is some', () => {
    expect(text({ edition: 3, first: 17, isLoss: true })).toBe('{"edition":3,"first":17,"loss":true}');
    expect(text({ edition: 3, first: undefined, isLoss: false })).toBe('{"edition":3}');
  });

  it('may be missing, as in releases that know no editions', () => {
    const facts = { edition: 0, first: undefined, isLoss: false };
    expect(decodeLedgerEntry(value)).toMatchObject(facts);
    expect(readLedgerPosition(value, { other: 'x' })).toMatchObject(facts);
  });

  it('is read as bytes and as text, with spaces, and in any order', () => {
    for (const header of [Buffer.from('{"edition":2}'), '{"edition":2}', ' { "loss" : false, "edition" : 2 }']) {
      expect(decodeLedgerEntry(value, withHeader(header))).toMatchObject({ edition: 2, isLoss: false });
    }
  });

  it.each([
    ['nothing', ''],
    ['no value', null],
    ['a header that is repeated', [Buffer.from('{"edition":1}'), Buffer.from('{"edition":1}')]],
    ['no JSON', 'edition 3'],
    ['a list', '[3]'],
    ['no edition', '{"first":17}'],
    ['an edition that is text', '{"edition":"3"}'],
    ['an edition below 0', '{"edition":-1}'],
    ['an edition with a fraction', '{"edition":1.5}'],
    ['an edition beyond 2^53', '{"edition":9007199254740993}'],
    ['a first number below 0', '{"edition":3,"first":-1}'],
    ['no first number', '{"edition":3,"first":null}'],
    ['a loss that is a number', '{"edition":3,"loss":1}'],
    ['a field that is unknown', '{"edition":3,"end":4}'],
    ['no UTF-8', Buffer.from([0x7b, 0xff, 0x7d])],
    ['too much', `{"edition":3${' '.repeat(5_000)}}`],
  ] as const)('with %s makes a statement LEDGER_UNREADABLE, and names the cause', (_, header) => {
    const headers = withHeader(header);
    const refusal = expect.objectContaining({
      code: 'LEDGER_UNREADABLE',
      message: expect.stringContaining(`its header ${STATEMENT_HEADER} is malformed: `),
    });
    expect(() => decodeLedgerEntry(value, headers)).toThrow(refusal);
    expect(() => readLedgerPosition(value, headers)).toThrow(refusal);
  });

  it('is not written malformed', () => {
    expect(() => statementHeaders({ edition: -1, first: undefined, isLoss: false })).toThrow(
      /edition is not an integer/,
    );
    expect(() => statementHeaders({ edition: 1, first: -1, isLoss: false })).toThrow(/first is not an integer/);
  });

  it('means nothing on other records', () => {
    const headers = withHeader('rubbish');
    const numbers = encodeLedgerEntry(NUMBERS);
    expect(decodeLedgerEntry(numbers, headers)).toEqual(NUMBERS);
    expect(readLedgerPosition(numbers, headers)).toEqual(readLedgerPosition(numbers));
  });
});

describe('a reply with numbers', () => {
  const anyReply = fc.record({
    correlationId: anyCorrelationId,
    numbers: fc
      .record({ entry: anyNumbers, sequence: fc.stringMatching(/^[A-Za-z0-9._/-]{1,64}$/) })
      .map(({ entry: { first, count, step, format }, sequence }) => ({ sequence, first, count, step, format })),
  });

  it('round-trips, and is read by unmodified avsc', () => {
    const avsc = plainAvro('id-reply-2');
    fc.assert(
      fc.property(anyReply, (reply) => {
        const value = encodeIdReply(reply, 'RANGES');
        expect(decodeIdReply(value)).toEqual({ ...reply, encoding: 'RANGES' });
        const { result } = avsc.fromBuffer(value.subarray(HEADER_BYTES));
        expect(Number(result['idalloc.SequenceBatch'].first)).toBe(reply.numbers.first);
      }),
    );
  });

  it('has a fingerprint of its own; under that of replies without numbers it is malformed', () => {
    const numbers = { sequence: 'a', first: 1, count: 1, step: 1, format: '' };
    const value = encodeIdReply({ correlationId: CORRELATION_ID, numbers }, 'RANGES');
    const plainReply = encodeIdReply({ correlationId: CORRELATION_ID, error: { code: 'X', message: '' } }, 'RANGES');
    expect(value.subarray(2, HEADER_BYTES)).toEqual(WIDE_REPLY_FINGERPRINT);
    const forged = Buffer.concat([plainReply.subarray(0, HEADER_BYTES), value.subarray(HEADER_BYTES)]);
    expect(() => decodeIdReply(forged)).toThrow(expect.objectContaining({ code: 'MALFORMED_REPLY' }));
    expect(() => encodeIdReply({ correlationId: CORRELATION_ID, numbers: { ...numbers, count: 0 } }, 'RANGES')).toThrow(
      RangeError,
    );
  });
});

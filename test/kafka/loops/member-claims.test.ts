import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeMemberReport,
  decodeStandbys,
  encodeMemberReport,
  encodeStandbys,
  type MemberReport,
} from '../../../src/kafka/loops/member-claims.ts';

const NONE = { copies: new Map(), standbys: [], warmups: [], unreached: [] };

const partition = fc.oneof(fc.nat(300), fc.integer({ min: 0, max: 2 ** 31 - 1 }));
const partitions = fc.uniqueArray(partition, { maxLength: 20 }).map((list) => list.toSorted((x, y) => x - y));
const offset = fc.oneof(fc.nat(300), fc.maxSafeNat());
const copy = fc.tuple(offset, offset).map(([x, y]) => ({ end: Math.min(x, y), logEnd: Math.max(x, y) }));
const reported: fc.Arbitrary<MemberReport> = fc.record({
  copies: fc
    .uniqueArray(fc.tuple(partition, copy), { selector: ([at]) => at, maxLength: 20 })
    .map((all) => new Map(all)),
  standbys: partitions,
  warmups: partitions,
  unreached: partitions,
});

describe('the report of copies', () => {
  it('has these bytes', () => {
    const copies = new Map([
      [5, { end: 300, logEnd: 300 }],
      [2, { end: 0, logEnd: 127 }],
    ]);
    const report = { copies, standbys: [0, 2], warmups: [2], unreached: [] };
    const hex = '0102' + '02007f' + '02ac0200' + '020001' + '0102';
    expect(encodeMemberReport(report).toString('hex')).toBe(hex);
    expect(encodeMemberReport({ ...report, unreached: [3, 4] }).toString('hex')).toBe(`${hex}020300`);
    expect(encodeStandbys({ standbys: [0, 2], warmups: [2] }).toString('hex')).toBe('01' + '020001' + '0102');
  });

  it('round-trips', () => {
    fc.assert(
      fc.property(reported, (one) => {
        expect(decodeMemberReport(encodeMemberReport(one))).toEqual(one);
        const { standbys, warmups } = one;
        expect(decodeStandbys(encodeStandbys(one))).toEqual({ standbys, warmups });
      }),
    );
  });

  it('takes seven bytes for a copy that ends at a million, and fewer for an empty one', () => {
    const many = (end: number) =>
      new Map(Array.from({ length: 1_024 }, (_, at) => [at, { end, logEnd: end + 1_000 }] as const));
    expect(encodeMemberReport({ ...NONE, copies: many(1_000_000) }).length).toBeLessThan(1_024 * 7);
    expect(encodeMemberReport({ ...NONE, copies: many(0) }).length).toBeLessThan(1_024 * 5);
  });

  it('leaves out a copy that ends beyond its log or at an invalid offset', () => {
    const copies = new Map([
      [0, { end: 8, logEnd: 7 }],
      [1, { end: -1, logEnd: 7 }],
      [2, { end: Number.NaN, logEnd: 7 }],
      [3, { end: 1.5, logEnd: 7 }],
      [4, { end: 1, logEnd: Number.POSITIVE_INFINITY }],
      [5, { end: 7, logEnd: 7 }],
    ]);
    expect([...(decodeMemberReport(encodeMemberReport({ ...NONE, copies }))?.copies ?? [])]).toEqual([
      [5, { end: 7, logEnd: 7 }],
    ]);
  });

  it('is rejected in another version', () => {
    for (const version of [0, 2, 127, 255]) {
      const bytes = encodeMemberReport(NONE);
      bytes[0] = version;
      expect(decodeMemberReport(bytes)).toBeUndefined();
      expect(decodeStandbys(bytes)).toBeUndefined();
    }
  });

  it('is rejected when it is truncated or too long', () => {
    const whole = encodeMemberReport({
      copies: new Map([[3, { end: 300, logEnd: 301 }]]),
      standbys: [4, 200],
      warmups: [200],
      unreached: [],
    });
    for (let length = 0; length < whole.length; length += 1) {
      expect(decodeMemberReport(whole.subarray(0, length))).toBeUndefined();
    }
    expect(decodeMemberReport(Buffer.concat([whole, Buffer.from([0])]))).toBeUndefined();
  });

  it('is rejected when a number is too large for an offset or a partition', () => {
    const largest = 'ffffffffffffff0f';
    for (const hex of [
      '010100' + 'ffffffffffffff10' + '000000', // a copy that ends at 2^53
      `010100${largest}010000`, // a log that ends there
      `010100${'80'.repeat(8)}00000000`, // an end of nine bytes
      `0101${'80'.repeat(300)}0000000000`, // a gap of many, all zero
    ]) {
      expect(decodeMemberReport(Buffer.from(hex, 'hex')), hex).toBeUndefined();
    }
    expect(decodeStandbys(Buffer.from('0101ffffffff0700', 'hex'))?.standbys).toEqual([2 ** 31 - 1]);
    expect(decodeStandbys(Buffer.from('0101808080800800', 'hex'))).toBeUndefined();
    expect(decodeMemberReport(Buffer.from(`010100${largest}000000`, 'hex'))?.copies.get(0)?.end).toBe(2 ** 53 - 1);
  });

  it('accepts or rejects any bytes, without allocating memory for false counts', () => {
    const count = fc.constantFrom('ffffffff0f', 'ffffffffffffff0f', '01', '7f').map((hex) => Buffer.from(hex, 'hex'));
    const rest = fc.uint8Array({ maxLength: 40 }).map((array) => Buffer.from(array));
    fc.assert(
      fc.property(fc.tuple(fc.constant(Buffer.from([1])), count, rest).map(Buffer.concat.bind(Buffer)), (any) => {
        for (const decode of [decodeMemberReport, decodeStandbys]) {
          const read = decode(any);
          for (const at of [...(read?.standbys ?? []), ...(read?.warmups ?? [])]) {
            expect(at).toSatisfy((one: number) => Number.isInteger(one) && one >= 0 && one < 2 ** 31);
          }
        }
      }),
      { numRuns: 2_000 },
    );
  });
});

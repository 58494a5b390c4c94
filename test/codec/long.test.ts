import avro from 'avsc';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bigintLong } from '../../src/codec/avro.ts';
import { lengthOfLongs, MAX_LONG_BYTES, putLongs, toSafeNumber } from '../../src/codec/long.ts';

const MIN = -(2n ** 63n);
const MAX = 2n ** 63n - 1n;

describe('the BigInt long', () => {
  it('round-trips every 64-bit integer exactly', () => {
    fc.assert(
      fc.property(fc.bigInt(MIN, MAX), (value) => {
        expect(bigintLong.fromBuffer(bigintLong.toBuffer(value))).toBe(value);
      }),
    );
  });

  it('round-trips both sides of every power of two', () => {
    for (let bits = 0n; bits < 63n; bits++) {
      for (const value of [2n ** bits - 1n, 2n ** bits, -(2n ** bits), -(2n ** bits) - 1n]) {
        expect(bigintLong.fromBuffer(bigintLong.toBuffer(value))).toBe(value);
      }
    }
    for (const value of [MIN, MIN + 1n, MAX]) expect(bigintLong.fromBuffer(bigintLong.toBuffer(value))).toBe(value);
  });

  it("writes the same bytes as avsc's own long where that is exact", () => {
    const plain = avro.Type.forSchema('long');
    fc.assert(
      fc.property(fc.integer({ min: -(2 ** 52), max: 2 ** 52 }), (value) => {
        expect(bigintLong.toBuffer(BigInt(value))).toEqual(plain.toBuffer(value));
      }),
    );
  });

  it('writes lists of rising longs as avsc does, whatever the step and wherever they begin', () => {
    const list = avro.Type.forSchema({ type: 'array', items: 'long' }, { registry: { long: bigintLong } });
    const power = fc.integer({ min: 0, max: 62 }).map((bits) => 2n ** BigInt(bits));
    const first = fc.oneof(
      fc.bigInt(0n, MAX),
      power,
      fc.tuple(power, fc.bigInt(0n, 300n)).map(([top, less]) => (top > less ? top - less : 0n)),
    );
    const run = fc.record({ first, count: fc.integer({ min: 0, max: 300 }) });
    const step = fc.oneof(
      fc.bigInt(1n, 2n ** 45n),
      power.filter((value) => value < 2n ** 46n),
    );
    fc.assert(
      fc.property(fc.array(run, { minLength: 1, maxLength: 3 }), step, (runs, by) => {
        const fitting = runs.filter(({ first, count }) => first + BigInt(count) * by <= MAX);
        const all = fitting.flatMap(({ first, count }) =>
          Array.from({ length: count }, (_, k) => first + BigInt(k) * by),
        );
        fc.pre(all.length > 0);
        const length = lengthOfLongs(fitting, by);
        const bytes = Buffer.alloc(1 + length + MAX_LONG_BYTES);
        expect(putLongs(bytes, 1, fitting, by)).toBe(1 + length);
        expect(bytes.subarray(1, length + 1).equals(list.toBuffer(all).subarray(0, -1))).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  it('writes the known bytes at the ends of the range', () => {
    expect(bigintLong.toBuffer(0n).toString('hex')).toBe('00');
    expect(bigintLong.toBuffer(-1n).toString('hex')).toBe('01');
    expect(bigintLong.toBuffer(64n).toString('hex')).toBe('8001');
    expect(bigintLong.toBuffer(MAX).toString('hex')).toBe('feffffffffffffffff01');
    expect(bigintLong.toBuffer(MIN).toString('hex')).toBe('ffffffffffffffffff01');
  });

  it('rejects more than 64 bits, in writing and reading', () => {
    expect(() => bigintLong.toBuffer(MAX + 1n)).toThrow();
    expect(() => bigintLong.toBuffer(MIN - 1n)).toThrow();
    expect(() => bigintLong.fromBuffer(Buffer.from('ffffffffffffffffff02', 'hex'))).toThrow(RangeError);
    expect(() => bigintLong.fromBuffer(Buffer.from('80808080808080808080808000', 'hex'))).toThrow(RangeError);
  });

  it('writes a safe integer like its BigInt', () => {
    fc.assert(
      fc.property(fc.maxSafeInteger(), (value) => {
        expect(bigintLong.toBuffer(value)).toEqual(bigintLong.toBuffer(BigInt(value)));
      }),
    );
  });

  it('rejects a number that may have been rounded before', () => {
    for (const value of [2 ** 53, -(2 ** 53), 0.5, Number.NaN]) expect(() => bigintLong.toBuffer(value)).toThrow();
  });

  it('becomes a number only within bounds', () => {
    expect(toSafeNumber(-1n, 'through', -1)).toBe(-1);
    expect(toSafeNumber(2n ** 53n - 1n, 'end', 0)).toBe(Number.MAX_SAFE_INTEGER);
    expect(() => toSafeNumber(2n ** 53n, 'end', 0)).toThrow(/end 9007199254740992/);
    expect(() => toSafeNumber(-2n, 'through', -1)).toThrow(RangeError);
  });
});

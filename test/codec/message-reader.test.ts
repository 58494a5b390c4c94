import avro from 'avsc';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bigintLong } from '../../src/codec/avro.ts';
import { MessageReader } from '../../src/codec/message-reader.ts';

const MAX = 2n ** 63n - 1n;
const anyLong = fc.oneof(fc.bigInt(-MAX - 1n, MAX), fc.maxSafeInteger().map(BigInt), fc.integer().map(BigInt));

function reading(...bytes: readonly Uint8Array[]): MessageReader {
  const reader = new MessageReader();
  reader.begin(Buffer.concat(bytes), 0, 1_000);
  return reader;
}

describe('a message reader', () => {
  it('reads every long that avsc writes: exactly as a bigint, and as a number up to 2^53', () => {
    fc.assert(
      fc.property(anyLong, (value) => {
        const bytes = bigintLong.toBuffer(value);
        const reader = reading(bytes);
        const number = reader.long();
        reader.end();
        expect(reader.bigintAt(0)).toBe(value);
        expect(Math.sign(number)).toBe(Math.sign(Number(value)));
        if (Number.isSafeInteger(Number(value))) expect(number).toBe(Number(value));
        else expect(Math.abs(number - Number(value))).toBeLessThanOrEqual(Math.abs(Number(value)) * 2 ** -50);
      }),
    );
  });

  it.each([
    ['a needless byte', [0x82, 0x00]],
    ['zero in two bytes', [0x80, 0x00]],
    ['65 bits', [...Array(9).fill(0xff), 0x02]],
    ['eleven bytes', [...Array(10).fill(0xff), 0x01]],
    ['no end', [0x80]],
    ['nothing', []],
  ])('rejects a number with %s', (_, bytes) => {
    expect(() => reading(Buffer.from(bytes)).long()).toThrow(RangeError);
    expect(() => reading(Buffer.from(bytes)).skipLong()).toThrow(RangeError);
  });

  it('reads every string that avsc writes, and skips no other bytes than those', () => {
    const type = avro.Type.forSchema('string');
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), fc.nat(63), (text, next) => {
        const reader = reading(type.toBuffer(text), Buffer.of(2 * next));
        const at = reader.skipText();
        expect(reader.integer('next', 0)).toBe(next);
        reader.end();
        expect(reader.textAt(at)).toBe(text);
      }),
    );
  });

  it('skips a string exactly if it is valid UTF-8', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 20 }), (text) => {
        const bytes = Buffer.from(text);
        const isValid = Buffer.from(bytes.toString('utf8')).equals(bytes);
        const reader = reading(Buffer.of(2 * text.length), text);
        if (isValid) expect(reader.skipText()).toBe(0);
        else expect(() => reader.skipText()).toThrow(/not in its canonical encoding/);
      }),
    );
  });

  it('rejects what is cut, too long, or followed by more, and a boolean that is neither', () => {
    expect(() => reading(Buffer.of(6, 65)).skipText()).toThrow(RangeError);
    expect(() => reading(Buffer.of(1, 2)).skipFixed(3)).toThrow(/truncated/);
    expect(() => reading(Buffer.of(1)).end()).toThrow(/trailing/);
    expect(() => reading(Buffer.of(2)).flag()).toThrow(RangeError);
    expect([reading(Buffer.of(0)).flag(), reading(Buffer.of(1)).flag()]).toEqual([false, true]);
    expect(() => reading(Buffer.alloc(1_001))).toThrow(/at most 1000 are allowed/);
    expect(() => reading(Buffer.of(3)).integer('end', 0)).toThrow('end -2 is outside 0..');
  });
});

import avro from 'avsc';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bigintLong } from '../../src/codec/avro.ts';
import { MAX_BYTES, MessageWriter } from '../../src/codec/message-writer.ts';

const schema: avro.Schema = {
  type: 'record',
  name: 'Message',
  fields: [
    { name: 'text', type: 'string' },
    { name: 'long', type: 'long' },
    { name: 'int', type: 'int' },
    { name: 'bytes', type: 'bytes' },
  ],
};
const record = avro.Type.forSchema(schema, { registry: { long: bigintLong } });
const text = fc.oneof(fc.string({ maxLength: 300 }), fc.string({ unit: 'grapheme', maxLength: 100 }));
const message = fc.record({
  text,
  long: fc.maxSafeInteger(),
  int: fc.integer({ min: -0x7fff_ffff, max: 0x7fff_ffff }),
  bytes: fc.uint8Array({ maxLength: 3_000 }).map((bytes) => Buffer.from(bytes)),
});

type Message = typeof message extends fc.Arbitrary<infer M> ? M : never;

function write(to: MessageWriter, { text, long, int, bytes }: Message): Buffer {
  to.begin(MAX_BYTES.text(text) + 2 * MAX_BYTES.long + MAX_BYTES.int + bytes.length);
  to.text(text);
  to.long(long);
  to.int(int);
  to.sized(bytes);
  return to.end();
}

describe('a message writer', () => {
  it('writes what avsc writes, and no message over another', () => {
    fc.assert(
      fc.property(fc.array(message, { minLength: 1, maxLength: 60 }), (messages) => {
        const to = new MessageWriter();
        const written = messages.map((one) => write(to, one));
        expect(written).toEqual(messages.map((one) => record.toBuffer(one)));
      }),
    );
  });

  it('writes a message that is larger than its memory', () => {
    const large = { text: 'é'.repeat(9_000), long: -1, int: 0, bytes: Buffer.alloc(100_000, 7) };
    const to = new MessageWriter(64);
    expect([write(to, large), write(to, { ...large, text: '' })]).toEqual([
      record.toBuffer(large),
      record.toBuffer({ ...large, text: '' }),
    ]);
  });

  it('writes every 64-bit integer', () => {
    fc.assert(
      fc.property(fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n), (value) => {
        const to = new MessageWriter();
        to.begin(MAX_BYTES.long);
        to.long(value);
        expect(to.end()).toEqual(bigintLong.toBuffer(value));
      }),
    );
  });

  it('throws for a number that the schema has no room for', () => {
    const to = new MessageWriter();
    for (const value of [2n ** 63n, -(2n ** 63n) - 1n, 2 ** 53, 0.5]) {
      to.begin(MAX_BYTES.long);
      expect(() => to.long(value)).toThrow(RangeError);
    }
    to.begin(MAX_BYTES.int);
    for (const value of [2 ** 31, 0.5, Number.NaN]) expect(() => to.int(value)).toThrow(RangeError);
    expect(() => to.fixed(Buffer.alloc(7), 8)).toThrow(RangeError);
  });

  it('throws for a message that is longer than was announced and has no room', () => {
    const to = new MessageWriter(64);
    to.begin(10);
    to.text('x'.repeat(60));
    for (let more = 0; more < 8; more += 1) to.long(1);
    expect(() => to.end()).toThrow(RangeError);
    to.begin(1);
    expect(() => to.raw(Buffer.alloc(65))).toThrow(RangeError);
  });
});

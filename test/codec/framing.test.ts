import { describe, expect, it } from 'vitest';
import { crc64Avro, fingerprint, frame, framingOf, singleObjectHeader, unframe } from '../../src/codec/framing.ts';

describe('CRC-64-AVRO', () => {
  it.each([
    ['"int"', 8247732601305521295n],
    ['"string"', -8142146995180207161n],
    ['"bytes"', 5746618253357095269n],
  ])('of the schema %s is the fingerprint that Apache Avro tests with', (schema, expected) => {
    expect(BigInt.asIntN(64, crc64Avro(Buffer.from(schema)))).toBe(expected);
  });

  it('of no bytes is the polynomial', () => {
    expect(crc64Avro(Buffer.alloc(0))).toBe(0xc15d213aa4d7a795n);
  });

  it('is written little endian', () => {
    expect(fingerprint('"int"').toString('hex')).toBe('8f5c393f1ad57572');
  });
});

describe('a single-object frame', () => {
  const header = singleObjectHeader(fingerprint('"int"'));

  it('is C3 01, the fingerprint, and the body', () => {
    const framed = frame(header, Buffer.of(2));
    expect(framed.toString('hex')).toBe('c3018f5c393f1ad5757202');
    expect(unframe(header, framed)).toEqual(Buffer.of(2));
  });

  it('may have an empty body', () => {
    expect(unframe(header, frame(header, Buffer.alloc(0)))).toEqual(Buffer.alloc(0));
  });

  it('of another schema, a shortened one and other bytes are not unframed', () => {
    const other = frame(singleObjectHeader(fingerprint('"string"')), Buffer.of(2));
    expect(unframe(header, other)).toBeUndefined();
    expect(unframe(header, header.subarray(0, 9))).toBeUndefined();
    expect(unframe(header, Buffer.alloc(0))).toBeUndefined();
  });

  it('is distinguished from Confluent framing and from no framing', () => {
    expect(framingOf(frame(header, Buffer.of(2)))).toBe('SINGLE_OBJECT');
    expect(framingOf(Buffer.of(0, 0, 0, 0, 7, 2))).toBe('CONFLUENT');
    expect(framingOf(Buffer.of(0, 0, 0))).toBeUndefined();
    expect(framingOf(Buffer.from('{"count":1}'))).toBeUndefined();
  });

  it('rejects a fingerprint of the wrong length', () => {
    expect(() => singleObjectHeader(Buffer.alloc(7))).toThrow(RangeError);
  });
});

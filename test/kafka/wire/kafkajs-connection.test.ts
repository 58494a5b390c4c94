import fc from 'fast-check';
import { expect, test } from 'vitest';
import { kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import { Frames, MAX_RESPONSE_BYTES } from '../../../src/kafka/wire/kafkajs-connection.ts';
import { int32 } from './tcp-broker.ts';

test('answers are split the same way, however the bytes arrive', () => {
  const answers = fc.array(fc.uint8Array({ minLength: 4, maxLength: 60 }), { maxLength: 8 });
  const cuts = fc.array(fc.nat({ max: 500 }));
  fc.assert(
    fc.property(answers, cuts, (bodies, places) => {
      const bytes = Buffer.concat(bodies.flatMap((body) => [int32(body.length), body]));
      const bounds = [...new Set([0, ...places.map((at) => at % (bytes.length + 1)), bytes.length])].sort(
        (a, b) => a - b,
      );
      const frames = new Frames();
      const found = bounds.slice(1).flatMap((end, i) => frames.push(bytes.subarray(bounds[i], end)));
      expect(found.map((frame) => frame.toString('hex'))).toEqual(
        bodies.map((body) => Buffer.from(body).toString('hex')),
      );
    }),
  );
});

test('an answer in many pieces is concatenated once', () => {
  const frames = new Frames();
  const body = Buffer.alloc(1_000_000, 7);
  const pieces = [
    int32(body.length),
    ...Array.from({ length: 1_000 }, (_, i) => body.subarray(i * 1_000, (i + 1) * 1_000)),
  ];
  const found = pieces.flatMap((piece) => frames.push(piece));
  expect(found.map((frame) => frame.equals(body))).toEqual([true]);
});

test('a large answer is whole, though the memory of its chunks is returned while it arrives', () => {
  const bodies = [Buffer.alloc(100_000, 1), Buffer.alloc(65_536 - 2 * 4, 2), Buffer.alloc(9, 3)];
  const bytes = Buffer.concat(bodies.flatMap((body) => [int32(body.length), body]));
  for (const size of [16_384, 50_000, 65_536, 100_004, 120_000]) {
    const frames = new Frames();
    const found: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += size) {
      // As a socket does: each has its memory for itself.
      const chunk = Buffer.allocUnsafeSlow(Math.min(size, bytes.length - at));
      bytes.copy(chunk, 0, at);
      found.push(...frames.push(chunk));
    }
    expect(found.map((frame, i) => frame.equals(bodies[i] as Buffer))).toEqual([true, true, true]);
  }
});

test('a chunk that was copied takes no memory any more', () => {
  const frames = new Frames();
  const chunks = [int32(100_000), Buffer.allocUnsafeSlow(65_536), Buffer.allocUnsafeSlow(34_464)];
  const found = chunks.flatMap((chunk) => frames.push(chunk));
  expect(found.map(({ length }) => length)).toEqual([100_000]);
  expect(chunks.slice(1).map(({ length }) => length)).toEqual([0, 0]);
});

test.for([
  ['a negative length', int32(-1), /not a Kafka broker/],
  ['a length too short for a correlation number', int32(3), /not a Kafka broker/],
  ['a length above the limit', int32(MAX_RESPONSE_BYTES + 1), /not a Kafka broker/],
  ['the start of an HTTP response', Buffer.from('HTTP/1.1 400 Bad Request'), /not a Kafka broker/],
  ['a TLS alert', Buffer.of(0x15, 3, 1, 0, 2, 2, 40), /answers with TLS/],
] as const)('%s is rejected before any memory is allocated for it', ([, bytes, why]) => {
  const push = () => new Frames().push(bytes);
  expect(push).toThrow(why);
  try {
    push();
  } catch (error) {
    expect(kafkaErrorCode(error)).toBe('MALFORMED_RESPONSE');
  }
});

test('an answer of the largest size is accepted', () => {
  expect(new Frames().push(int32(MAX_RESPONSE_BYTES))).toEqual([]);
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { frame } from '../../src/codec/framing.ts';
import {
  decodeIdRequest,
  encodeIdRequest,
  ID_REQUEST_HEADER,
  type IdRequest,
  MAX_REQUEST_BYTES,
  readBodyAddress,
  WIDE_REQUEST_HEADER,
} from '../../src/codec/id-request.ts';
import { checkReplyTopic, MAX_REQUEST_COUNT } from '../../src/codec/request-checks.ts';
import { type ErrorCode, IdallocError } from '../../src/errors.ts';
import { anyCorrelationId, plainAvro } from './samples.ts';

const plain = plainAvro('id-request');
const widePlain = plainAvro('id-request-2');
const header = ID_REQUEST_HEADER;
const NOTHING = { correlation_id: null, reply_topic: null, expires_at: null, encoding: null };

/** A framed request written by unmodified avsc, which accepts every value. */
function raw(fields: Record<string, unknown>): Buffer {
  return frame(header, plain.toBuffer({ ...NOTHING, ...fields }));
}

/** The same in the second schema. */
function rawWide(fields: Record<string, unknown>): Buffer {
  return frame(WIDE_REQUEST_HEADER, widePlain.toBuffer({ ...NOTHING, request_id: null, sequence: null, ...fields }));
}

function codeOf(read: () => unknown): ErrorCode | 'accepted' {
  try {
    read();
    return 'accepted';
  } catch (error) {
    if (error instanceof IdallocError) return error.code;
    throw error;
  }
}

const anyRequest: fc.Arbitrary<IdRequest> = fc.record({
  count: fc.integer({ min: 1, max: MAX_REQUEST_COUNT }),
  correlationId: fc.option(anyCorrelationId, { nil: undefined }),
  replyTopic: fc.option(fc.stringMatching(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}$/), { nil: undefined }),
  expiresAtMs: fc.option(fc.integer({ min: 0, max: 8_640_000_000_000_000 }), { nil: undefined }),
  encoding: fc.option(fc.constantFrom('RANGES' as const, 'IDS' as const), { nil: undefined }),
  requestId: fc.option(anyCorrelationId, { nil: undefined }),
  sequence: fc.option(fc.stringMatching(/^[A-Za-z0-9._/-]{1,64}$/), { nil: undefined }),
});

describe('an IdRequest', () => {
  it('round-trips with any of its fields', () => {
    fc.assert(
      fc.property(anyRequest, (request) => {
        expect(decodeIdRequest(encodeIdRequest(request))).toEqual(request);
      }),
    );
  });

  it('is compatible with unmodified avsc in both directions', () => {
    fc.assert(
      fc.property(anyRequest, (request) => {
        const value = encodeIdRequest(request);
        const isWide = request.requestId !== undefined || request.sequence !== undefined;
        const fields = (isWide ? widePlain : plain).fromBuffer(value.subarray(10));
        expect(fields.count).toBe(BigInt(request.count));
        expect((isWide ? rawWide : raw)({ ...fields }).equals(value)).toBe(true);
      }),
    );
  });

  it.each([
    ['correlation ID', { correlationId: Buffer.from('abc') }],
    ['request ID', { requestId: Buffer.from('abc') }],
  ])('has the %s of its own bytes, whatever became of those of an equal one before', (_, id) => {
    const value = encodeIdRequest({ count: 1, ...id });
    const earlier = Buffer.from(value);
    decodeIdRequest(earlier);
    earlier.fill(0);
    expect(decodeIdRequest(value)).toMatchObject(id);
  });

  it('is a plain object with all its fields, present or not', () => {
    expect(Object.keys(decodeIdRequest(raw({ count: 1n })))).toEqual([
      'count',
      'correlationId',
      'replyTopic',
      'expiresAtMs',
      'encoding',
      'requestId',
      'sequence',
    ]);
  });

  it('is written in the first schema, which older workers read, unless it has a field of the second', () => {
    const id = Buffer.of(1);
    expect(encodeIdRequest({ count: 1, correlationId: id })).toEqual(raw({ count: 1n, correlation_id: id }));
    expect(encodeIdRequest({ count: 1, requestId: id })).toEqual(rawWide({ count: 1n, request_id: id }));
    expect(encodeIdRequest({ count: 1, sequence: 'a/b' })).toEqual(rawWide({ count: 1n, sequence: 'a/b' }));
    expect(decodeIdRequest(rawWide({ count: 1n }))).toEqual(decodeIdRequest(raw({ count: 1n })));
  });

  it.each([0, 257])('with a request ID of %i bytes is malformed', (length) => {
    const value = rawWide({ count: 1n, request_id: Buffer.alloc(length, 1) });
    expect(codeOf(() => decodeIdRequest(value))).toBe('MALFORMED_REQUEST');
  });

  it.each(['', 'a b', 'a\n', 'thème', 'x'.repeat(65)])('with the sequence %j is malformed', (sequence) => {
    expect(codeOf(() => decodeIdRequest(rawWide({ count: 1n, sequence })))).toBe('MALFORMED_REQUEST');
  });

  it.each([0n, -1n, 2n ** 31n, 2n ** 40n, 2n ** 63n - 1n, -(2n ** 63n)])(
    'with a count of %s has an INVALID_COUNT',
    (count) => {
      expect(codeOf(() => decodeIdRequest(raw({ count })))).toBe('INVALID_COUNT');
    },
  );

  it.each([1n, 100_000n, 2n ** 31n - 1n])('with a count of %s is read', (count) => {
    expect(decodeIdRequest(raw({ count })).count).toBe(Number(count));
  });

  it.each([0, 257, 10_240])('with a correlation ID of %i bytes has an INVALID_CORRELATION_ID', (length) => {
    const value = raw({ count: 1n, correlation_id: Buffer.alloc(length, 1) });
    expect(codeOf(() => decodeIdRequest(value))).toBe('INVALID_CORRELATION_ID');
  });

  it.each([1, 256])('with a correlation ID of %i bytes is read', (length) => {
    const correlationId = Buffer.alloc(length, 0xff);
    expect(decodeIdRequest(raw({ count: 1n, correlation_id: correlationId })).correlationId).toEqual(correlationId);
  });

  it.each(['', '.', '..', 'a b', 'a/b', 'thème', 'a\u0000', 'a\n', 'x'.repeat(250)])(
    'with the reply topic %j has an INVALID_REPLY_TOPIC',
    (topic) => {
      expect(codeOf(() => decodeIdRequest(raw({ count: 1n, reply_topic: topic })))).toBe('INVALID_REPLY_TOPIC');
    },
  );

  it.each(['a', '...', 'id.replies.Orders_2-x', 'x'.repeat(249)])('may name the reply topic %j', (topic) => {
    expect(checkReplyTopic(topic)).toBe(topic);
  });

  it.each([-1n, 8_640_000_000_000_001n, 2n ** 62n])('that expires at %s is malformed', (expires) => {
    expect(codeOf(() => decodeIdRequest(raw({ count: 1n, expires_at: expires })))).toBe('MALFORMED_REQUEST');
  });
});

describe('bytes that are not an IdRequest', () => {
  const good = raw({
    count: 300n,
    correlation_id: Buffer.from('abc'),
    reply_topic: 'id.replies.a',
    expires_at: 5n,
    encoding: 'IDS',
  });

  it('are malformed wherever they are truncated', () => {
    expect(codeOf(() => decodeIdRequest(good))).toBe('accepted');
    for (let length = 0; length < good.length; length++) {
      expect(codeOf(() => decodeIdRequest(good.subarray(0, length)))).toBe('MALFORMED_REQUEST');
    }
  });

  it('are malformed under the fingerprint of the other schema', () => {
    const wide = rawWide({ count: 300n, request_id: Buffer.from('abc') });
    expect(codeOf(() => decodeIdRequest(wide))).toBe('accepted');
    expect(codeOf(() => decodeIdRequest(frame(header, wide.subarray(10))))).toBe('MALFORMED_REQUEST');
    expect(codeOf(() => decodeIdRequest(frame(WIDE_REQUEST_HEADER, good.subarray(10))))).toBe('MALFORMED_REQUEST');
  });

  it('are malformed with a byte after the end', () => {
    expect(codeOf(() => decodeIdRequest(Buffer.concat([good, Buffer.of(0)])))).toBe('MALFORMED_REQUEST');
  });

  it.each([
    ['an overlong count', '82000000 0000'],
    ['an overlong union index', '02 8000 00 00 00'],
    ['an overlong length of the correlation ID', '02 02 8200 41 00 00 00'],
    ['invalid UTF-8 in the reply topic', '02 00 02 02 ff 00 00'],
    ['a length of 8 million', '02 02 8092f407 00 00 00'],
    ['a length of 2^62', '02 02 808080808080808080 01 00 00 00'],
    ['a negative length', '02 02 01 00 00 00'],
    ['a count of more than 64 bits', 'ffffffffffffffffff7f 00 00 00 00'],
  ])('are malformed with %s', (_, hex) => {
    const body = Buffer.from(hex.replaceAll(' ', ''), 'hex');
    expect(codeOf(() => decodeIdRequest(frame(header, body)))).toBe('MALFORMED_REQUEST');
  });

  it('are malformed above 16 KiB, without being read', () => {
    const longest = raw({ count: 1n, correlation_id: Buffer.alloc(MAX_REQUEST_BYTES - 10 - 8) });
    expect(longest.length).toBe(MAX_REQUEST_BYTES);
    expect(codeOf(() => decodeIdRequest(longest))).toBe('INVALID_CORRELATION_ID');
    const longer = raw({ count: 1n, correlation_id: Buffer.alloc(MAX_REQUEST_BYTES - 10 - 7) });
    expect(codeOf(() => decodeIdRequest(longer))).toBe('MALFORMED_REQUEST');
    expect(codeOf(() => decodeIdRequest(Buffer.alloc(1024 * 1024, 0x80)))).toBe('MALFORMED_REQUEST');
  });

  it('are of an UNKNOWN_SCHEMA when their frame names another schema, or a registry', () => {
    const other = Buffer.from(good);
    other[2] = (other[2] ?? 0) ^ 1;
    expect(codeOf(() => decodeIdRequest(other))).toBe('UNKNOWN_SCHEMA');
    expect(codeOf(() => decodeIdRequest(Buffer.concat([Buffer.of(0, 0, 0, 0, 7), good.subarray(10)])))).toBe(
      'UNKNOWN_SCHEMA',
    );
  });

  it('only ever cause an error with a code, and never affect later reads', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 2000 }),
        fc.constantFrom(header, WIDE_REQUEST_HEADER, undefined),
        (bytes, framed) => {
          const value = framed ? frame(framed, bytes) : Buffer.from(bytes);
          const isBare = (one: IdRequest) => one.requestId === undefined && one.sequence === undefined;
          if (
            codeOf(() => decodeIdRequest(value)) === 'accepted' &&
            isBare(decodeIdRequest(value)) === (framed === header)
          ) {
            const request = decodeIdRequest(value);
            expect(encodeIdRequest(request).equals(value)).toBe(true);
          }
          expect(decodeIdRequest(good).correlationId).toEqual(Buffer.from('abc'));
        },
      ),
    );
  });

  it('damaged in one byte are rejected, or are the canonical bytes of another request', () => {
    for (let at = 10; at < good.length; at++) {
      for (let bit = 1; bit < 256; bit <<= 1) {
        const damaged = Buffer.from(good);
        damaged[at] = (damaged[at] ?? 0) ^ bit;
        if (codeOf(() => decodeIdRequest(damaged)) !== 'accepted') continue;
        expect(encodeIdRequest(decodeIdRequest(damaged)).equals(damaged)).toBe(true);
      }
    }
  });
});

describe("a request's address", () => {
  it('is readable if only the count is out of range', () => {
    const value = raw({ count: 0n, correlation_id: Buffer.from('abc'), reply_topic: 'id.replies.a' });
    const address = { correlationId: Buffer.from('abc'), replyTopic: 'id.replies.a' };
    expect(readBodyAddress(value)).toEqual({ ...address, requestId: null });
    const wide = rawWide({
      count: 0n,
      correlation_id: Buffer.from('abc'),
      reply_topic: 'id.replies.a',
      request_id: Buffer.of(7),
    });
    expect(readBodyAddress(wide)).toEqual({ ...address, requestId: Buffer.of(7) });
  });
});

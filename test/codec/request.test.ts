import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ID_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { mergeRequest, salvageAddress } from '../../src/codec/request.ts';
import { DIRECT_ROUTE, type RecordHeaders } from '../../src/codec/request-headers.ts';
import { type ErrorCode, IdallocError } from '../../src/errors.ts';

const correlationId = Buffer.from('abc');
const replyTopic = 'id.replies.a';
const HEADERS: RecordHeaders = { kafka_correlationId: correlationId, kafka_replyTopic: Buffer.from(replyTopic) };

function refusal(value: Buffer | null, headers: RecordHeaders): ErrorCode {
  try {
    mergeRequest(value, headers);
  } catch (error) {
    if (error instanceof IdallocError) return error.code;
    throw error;
  }
  throw new Error('accepted');
}

describe('a merged request', () => {
  it('can consist of the body alone', () => {
    const value = encodeIdRequest({ count: 5, correlationId, replyTopic, expiresAtMs: 99, encoding: 'IDS' });
    expect(mergeRequest(value, {})).toEqual({
      count: 5,
      correlationId,
      replyTopic,
      expiresAtMs: 99,
      encoding: 'IDS',
      framing: 'SINGLE_OBJECT',
      schemaFingerprint: ID_REPLY_FINGERPRINT,
      route: DIRECT_ROUTE,
      trace: {},
    });
  });

  it.each([[null], [Buffer.alloc(0)]])('can consist of the headers alone, with a value of %j', (value) => {
    const headers = { ...HEADERS, 'idalloc-count': '7', kafka_replyPartition: '3', traceparent: Buffer.from('t') };
    expect(mergeRequest(value, headers)).toEqual({
      count: 7,
      correlationId,
      replyTopic,
      replyPartition: 3,
      encoding: 'RANGES',
      framing: 'SINGLE_OBJECT',
      schemaFingerprint: ID_REPLY_FINGERPRINT,
      route: DIRECT_ROUTE,
      trace: { traceparent: Buffer.from('t') },
    });
  });

  it('takes from the headers what the body lacks', () => {
    expect(mergeRequest(encodeIdRequest({ count: 5 }), HEADERS)).toMatchObject({ count: 5, correlationId, replyTopic });
  });

  it('may have the same field in both', () => {
    const value = encodeIdRequest({ count: 5, correlationId, replyTopic });
    expect(mergeRequest(value, { ...HEADERS, 'idalloc-count': '5' })).toMatchObject({
      count: 5,
      correlationId,
      replyTopic,
    });
  });

  it.each([
    ['count', { 'idalloc-count': '6' }],
    ['correlation ID', { kafka_correlationId: Buffer.from('abd') }],
    ['reply topic', { kafka_replyTopic: 'id.replies.b' }],
  ])('is malformed when body and header disagree about the %s', (_, other) => {
    const value = encodeIdRequest({ count: 5, correlationId, replyTopic });
    expect(refusal(value, { ...HEADERS, ...other })).toBe('MALFORMED_REQUEST');
  });

  it('needs a correlation ID, a reply topic and a count', () => {
    expect(refusal(encodeIdRequest({ count: 5, replyTopic }), {})).toBe('INVALID_CORRELATION_ID');
    expect(refusal(encodeIdRequest({ count: 5, correlationId }), {})).toBe('INVALID_REPLY_TOPIC');
    expect(refusal(null, HEADERS)).toBe('MALFORMED_REQUEST');
    expect(refusal(Buffer.alloc(0), HEADERS)).toBe('MALFORMED_REQUEST');
  });

  it('does not accept plain text as a request', () => {
    expect(refusal(Buffer.from('{"count":1}'), { ...HEADERS, 'idalloc-count': '1' })).toBe('MALFORMED_REQUEST');
  });
});

describe('the address of an error', () => {
  it('is found if only the count is invalid', () => {
    const value = encodeIdRequest({ count: 0, correlationId, replyTopic });
    expect(refusal(value, {})).toBe('INVALID_COUNT');
    expect(salvageAddress(value, {})).toEqual({ correlationId, replyTopic, trace: {} });
  });

  it('is found in the headers when the body is garbage', () => {
    const headers = { ...HEADERS, 'idalloc-request-id': 'r', kafka_replyPartition: '3', traceparent: 't' };
    expect(salvageAddress(Buffer.from('garbage'), headers)).toEqual({
      correlationId,
      requestId: Buffer.from('r'),
      replyTopic,
      replyPartition: 3,
      trace: { traceparent: Buffer.from('t') },
    });
  });

  it('is that of the headers when the body names another', () => {
    const value = encodeIdRequest({ count: 5, correlationId: Buffer.from('other'), replyTopic: 'id.replies.other' });
    expect(salvageAddress(value, HEADERS)).toMatchObject({ correlationId, replyTopic });
  });

  it('leaves out invalid parts and keeps the rest', () => {
    const headers = { ...HEADERS, kafka_correlationId: [correlationId, correlationId], kafka_replyPartition: 'x' };
    expect(salvageAddress(null, headers)).toEqual({ replyTopic, trace: {} });
    const value = encodeIdRequest({ count: 5, correlationId: Buffer.alloc(300), replyTopic: 'no topic' });
    expect(salvageAddress(value, {})).toEqual({ trace: {} });
  });

  it('never throws', () => {
    const anyValue = fc.option(fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)));
    const anyHeader = fc.oneof(fc.string(), fc.array(fc.string()), fc.constant(undefined));
    const names = fc.constantFrom(
      'kafka_correlationId',
      'kafka_replyTopic',
      'kafka_replyPartition',
      'idalloc-count',
      'traceparent',
    );
    fc.assert(
      fc.property(anyValue, fc.dictionary(names, anyHeader), (value, headers) => {
        expect(salvageAddress(value, headers)).toHaveProperty('trace');
      }),
    );
  });
});

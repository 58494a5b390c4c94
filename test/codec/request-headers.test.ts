import { describe, expect, it } from 'vitest';
import {
  DEFAULT_HEADER_NAMES,
  type RecordHeaders,
  readRequestHeaders,
  readRetryAfterMs,
  replyHeaders,
} from '../../src/codec/request-headers.ts';
import { type ErrorCode, IdallocError } from '../../src/errors.ts';
import { sentHeaders } from '../support/memory-publisher.ts';

const NAMES = DEFAULT_HEADER_NAMES;

function refusal(headers: RecordHeaders): ErrorCode {
  try {
    readRequestHeaders(headers);
  } catch (error) {
    if (error instanceof IdallocError) return error.code;
    throw error;
  }
  throw new Error('accepted');
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

describe("a request's headers", () => {
  it('are read as Spring Kafka sends them', () => {
    const headers = {
      kafka_correlationId: Buffer.from('00ff10', 'hex'),
      kafka_replyTopic: Buffer.from('id.replies.spring'),
      kafka_replyPartition: int32(7),
    };
    expect(readRequestHeaders(headers)).toEqual({
      correlationId: Buffer.from('00ff10', 'hex'),
      replyTopic: 'id.replies.spring',
      replyPartition: 7,
      count: undefined,
      trace: {},
    });
  });

  it('are read as NestJS sends them, also as text', () => {
    const headers = { kafka_correlationId: 'b9a1', kafka_replyTopic: 'id.requests.reply', kafka_replyPartition: '0' };
    expect(readRequestHeaders(headers)).toMatchObject({
      correlationId: Buffer.from('b9a1'),
      replyTopic: 'id.requests.reply',
      replyPartition: 0,
    });
  });

  it('may all be absent', () => {
    const nothing = {
      correlationId: undefined,
      replyTopic: undefined,
      replyPartition: undefined,
      count: undefined,
      requestId: undefined,
      sequence: undefined,
      trace: {},
    };
    expect(readRequestHeaders({})).toEqual(nothing);
    expect(
      readRequestHeaders({ kafka_correlationId: undefined, kafka_replyTopic: null } as unknown as RecordHeaders),
    ).toEqual(nothing);
  });

  it('are found under other names', () => {
    const names = { ...NAMES, correlationId: 'x-id', replyTopic: 'x-to' };
    const headers = { 'x-id': 'a', 'x-to': 'b', kafka_correlationId: 'c', kafka_replyTopic: 'd' };
    expect(readRequestHeaders(headers, names)).toMatchObject({ correlationId: Buffer.from('a'), replyTopic: 'b' });
  });

  it.each([
    ['four ASCII digits, which count as text', Buffer.from('0012'), 12],
    ['one digit', Buffer.from('3'), 3],
    ['the largest number', Buffer.from('2147483647'), 2147483647],
    ['four bytes', int32(256), 256],
    ['four zero bytes', int32(0), 0],
    ['four bytes of which three are digits', Buffer.of(0, 0x31, 0x32, 0x33), 0x313233],
  ])('name a partition by %s', (_, bytes, expected) => {
    expect(readRequestHeaders({ kafka_replyPartition: bytes }).replyPartition).toBe(expected);
  });

  it.each([
    ['no bytes', Buffer.alloc(0)],
    ['a negative number', int32(-1)],
    ['a minus sign', Buffer.from('-1')],
    ['three bytes', Buffer.of(0, 0, 1)],
    ['eight bytes', Buffer.alloc(8)],
    ['a number above 2^31', Buffer.from('2147483648')],
    ['letters', Buffer.from('twelve')],
    ['a space', Buffer.from(' 12')],
    ['ten thousand digits', Buffer.alloc(10_000, 0x31)],
  ])('are malformed with a partition of %s', (_, bytes) => {
    expect(refusal({ kafka_replyPartition: bytes })).toBe('MALFORMED_REQUEST');
  });

  it.each(['kafka_correlationId', 'kafka_replyTopic', 'kafka_replyPartition', 'idalloc-count'])(
    'are malformed with %s twice, even if both say the same',
    (name) => {
      expect(refusal({ [name]: [Buffer.from('1'), Buffer.from('1')] })).toBe('MALFORMED_REQUEST');
    },
  );

  it('may repeat headers that are not read', () => {
    expect(readRequestHeaders({ other: ['a', 'b'], 'idalloc-count': '5' }).count).toBe(5);
  });

  it.each([0, 257, 10_240])('with a correlation ID of %i bytes have an INVALID_CORRELATION_ID', (length) => {
    expect(refusal({ kafka_correlationId: Buffer.alloc(length) })).toBe('INVALID_CORRELATION_ID');
  });

  it.each(['', 'a b', '..'])('with the reply topic %j have an INVALID_REPLY_TOPIC', (topic) => {
    expect(refusal({ kafka_replyTopic: topic })).toBe('INVALID_REPLY_TOPIC');
  });

  it('with a reply topic in invalid UTF-8 have an INVALID_REPLY_TOPIC', () => {
    expect(refusal({ kafka_replyTopic: Buffer.of(0x61, 0xff) })).toBe('INVALID_REPLY_TOPIC');
  });

  it.each(['', '0', '-1', '1.5', '1e3', '0x10', ' 1', '1099511627776', '9223372036854775807', '9'.repeat(50)])(
    'with the count %j have an INVALID_COUNT',
    (count) => {
      expect(refusal({ 'idalloc-count': count })).toBe('INVALID_COUNT');
    },
  );

  it('are not read from the prototype, and a header named __proto__ is an ordinary header', () => {
    const inherited: RecordHeaders = Object.create({
      kafka_correlationId: Buffer.from('x'),
      'idalloc-count': Buffer.from('5'),
    });
    expect(readRequestHeaders(inherited)).toMatchObject({ correlationId: undefined, count: undefined });
    const hostile: RecordHeaders = JSON.parse(
      '{"__proto__": {"kafka_correlationId": "x"}, "constructor": "y", "idalloc-count": "2"}',
    );
    expect(readRequestHeaders(hostile)).toMatchObject({ correlationId: undefined, count: 2 });
    expect(({} as Record<string, unknown>).kafka_correlationId).toBeUndefined();
  });
});

describe('trace headers', () => {
  const traceparent = Buffer.from('00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01');
  const tracestate = Buffer.from('vendor=value');

  it('are kept as they are', () => {
    expect(readRequestHeaders({ traceparent, tracestate }).trace).toEqual({ traceparent, tracestate });
    expect(readRequestHeaders({ traceparent }).trace).toEqual({ traceparent });
  });

  it('never fail a request: repeated, huge or orphaned ones are dropped', () => {
    expect(readRequestHeaders({ traceparent: [traceparent, traceparent], tracestate }).trace).toEqual({});
    expect(readRequestHeaders({ traceparent, tracestate: Buffer.alloc(1025, 0x61) }).trace).toEqual({ traceparent });
    expect(readRequestHeaders({ tracestate }).trace).toEqual({});
  });
});

describe("a reply's headers", () => {
  const correlationId = Buffer.from('00ff10', 'hex');

  it('echo the correlation ID exactly, under the name of the request', () => {
    expect(replyHeaders({ names: NAMES, correlationId, replayed: false, trace: {} })).toEqual({
      kafka_correlationId: correlationId,
    });
    const names = { ...NAMES, correlationId: 'x-id' };
    expect(replyHeaders({ names, correlationId, replayed: false, trace: {} })).toEqual({ 'x-id': correlationId });
  });

  it('mark a replayed reply, and carry the trace', () => {
    const trace = { traceparent: Buffer.from('p'), tracestate: Buffer.from('s') };
    expect(replyHeaders({ names: NAMES, correlationId, replayed: true, trace })).toEqual({
      kafka_correlationId: correlationId,
      'idalloc-replayed': '1',
      traceparent: trace.traceparent,
      tracestate: trace.tracestate,
    });
  });

  it('say when a retry may succeed, as they are read', () => {
    const headers = replyHeaders({ names: NAMES, correlationId, replayed: false, trace: {}, retryAfterMs: 1_490 });
    expect(headers['idalloc-retry-after-ms']).toBe('1490');
    expect(readRetryAfterMs(sentHeaders(headers), NAMES)).toBe(1_490);
    const texts = [undefined, null, '', '-1', '1.5', '1e3', 'soon', '1'.repeat(13), ['1', '2']];
    const read = texts.map((text) => readRetryAfterMs({ 'idalloc-retry-after-ms': text }, NAMES));
    expect(read).toEqual(texts.map(() => undefined));
  });

  it("end NestJS's wait, with the error if there is one", () => {
    const nest = { names: NAMES, correlationId, replayed: false, trace: {}, nest: true };
    expect(replyHeaders(nest)).toEqual({ kafka_correlationId: correlationId, 'kafka_nest-is-disposed': '1' });
    expect(replyHeaders({ ...nest, nestError: 'CONFLICT: x' })).toMatchObject({
      'kafka_nest-is-disposed': '1',
      'kafka_nest-err': 'CONFLICT: x',
    });
  });
});

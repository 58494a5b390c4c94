import { encodeIdRequest, ID_REQUEST_HEADER } from '../../src/codec/id-request.ts';
import { LARGE_BYTES, Maker, type PoisonCase, type PoisonTools } from './poison-maker.ts';
import { varint } from './record-bytes.ts';

/** Values that are not a request, or don't look like one. */
export function values(tools: PoisonTools): PoisonCase[] {
  const make = new Maker(tools);
  const good = make.request('x');
  const frame = good.subarray(0, 10);
  const body = (...parts: (Buffer | number)[]) =>
    Buffer.concat([frame, ...parts.map((part) => (typeof part === 'number' ? Buffer.of(part) : part))]);
  const withByte = (at: number, byte: number) =>
    Buffer.concat([good.subarray(0, at), Buffer.of(byte), good.subarray(at + 1)]);

  make.add('null', { letter: 'MALFORMED_REQUEST' }, { value: null });
  make.malformed('null-addressed', null);
  make.malformed('empty', Buffer.alloc(0));
  make.add('tombstone', { letter: 'MALFORMED_REQUEST' }, { value: null, headers: { some: 'header' } });
  make.malformed('one-byte', Buffer.of(0xc3));
  make.malformed('frame-alone', frame);
  make.malformed('truncated', good.subarray(0, -3));
  make.malformed('trailing', Buffer.concat([good, Buffer.of(0)]));
  make.malformed('wrong-fingerprint', withByte(3, (good[3] ?? 0) ^ 1), 'UNKNOWN_SCHEMA');
  make.malformed(
    'big-endian',
    Buffer.concat([good.subarray(0, 2), Buffer.from(ID_REQUEST_HEADER.subarray(2)).reverse(), good.subarray(10)]),
    'UNKNOWN_SCHEMA',
  );
  make.malformed('wrong-magic', withByte(1, 2));
  make.malformed('confluent', Buffer.concat([Buffer.from([0, 0, 0, 0, 7]), good.subarray(10)]), 'UNKNOWN_SCHEMA');
  make.malformed('json', Buffer.from('{"count":2}'));
  make.malformed('zeros', Buffer.concat([frame, Buffer.alloc(1_000)]));
  make.malformed('over-16-KiB', Buffer.concat([good, Buffer.alloc(16_384)]));
  make.malformed('1-MB', Buffer.alloc(LARGE_BYTES, good));
  make.malformed('giant-length', body(4, 2, varint(2n ** 31n), 0));
  make.malformed('negative-length', body(4, 2, varint(-5), 0));
  make.malformed('minimum-length', body(4, 2, varint(-(2n ** 63n)), 0));
  make.malformed('1024-bit-length', body(4, 2, varint(2n ** 1_100n), 0));
  make.malformed('endless-length', body(4, 2, Buffer.alloc(2_000, 0xff)));
  make.malformed('1024-bit-count', body(varint(2n ** 1_100n), 0, 0, 0, 0));
  make.malformed('overlong-varint', body(0x84, 0x80, 0, 0, 0, 0, 0));
  make.malformed('no-such-branch', body(4, 4, 0, 0, 0));
  make.malformed('negative-branch', body(4, 1, 0, 0, 0));
  make.malformed('no-such-symbol', body(4, 0, 0, 0, 2, 8));
  make.malformed('invalid-utf-8', body(4, 0, 2, 4, 0xc3, 0x28, 0, 0));
  make.malformed('before-1970', make.request('before-1970', { expiresAtMs: -1 }));
  make.malformed('beyond-dates', make.request('beyond-dates', { expiresAtMs: 8_640_000_000_000_001 }));
  make.add('sequence', { reply: 'UNKNOWN_SEQUENCE' }, { value: make.request('sequence', { sequence: 'invoices' }) });
  make.malformed('sequence-name', make.request('sequence-name', { sequence: 'in voices' }));
  make.malformed('no-request-id', make.request('no-request-id', { requestId: Buffer.alloc(0) }));
  make.add('expired', { reply: 'EXPIRED' }, { value: make.request('expired', { expiresAtMs: 1 }) });
  return make.cases;
}

/** Counts in bodies and headers. */
export function counts(tools: PoisonTools): PoisonCase[] {
  const make = new Maker(tools);
  const refused = { reply: 'INVALID_COUNT', letter: 'INVALID_COUNT' } as const;
  const frame = make.request('x').subarray(0, 10);
  for (const count of [0n, -1n, 100_001n, 2n ** 31n, 2n ** 40n, 2n ** 63n - 1n, -(2n ** 63n)]) {
    const name = `count-${count}`;
    make.add(name, refused, {
      value: Buffer.concat([frame, varint(count), Buffer.alloc(4)]),
      headers: make.addressed(name),
    });
  }
  make.add(
    'count-2^64',
    { reply: 'MALFORMED_REQUEST', letter: 'MALFORMED_REQUEST' },
    {
      value: Buffer.concat([frame, varint(2n ** 64n), Buffer.alloc(4)]),
      headers: make.addressed('count-2^64'),
    },
  );
  make.add('most', { reply: 'batch' }, { value: make.request('most', { count: 100_000 }) });
  make.add(
    'header-count',
    { reply: 'batch' },
    { value: null, headers: { ...make.addressed('header-count'), 'idalloc-count': '3' } },
  );
  for (const [name, count] of [
    ['header-count-junk', '0x10'],
    ['header-count-huge', '9'.repeat(10_000)],
    ['header-count-0', '0'],
  ] as const) {
    make.add(name, refused, { value: null, headers: { ...make.addressed(name), 'idalloc-count': count } });
  }
  make.add(
    'counts-disagree',
    { reply: 'MALFORMED_REQUEST', letter: 'MALFORMED_REQUEST' },
    {
      value: make.request('counts-disagree'),
      headers: { 'idalloc-count': '3' },
    },
  );
  return make.cases;
}

/** Correlation IDs in bodies and headers. */
export function correlationIds(tools: PoisonTools): PoisonCase[] {
  const make = new Maker(tools);
  const { replyTopic } = tools.realm;
  const anonymous = encodeIdRequest({ count: 2, replyTopic });
  const invalid = { letter: 'INVALID_CORRELATION_ID' } as const;
  const served = (name: string, id: Buffer) => {
    make.add(name, { reply: 'batch' }, { value: encodeIdRequest({ count: 2, correlationId: id, replyTopic }) }, id);
  };
  make.add('no-id', invalid, { value: anonymous });
  make.add('empty-id', invalid, { value: anonymous, headers: { kafka_correlationId: '' } });
  make.add('257-B-id', invalid, { value: anonymous, headers: { kafka_correlationId: 'x'.repeat(257) } });
  make.add('10-KB-id', invalid, { value: anonymous, headers: { kafka_correlationId: 'x'.repeat(10_240) } });
  make.add('10-KB-id-in-body', invalid, { value: make.request('x', { correlationId: Buffer.alloc(10_240) }) });
  make.add(
    'ids-disagree',
    { reply: 'MALFORMED_REQUEST', letter: 'MALFORMED_REQUEST' },
    {
      value: make.request('other'),
      headers: { kafka_correlationId: make.name('ids-disagree') },
    },
  );
  served('256-B-id', Buffer.alloc(256, `y${tools.round}`));
  served('no-text', Buffer.from([0, 0xff, 0xc3, 0x28, 10, 13, tools.round]));
  served('__proto__', Buffer.from('__proto__'));
  served('constructor', Buffer.from('constructor'));
  return make.cases;
}

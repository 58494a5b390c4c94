import type { Kafka, Message } from 'kafkajs';
import { encodeIdRequest, ID_REQUEST_FINGERPRINT, type IdRequest } from '../../src/codec/id-request.ts';
import type { ErrorCode } from '../../src/errors.ts';
import { type Codec, type Handmade, type HandmadeRecord, varint } from './handmade.ts';
import type { Realm } from './realm.ts';

/** What is to come of a record. */
interface Expected {
  /** To the sender: a batch, an error with this code, or nothing. */
  readonly reply?: 'batch' | ErrorCode;
  /** To the dead-letter topic. */
  readonly letter?: ErrorCode;
  /** The letter does not have the record, which it can't hold. */
  readonly bare?: true;
  /** The broker itself refuses the record. */
  readonly refused?: true;
}

export interface PoisonCase extends Expected {
  readonly name: string;
  /** By which its reply is found; its name, unless that is what is wrong with it. */
  readonly id: Buffer;
  /** Sends it; resolves to its offset. */
  readonly send: (partition: number) => Promise<number>;
}

/** A record of one case, sent as a well-meaning client would send it. */
type Plain = Pick<Message, 'value' | 'headers' | 'timestamp'>;

export interface PoisonTools {
  readonly realm: Realm;
  readonly kafka: Kafka;
  readonly handmade: Handmade;
  /** Appended to names, so that each round asks anew. */
  readonly round: number;
}

const LARGE_BYTES = 1_040_000;
const LAST_TIME = String(2n ** 63n - 1n);

/** Every way to be a bad request that we know of, and the odd good one that looks like it. */
export function poisonCases(tools: PoisonTools): readonly PoisonCase[] {
  return [
    ...values(tools),
    ...counts(tools),
    ...correlationIds(tools),
    ...headers(tools),
    ...addresses(tools),
    ...batches(tools),
  ];
}

/** What the cases of one kind are made with. */
class Maker {
  readonly cases: PoisonCase[] = [];
  readonly tools: PoisonTools;

  constructor(tools: PoisonTools) {
    this.tools = tools;
  }

  name(name: string): string {
    return `${name}-${this.tools.round}`;
  }

  request(name: string, fields: Partial<IdRequest> = {}): Buffer {
    const replyTopic = this.tools.realm.replyTopic;
    return encodeIdRequest({ count: 2, correlationId: Buffer.from(this.name(name)), replyTopic, ...fields });
  }

  /** Where the sender is told, by headers, so that a body that can't be read does not hide it. */
  addressed(name: string): Record<string, string> {
    return { kafka_correlationId: this.name(name), kafka_replyTopic: this.tools.realm.replyTopic };
  }

  add(name: string, expected: Expected, plain: Plain, id?: Buffer): void {
    const send = async (partition: number) => {
      const [answer] = await this.tools.realm.sendRaw([{ key: name, partition, ...plain }]);
      return Number(answer?.baseOffset);
    };
    this.cases.push({ name: this.name(name), id: id ?? Buffer.from(this.name(name)), send, ...expected });
  }

  handmade(name: string, expected: Expected, record: HandmadeRecord): void {
    const send = async (partition: number) =>
      Number((await this.tools.handmade.records(partition, [record])).baseOffset);
    this.cases.push({ name: this.name(name), id: Buffer.from(this.name(name)), send, ...expected });
  }

  /** A value that is no request, by a sender who can be told. */
  malformed(name: string, value: Buffer | null, code: ErrorCode = 'MALFORMED_REQUEST'): void {
    this.add(name, { reply: code, letter: code }, { value, headers: this.addressed(name) });
  }
}

function values(tools: PoisonTools): PoisonCase[] {
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
    Buffer.concat([good.subarray(0, 2), Buffer.from(ID_REQUEST_FINGERPRINT).reverse(), good.subarray(10)]),
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
  make.add('expired', { reply: 'EXPIRED' }, { value: make.request('expired', { expiresAtMs: 1 }) });
  return make.cases;
}

function counts(tools: PoisonTools): PoisonCase[] {
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

function correlationIds(tools: PoisonTools): PoisonCase[] {
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

function headers(tools: PoisonTools): PoisonCase[] {
  const make = new Maker(tools);
  const bad = { reply: 'MALFORMED_REQUEST', letter: 'MALFORMED_REQUEST' } as const;
  const names = (list: Record<string, string>) =>
    Object.entries(list).map(([name, value]) => [Buffer.from(name), Buffer.from(value)] as const);
  const junk = Buffer.from('junk');
  const odd = JSON.parse('{"__proto__":"x","constructor":"y","toString":"z","hasOwnProperty":"w"}');
  const many = Array.from({ length: 100_000 }, (_, i) => [Buffer.from(i.toString(36)), Buffer.of(1)] as const);
  const repeated = Array.from({ length: 100_000 }, () => [Buffer.from('a'), Buffer.of(1)] as const);

  make.add('prototype-headers', { reply: 'batch' }, { value: make.request('prototype-headers'), headers: odd });
  make.add('prototype-headers-bad', bad, {
    value: junk,
    headers: { ...make.addressed('prototype-headers-bad'), ...odd },
  });
  make.add(
    'id-twice',
    { letter: 'MALFORMED_REQUEST', reply: 'MALFORMED_REQUEST' },
    {
      value: make.request('id-twice'),
      headers: { kafka_correlationId: [make.name('id-twice'), make.name('id-twice')] },
    },
  );
  make.add('topic-twice', bad, {
    value: make.request('topic-twice'),
    headers: { kafka_replyTopic: [tools.realm.replyTopic, tools.realm.replyTopic] },
  });
  make.add('other-twice', { reply: 'batch' }, { value: make.request('other-twice'), headers: { a: ['1', '2'] } });
  make.handmade('null-header', bad, {
    key: null,
    value: junk,
    headers: [
      ...names(make.addressed('null-header')),
      [Buffer.from('a'), null],
      [Buffer.from('b'), null],
      [Buffer.from('b'), junk],
    ],
  });
  make.handmade(
    'null-header-good',
    { reply: 'batch' },
    {
      key: null,
      value: make.request('null-header-good'),
      headers: [[Buffer.from('kafka_replyPartition'), null]],
    },
  );
  make.add(
    '1-MB-header',
    { reply: 'batch' },
    { value: make.request('1-MB-header'), headers: { a: Buffer.alloc(LARGE_BYTES) } },
  );
  make.add('1-MB-header-bad', bad, {
    value: junk,
    headers: { ...make.addressed('1-MB-header-bad'), a: Buffer.alloc(LARGE_BYTES) },
  });
  make.add(
    '1-MB-trace',
    { reply: 'batch' },
    { value: make.request('1-MB-trace'), headers: { traceparent: Buffer.alloc(LARGE_BYTES) } },
  );
  make.add('10-KB-name', bad, { value: junk, headers: { ...make.addressed('10-KB-name'), ['n'.repeat(10_240)]: '' } });
  make.handmade(
    'no-name',
    { reply: 'batch' },
    { key: null, value: make.request('no-name'), headers: [[Buffer.alloc(0), junk]] },
  );
  make.handmade(
    '100,000-headers',
    { reply: 'batch' },
    { key: null, value: make.request('100,000-headers'), headers: many },
  );
  make.handmade('100,000-headers-bad', bad, {
    key: null,
    value: junk,
    headers: [...names(make.addressed('100,000-headers-bad')), ...many],
  });
  make.handmade('100,000-times-the-same', bad, {
    key: null,
    value: junk,
    headers: [...names(make.addressed('100,000-times-the-same')), ...repeated],
  });
  make.handmade(
    'name-that-grows',
    { ...bad, bare: true },
    {
      key: null,
      value: junk,
      headers: [...names(make.addressed('name-that-grows')), [Buffer.alloc(900_000, 0xff), Buffer.alloc(0)]],
    },
  );
  return make.cases;
}

function addresses(tools: PoisonTools): PoisonCase[] {
  const make = new Maker(tools);
  const { realm } = tools;
  const refused = { letter: 'INVALID_REPLY_TOPIC' } as const;
  const topics = {
    'topic-empty': '',
    'topic-illegal': 'id replies/x',
    'topic-dot': '.',
    'topic-too-long': realm.replyTopic + 'x'.repeat(249),
    'topic-internal': '__consumer_offsets',
    'topic-requests': realm.requestTopic,
    'topic-ledger': realm.ledgerTopic,
    'topic-dlt': realm.deadLetterTopic,
    'topic-foreign': 'orders',
    'topic-prefix': realm.env.REPLY_TOPIC_PREFIX ?? '',
  };
  for (const [name, replyTopic] of Object.entries(topics))
    make.add(name, refused, { value: make.request(name, { replyTopic }) });
  make.add(
    'topic-missing',
    { letter: 'REPLY_UNDELIVERABLE' },
    { value: make.request('topic-missing', { replyTopic: `${realm.replyTopic}.none` }) },
  );
  const malformed = { reply: 'MALFORMED_REQUEST', letter: 'MALFORMED_REQUEST' } as const;
  const undeliverable = { letter: 'REPLY_UNDELIVERABLE' } as const;
  const partitions: Record<string, [string | Buffer, Expected]> = {
    'partition-negative': [Buffer.from([0xff, 0xff, 0xff, 0xff]), malformed],
    'partition-minus': ['-1', malformed],
    'partition-junk': ['three', malformed],
    'partition-long': ['0'.repeat(10_000), malformed],
    'partition-2^31': ['2147483648', malformed],
    'partition-2^31-1': ['2147483647', undeliverable],
    'partition-behind': ['3', undeliverable],
    'partition-good': [Buffer.from([0, 0, 0, 2]), { reply: 'batch' }],
  };
  for (const [name, [partition, expected]] of Object.entries(partitions)) {
    make.add(name, expected, { value: make.request(name), headers: { kafka_replyPartition: partition } });
  }
  return make.cases;
}

function batches(tools: PoisonTools): PoisonCase[] {
  const make = new Maker(tools);
  const { realm, kafka, handmade } = tools;
  const special = (name: string, expected: Expected, send: PoisonCase['send']) => {
    make.cases.push({ name: make.name(name), id: Buffer.from(make.name(name)), send, ...expected });
  };
  for (const codec of ['gzip', 'snappy', 'lz4', 'zstd'] as const satisfies readonly Codec[]) {
    special(codec, { reply: 'batch' }, async (partition) => {
      const message = { value: make.request(codec), partition };
      return Number((await handmade.compressed(codec, [message])).baseOffset);
    });
  }
  special('gzip-bomb', { refused: true }, async (partition) => {
    const bomb = { key: null, value: Buffer.alloc(100_000_000) };
    return Number((await handmade.records(partition, [bomb], 'gzip')).baseOffset);
  });
  special('aborted', {}, async (partition) => {
    const producer = kafka.producer({
      transactionalId: `${realm.groupId}-${tools.round}`,
      idempotent: true,
      maxInFlightRequests: 1,
    });
    await producer.connect();
    const transaction = await producer.transaction();
    const [answer] = await transaction.send({
      topic: realm.requestTopic,
      messages: [{ value: make.request('aborted'), partition }],
    });
    await transaction.abort();
    await producer.disconnect();
    return Number(answer?.baseOffset);
  });
  make.add('time-0', { reply: 'batch' }, { value: make.request('time-0'), timestamp: '0' });
  make.add('time-2^63-1', { reply: 'batch' }, { value: make.request('time-2^63-1'), timestamp: LAST_TIME });
  make.add(
    'time-2^63-1-bad',
    { reply: 'MALFORMED_REQUEST', letter: 'MALFORMED_REQUEST' },
    {
      value: Buffer.from('junk'),
      headers: make.addressed('time-2^63-1-bad'),
      timestamp: LAST_TIME,
    },
  );
  return make.cases;
}

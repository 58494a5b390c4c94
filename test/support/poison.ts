import type { Codec } from './handmade.ts';
import { correlationIds, counts, values } from './poison-bodies.ts';
import { type Expected, LARGE_BYTES, Maker, type PoisonCase, type PoisonTools } from './poison-maker.ts';

const LAST_TIME = String(2n ** 63n - 1n);

/** Every known kind of bad request, and unusual good ones that look similar. */
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
    const bomb = { key: null, value: Buffer.alloc(50_000_000) };
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

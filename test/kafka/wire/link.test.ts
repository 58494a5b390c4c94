import { connect, type Socket } from 'node:net';
import type { ISocketFactory } from 'kafkajs';
import { afterEach, describe, expect, test } from 'vitest';
import { kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import { dialerOf } from '../../../src/kafka/wire/kafkajs-dialer.ts';
import type { BrokerLink } from '../../../src/kafka/wire/port.ts';
import { only } from '../../support/wire-contract/stage.ts';
import {
  CONSUMER_GROUP_DESCRIBE,
  FETCH,
  HEARTBEAT,
  int16,
  int32,
  int64,
  METADATA,
  PRODUCE,
  type Reply,
  TcpBroker,
  text,
} from './tcp-broker.ts';

const NONE = int32(0);
/** So large that it is sent without a copy. */
const LARGE = 'large'.repeat(4_000);
const stack: AsyncDisposable[] = [];
afterEach(async () => {
  for (const one of stack.splice(0)) await one[Symbol.asyncDispose]();
});

/** A connection to a broker with scripted answers by kind of call. */
async function linked(replies: Readonly<Record<number, Reply>>): Promise<{ broker: TcpBroker; link: BrokerLink }> {
  const broker = await TcpBroker.start(({ apiKey }) => replies[apiKey] ?? 'say nothing');
  stack.push(broker);
  const link = await dialerOf({ clientId: 'me' }).dial(broker.address, new AbortController().signal);
  return { broker, link };
}

const errorCode = (call: Promise<unknown>) => call.then((answer) => answer, kafkaErrorCode);
const beat = (link: BrokerLink) => link.call('heartbeat', { groupId: 'g', generation: 1, memberId: 'm' });
const fetch = (link: BrokerLink) =>
  link.call('fetch', {
    maxWaitMs: 10,
    maxBytes: 10,
    isolation: 'read_committed',
    partitions: [{ topic: 't', partition: 2, offset: 7, maxBytes: 10 }],
  });
const produce = (link: BrokerLink, batch = Buffer.from('batch')) =>
  link.call('produce', { topic: 't', partition: 2, batch, acks: -1, timeoutMs: 10 });

const ofOne = (partition: Buffer, { topic = 't', number = 2, times = 1 } = {}) =>
  Buffer.concat([int32(1), text(topic), int32(times), ...Array(times).fill(Buffer.concat([int32(number), partition]))]);
const fetched = (
  records: Buffer,
  { length = records.length, highWatermark = 9n, aborted = NONE, sessionId = 0 } = {},
) =>
  Buffer.concat([
    int32(0),
    int16(0),
    int32(sessionId),
    ofOne(
      Buffer.concat([int16(0), int64(highWatermark), int64(8), int64(3), aborted, int32(-1), int32(length), records]),
    ),
  ]);
const produced = (offset: bigint, { code = 0, topic = 't', partition = 2, times = 1 } = {}) => {
  const answer = Buffer.concat([int16(code), int64(offset), int64(55), int64(1)]);
  return Buffer.concat([ofOne(answer, { topic, number: partition, times }), int32(250)]);
};

describe('calls', () => {
  test('produce sends the batch as it is, and returns the offset, the time and the throttle of the answer', async () => {
    const { broker, link } = await linked({ [PRODUCE]: produced(12n) });
    const batch = Buffer.alloc(100_000, 'b');
    expect(await produce(link, batch)).toEqual({
      throttleMs: 250,
      baseOffset: 12,
      appendedAtMs: 55,
      logStartOffset: 1,
    });
    const body = Buffer.concat([int16(-1), int16(-1), int32(10), ofOne(int32(batch.length)), batch]);
    const sent = broker.calls.find(({ apiKey }) => apiKey === PRODUCE);
    expect([sent?.apiVersion, sent?.body.equals(body)]).toEqual([7, true]);
  });

  test('produce calls of one turn are one request of this client, with each batch behind its partition', async () => {
    const places = [
      ['t', 2, 'one'],
      ['u', 0, 'two'],
      ['t', 5, LARGE],
    ] as const;
    const result = (number: number) =>
      Buffer.concat([int32(number), int16(0), int64(number + 100), int64(55), int64(1)]);
    const topics = [text('t'), int32(2), result(5), result(2), text('u'), int32(1), result(0)];
    const { broker, link } = await linked({ [PRODUCE]: Buffer.concat([int32(2), ...topics, int32(0)]) });
    const answers = places.map(([topic, partition, batch]) =>
      link.call('produce', { topic, partition, batch: Buffer.from(batch), acks: -1, timeoutMs: 10 }),
    );
    expect((await Promise.all(answers)).map(({ baseOffset }) => baseOffset)).toEqual([102, 100, 105]);
    const written = (number: number, batch: string) => [int32(number), int32(batch.length), Buffer.from(batch)];
    const fields = [
      ...[int16(-1), int16(-1), int32(10), int32(2)],
      ...[text('t'), int32(2), ...written(2, 'one'), ...written(5, LARGE)],
      ...[text('u'), int32(1), ...written(0, 'two')],
    ];
    const sent = broker.calls.filter(({ apiKey }) => apiKey === PRODUCE);
    expect(sent.map(({ client, body }) => [client, body])).toEqual([['me', Buffer.concat(fields)]]);
  });

  test('fetch leaves the records as they are, and returns the bounds and the aborted transactions', async () => {
    const aborted = Buffer.concat([int32(1), int64(2n ** 62n), int64(4)]);
    const { link } = await linked({ [FETCH]: fetched(Buffer.from('raw'), { aborted }) });
    const { partitions, throttleMs } = await fetch(link);
    expect(throttleMs).toBe(0);
    expect(partitions).toEqual([
      {
        topic: 't',
        partition: 2,
        highWatermark: 9,
        lastStableOffset: 8,
        logStartOffset: 3,
        aborted: [{ producerId: 2n ** 62n, firstOffset: 4 }],
        records: Buffer.from('raw'),
      },
    ]);
  });

  test('a fetch names its session, its place there and what it forgets; without a session it asks for none', async () => {
    const { broker, link } = await linked({ [FETCH]: fetched(Buffer.alloc(0), { sessionId: 9 }) });
    const limits = { maxWaitMs: 10, maxBytes: 20, isolation: 'read_committed' } as const;
    const forgotten = [0, 3].map((partition) => ({ topic: 'f', partition }));
    const { sessionId } = await link.call('fetch', {
      ...limits,
      partitions: [],
      session: { id: 9, epoch: 4, forgotten },
    });
    await link.call('fetch', { ...limits, partitions: [] });
    expect(sessionId).toBe(9);
    const head = [int32(-1), int32(10), int32(1), int32(20), Buffer.of(1)];
    const inSession = [
      ...head,
      int32(9),
      int32(4),
      int32(0),
      int32(1),
      text('f'),
      int32(2),
      int32(0),
      int32(3),
      text(''),
    ];
    const alone = [...head, int32(0), int32(-1), int32(0), int32(0), text('')];
    const bodies = broker.calls.filter(({ apiKey }) => apiKey === FETCH).map(({ body }) => body);
    expect(bodies).toEqual([Buffer.concat(inSession), Buffer.concat(alone)]);
  });

  test("an error of a whole answer rejects with its name, kafkajs' or a number", async () => {
    const named = await linked({ [HEARTBEAT]: Buffer.concat([int32(0), int16(27)]) });
    expect(await errorCode(beat(named.link))).toBe('REBALANCE_IN_PROGRESS');
    const unnamed = await linked({ [HEARTBEAT]: Buffer.concat([int32(0), int16(113)]) });
    expect(await errorCode(beat(unnamed.link))).toBe('ERROR_113');
  });

  test('an empty list requests no topics, and `all` requests all of them', async () => {
    const { broker, link } = await linked({});
    const asked = ([[], 'all', ['t']] as const).map((topics) => errorCode(link.call('metadata', { topics })));
    await expect.poll(() => broker.calls.length).toBe(4);
    expect(broker.calls.slice(1).map(({ body }) => body.subarray(0, -1))).toEqual([
      int32(0),
      int32(-1),
      Buffer.concat([int32(1), text('t')]),
    ]);
    link.close();
    await Promise.all(asked);
  });

  test('a topic whose partitions are not numbered without a gap has an error of its own, and the others are as they are', async () => {
    const partition = (number: number) =>
      Buffer.concat([int16(0), int32(number), int32(1), ...Array(3).fill(Buffer.concat([int32(1), int32(1)]))]);
    const topic = (name: string, ...numbers: number[]) =>
      Buffer.concat([int16(0), text(name), Buffer.of(0), int32(numbers.length), ...numbers.map(partition)]);
    const topics = [topic('gap', 0, 2), topic('twice', 0, 0), topic('later', 1), topic('whole', 1, 0), topic('none')];
    const broker = Buffer.concat([int32(1), text('b'), int32(9092), int16(-1)]);
    const head = [int32(0), int32(1), broker, text('cluster'), int32(1), int32(topics.length)];
    const { link } = await linked({ [METADATA]: Buffer.concat([...head, ...topics]) });
    const found = await link.call('metadata', { topics: 'all' });
    expect(found.topics.map(({ name, errorCode, partitions }) => [name, errorCode, partitions.length])).toEqual([
      ['gap', 'PARTITIONS_MISSING', 0],
      ['twice', 'PARTITIONS_MISSING', 0],
      ['later', 'PARTITIONS_MISSING', 0],
      ['whole', undefined, 2],
      ['none', undefined, 0],
    ]);
  });

  test('the operations allowed for a topic are read behind the nodes of its partitions, up to the next topic', async () => {
    const nodes = (...ids: number[]) => Buffer.concat([int32(ids.length), ...ids.map(int32)]);
    const partition = (number: number) =>
      Buffer.concat([int16(0), int32(number), int32(1), int32(5), nodes(1, 2, 3), nodes(1, 2), nodes(3)]);
    const topic = (name: string, code: number, operations: number, ...partitions: Buffer[]) =>
      Buffer.concat([
        int16(code),
        text(name),
        Buffer.of(0),
        int32(partitions.length),
        ...partitions,
        int32(operations),
      ]);
    const brokers = [1, 2].map((id) => Buffer.concat([int32(id), text('b'), int32(9092), text('rack')]));
    const topics = [topic('t', 0, 2 ** 3 + 2 ** 8, partition(0), partition(1)), topic('none', 3, 2 ** 4)];
    const head = [int32(9), int32(2), ...brokers, text('cluster'), int32(1), int32(topics.length)];
    const { broker, link } = await linked({ [METADATA]: Buffer.concat([...head, ...topics, int32(0)]) });
    expect(await link.call('authorizedOperations', { topics: ['t', 'none'] })).toEqual({
      throttleMs: 9,
      topics: [
        { name: 't', errorCode: undefined, operations: new Set(['Read', 'Describe']) },
        { name: 'none', errorCode: 'UNKNOWN_TOPIC_OR_PARTITION', operations: new Set(['Write']) },
      ],
    });
    expect(broker.calls.at(-1)).toMatchObject({
      apiVersion: 8,
      body: Buffer.concat([int32(2), text('t'), text('none'), Buffer.of(0, 0, 1)]),
    });
  });

  test('a member with an instance ID is named by it in every call, in versions that have it', async () => {
    const { broker, link } = await linked({});
    const member = { groupId: 'g', memberId: 'm', instanceId: 'worker-7' };
    const times = { sessionTimeoutMs: 1, rebalanceTimeoutMs: 2 };
    const asked = [
      link.call('joinGroup', { ...member, ...times, protocolType: 'consumer', protocols: [] }),
      link.call('syncGroup', { ...member, generation: 3, assignments: [] }),
      link.call('heartbeat', { ...member, generation: 3 }),
      link.call('leaveGroup', member),
    ].map(errorCode);
    await expect.poll(() => broker.calls.length).toBe(5);
    const sent = broker.calls.slice(1);
    expect(sent.map(({ apiKey, apiVersion }) => [apiKey, apiVersion])).toEqual([
      [11, 5],
      [14, 3],
      [12, 3],
      [13, 3],
    ]);
    expect(sent.map(({ body }) => body.includes(text('worker-7')))).toEqual([true, true, true, true]);
    link.close();
    await Promise.all(asked);
  });

  test('a group of the new protocol is read with its members, whatever topics and partitions they have', async () => {
    const NULL = Buffer.of(0);
    const TAGS = Buffer.of(0);
    const compact = (value: string) => Buffer.concat([Buffer.of(value.length + 1), Buffer.from(value)]);
    const list = (...items: readonly Buffer[]) => Buffer.concat([Buffer.of(items.length + 1), ...items]);
    const partitions = (topic: string, ...all: readonly number[]) =>
      Buffer.concat([Buffer.alloc(16, 'id'), compact(topic), list(...all.map(int32)), TAGS]);
    const assignment = Buffer.concat([list(partitions('t', 0, 3), partitions('u', 1)), TAGS]);
    const member = (id: string, kind: number) =>
      Buffer.concat([
        ...[compact(id), NULL, compact('a rack'), int32(4), compact('a client'), compact('/10.0.0.1')],
        ...[list(compact('t'), compact('u')), NULL, assignment, assignment, Buffer.of(kind), TAGS],
      ]);
    const group = (code: number, id: string, ...members: readonly Buffer[]) =>
      Buffer.concat([
        ...[int16(code), NULL, compact(id), compact('Stable'), int32(4), int32(4), compact('uniform')],
        ...[list(...members), int32(-1), TAGS],
      ]);
    const groups = list(group(0, 'g', member('classic', 0), member('modern', 1)), group(69, 'none'));
    const { broker, link } = await linked({
      [CONSUMER_GROUP_DESCRIBE]: Buffer.concat([TAGS, int32(7), groups, TAGS]),
    });
    const seen = { clientId: 'a client', clientHost: '/10.0.0.1', assignment: Buffer.alloc(0) };
    expect(await link.call('consumerGroupDescribe', { groupIds: ['g', 'none'] })).toEqual({
      throttleMs: 7,
      groups: [
        {
          groupId: 'g',
          state: 'Stable',
          errorCode: undefined,
          members: [
            { memberId: 'classic', ...seen, isClassic: true },
            { memberId: 'modern', ...seen, isClassic: false },
          ],
        },
        { groupId: 'none', state: 'Stable', errorCode: 'GROUP_ID_NOT_FOUND', members: [] },
      ],
    });
    const asked = Buffer.concat([TAGS, list(compact('g'), compact('none')), Buffer.of(0), TAGS]);
    expect(broker.calls.at(-1)).toEqual({ apiKey: CONSUMER_GROUP_DESCRIBE, apiVersion: 1, client: 'me', body: asked });
  });

  test('an error of a partition is returned in the answer', async () => {
    const { link } = await linked({ [PRODUCE]: produced(-1n, { code: 6 }) });
    expect(await produce(link)).toMatchObject({ errorCode: 'NOT_LEADER_FOR_PARTITION', baseOffset: -1 });
  });
});

describe("an answer that can't be read", () => {
  const tooFar = 2n ** 53n;
  test.for([
    ['an offset that is not a safe integer', PRODUCE, produced(tooFar), produce],
    ['an answer without partitions', PRODUCE, Buffer.concat([int32(1), text('t'), NONE, int32(0)]), produce],
    ['an answer about another partition', PRODUCE, produced(1n, { partition: 3 }), produce],
    ['an answer about another topic', PRODUCE, produced(1n, { topic: 'u' }), produce],
    ['an answer about two partitions', PRODUCE, produced(1n, { times: 2 }), produce],
    ['a high watermark that is not a safe integer', FETCH, fetched(Buffer.alloc(0), { highWatermark: tooFar }), fetch],
    ['truncated records', FETCH, fetched(Buffer.from('raw'), { length: 4 }), fetch],
    ['a truncated answer', FETCH, fetched(Buffer.alloc(0)).subarray(0, 30), fetch],
    [
      'more elements than there are bytes',
      METADATA,
      Buffer.concat([int32(0), int32(2 ** 31 - 1)]),
      (link: BrokerLink) => link.call('metadata', { topics: [] }),
    ],
    ['a negative number of elements', FETCH, Buffer.concat([int32(0), int16(0), int32(0), int32(-5)]), fetch],
  ] as const)('%s rejects only its call', async ([, apiKey, reply, call]) => {
    const { link } = await linked({ [apiKey]: reply, [HEARTBEAT]: Buffer.concat([int32(0), int16(0)]) });
    expect(await errorCode(call(link))).toBe('MALFORMED_RESPONSE');
    expect(await errorCode(beat(link))).toEqual({ throttleMs: 0 });
  });
});

describe('the connection', () => {
  test('rejects all pending and later calls when the broker closes it', async () => {
    const { broker, link } = await linked({ [METADATA]: 'hang up' });
    const calls = [beat(link), fetch(link), link.call('metadata', { topics: [] })].map(errorCode);
    expect(await Promise.all(calls)).toEqual(['CONNECTION_LOST', 'CONNECTION_LOST', 'CONNECTION_LOST']);
    await link.ended;
    expect(await errorCode(beat(link))).toBe('CONNECTION_LOST');
    await expect.poll(() => broker.sockets.size).toBe(0);
  });

  test('rejects them when it is reset, too', async () => {
    const { broker, link } = await linked({});
    const call = errorCode(beat(link));
    await expect.poll(() => broker.calls.length).toBe(2);
    for (const socket of broker.sockets) socket.resetAndDestroy();
    expect(await call).toBe('CONNECTION_LOST');
    await link.ended;
  });

  test('that is closed by the client is closed at the broker, and rejects its calls before that', async () => {
    const { broker, link } = await linked({});
    let isRejected = false;
    const call = beat(link).catch((error) => {
      isRejected = true;
      return kafkaErrorCode(error);
    });
    await expect.poll(() => broker.calls.length).toBe(2);
    link.close();
    await link.ended;
    expect(isRejected).toBe(true);
    expect(await call).toBe('CONNECTION_LOST');
    await expect.poll(() => broker.sockets.size).toBe(0);
  });

  test('ends on an answer that matches no request, since the next one might not match either', async () => {
    const { broker, link } = await linked({ [HEARTBEAT]: Buffer.concat([int32(0), int16(0)]) });
    broker.send = (socket, bytes) => {
      bytes.writeInt32BE(999, 4);
      socket.write(bytes);
    };
    expect(await errorCode(beat(link))).toBe('CONNECTION_LOST');
    await link.ended;
  });

  test('whose socket is destroyed rejects pending and later calls', async () => {
    const broker = await TcpBroker.start();
    stack.push(broker);
    const sockets: Socket[] = [];
    const socketFactory: ISocketFactory = ({ host, port, onConnect }) => {
      const socket = connect({ host, port }, onConnect);
      sockets.push(socket);
      return socket;
    };
    const link = await dialerOf({ socketFactory }).dial(broker.address, new AbortController().signal);
    const call = errorCode(beat(link));
    await expect.poll(() => broker.calls.length).toBe(2);
    only(sockets).destroy();
    expect(await call).toBe('CONNECTION_LOST');
    await link.ended;
    expect(await errorCode(beat(link))).toBe('CONNECTION_LOST');
  });

  test('takes answers in any pieces, and in any order', async () => {
    const { broker, link } = await linked({ [HEARTBEAT]: Buffer.concat([int32(0), int16(0)]) });
    const held: Buffer[] = [];
    broker.send = (socket, bytes) => {
      held.unshift(bytes);
      if (held.length < 3) return;
      const all = Buffer.concat(held);
      socket.write(all.subarray(0, 5));
      setImmediate(() => socket.write(all.subarray(5)));
    };
    expect(await Promise.all([beat(link), beat(link), beat(link)])).toHaveLength(3);
    link.close();
  });

  test('that a broker closes at the first call without a login asks whether the listener requires one', async () => {
    const { link } = await linked({ [METADATA]: 'hang up' });
    await expect(link.call('metadata', { topics: [] })).rejects.toThrow(/does this listener require a login\?/);
  });

  test('writes calls in the order in which they are made, produce calls last in their turn', async () => {
    const { broker, link } = await linked({
      [HEARTBEAT]: Buffer.concat([int32(0), int16(0)]),
      [FETCH]: fetched(Buffer.alloc(0)),
    });
    const made: number[] = [];
    const calls = Array.from({ length: 60 }, (_, i) => {
      made.push([HEARTBEAT, FETCH][i % 2] ?? 0);
      return [beat, fetch][i % 2]?.(link);
    });
    await Promise.all(calls);
    expect(broker.calls.slice(1).map(({ apiKey }) => apiKey)).toEqual(made);
    void errorCode(produce(link));
    await Promise.all([beat(link), fetch(link)]);
    await expect.poll(() => broker.calls.slice(-3).map(({ apiKey }) => apiKey)).toEqual([HEARTBEAT, FETCH, PRODUCE]);
    link.close();
  });
});

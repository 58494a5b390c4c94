import type { Admin, EachMessagePayload, Kafka, KafkaMessage } from 'kafkajs';
import { describe, expect, test } from 'vitest';
import { type Exchange, exchange } from '../../src/cli/exchange.ts';
import { encodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import { decodeIdRequest } from '../../src/codec/id-request.ts';
import { DEFAULT_HEADER_NAMES } from '../../src/codec/request-headers.ts';

const REQUEST: Exchange = {
  requestTopic: 'id.requests',
  replyTopic: 'id.replies.cli',
  correlationId: Buffer.from('c-1'),
  count: 3,
  encoding: 'IDS',
  headers: DEFAULT_HEADER_NAMES,
  timeoutMs: 5_000,
};

const BATCH: IdReply = {
  correlationId: REQUEST.correlationId,
  batch: {
    ranges: [{ first: 55_325_805_773_398_016n, count: 3 }],
    step: 1n,
    datacenterId: 4,
    workerId: 18,
    fence: 7n,
    epochMs: 1_767_225_600_000,
    layoutFingerprint: '0123456789abcdef',
    generatedAtMs: 1_780_416_300_000,
  },
};

type Incoming = Pick<KafkaMessage, 'key' | 'value'> & { readonly headers?: KafkaMessage['headers'] };

interface Sent {
  readonly topic: string;
  readonly acks: number;
  readonly messages: readonly { readonly key: Buffer; readonly value: Buffer }[];
}

/** What of kafkajs an exchange needs. `answer` makes the records that come once the request was sent. */
function broker(answer: (sent: Sent) => Incoming[], topics = ['id.requests', 'id.replies.cli']) {
  const calls: string[] = [];
  const sends: Sent[] = [];
  const listeners = new Map<string, (event: unknown) => void>();
  let deliver = async (_message: Incoming): Promise<void> => undefined;
  const consumer = {
    on: (name: string, listener: (event: unknown) => void) => listeners.set(name, listener),
    connect: async () => undefined,
    subscribe: async () => undefined,
    seek: ({ partition, offset }: { partition: number; offset: string }) => calls.push(`seek ${partition} ${offset}`),
    run: async ({ eachMessage }: { eachMessage: (payload: EachMessagePayload) => Promise<void> }) => {
      deliver = (message) => eachMessage({ message } as unknown as EachMessagePayload);
      listeners.get('consumer.group_join')?.({});
    },
    disconnect: async () => calls.push('leave'),
  };
  const producer = {
    connect: async () => undefined,
    send: async (sent: Sent) => {
      calls.push('send');
      sends.push(sent);
      for (const message of answer(sent)) await deliver({ headers: {}, ...message });
    },
    disconnect: async () => undefined,
  };
  const admin = {
    listTopics: async () => topics,
    fetchTopicOffsets: async () => [
      { partition: 0, offset: '5', high: '5', low: '0' },
      { partition: 1, offset: '9', high: '9', low: '2' },
    ],
  };
  return {
    calls,
    sends,
    crash: (error: Error) => listeners.get('consumer.crash')?.({ payload: { error } }),
    kafka: { consumer: () => consumer, producer: () => producer } as unknown as Kafka,
    admin: admin as unknown as Admin,
  };
}

const reply = (value: IdReply = BATCH, headers: KafkaMessage['headers'] = {}): Incoming => {
  return { key: value.correlationId, value: encodeIdReply(value, 'IDS'), headers };
};

describe('an exchange', () => {
  test('stands at the end of each reply partition before it sends, and leaves at last', async () => {
    const { kafka, admin, calls } = broker(() => [reply()]);
    await exchange(kafka, admin, REQUEST);
    expect(calls).toEqual(['seek 0 5', 'seek 1 9', 'send', 'leave']);
  });

  test('sends one durable record, keyed by the correlation ID', async () => {
    const { kafka, admin, sends } = broker(() => [reply()]);
    await exchange(kafka, admin, REQUEST);
    expect(sends).toHaveLength(1);
    expect(sends[0]).toMatchObject({ topic: 'id.requests', acks: -1 });
    const [message] = sends[0]?.messages ?? [];
    expect(message?.key).toEqual(REQUEST.correlationId);
    expect(decodeIdRequest(message?.value ?? Buffer.alloc(0))).toMatchObject({
      count: 3,
      correlationId: REQUEST.correlationId,
      replyTopic: 'id.replies.cli',
      encoding: 'IDS',
    });
  });

  test('answers with the reply of its correlation ID, past the replies of others', async () => {
    const other = { ...BATCH, correlationId: Buffer.from('c-2') };
    const { kafka, admin } = broker(() => [reply(other), { key: null, value: null }, reply()]);
    expect(await exchange(kafka, admin, REQUEST)).toMatchObject({ ...BATCH, replayed: false });
  });

  test('tells a replayed reply by its header', async () => {
    const { kafka, admin } = broker(() => [reply(BATCH, { 'idalloc-replayed': Buffer.from('1') })]);
    expect(await exchange(kafka, admin, REQUEST)).toMatchObject({ replayed: true });
  });

  test('answers with an error reply as it is', async () => {
    const error = { code: 'CONFLICT', message: 'count differs' };
    const { kafka, admin } = broker(() => [reply({ correlationId: REQUEST.correlationId, error })]);
    expect(await exchange(kafka, admin, REQUEST)).toMatchObject({ error });
  });

  test('without a reply in time fails with NO_REPLY and names both topics', async () => {
    const { kafka, admin, calls } = broker(() => []);
    await expect(exchange(kafka, admin, { ...REQUEST, timeoutMs: 1 })).rejects.toMatchObject({
      code: 'NO_REPLY',
      message: expect.stringMatching(/id\.replies\.cli.*id\.requests/),
    });
    expect(calls.at(-1)).toBe('leave');
  });

  test('does not send when a topic is missing', async () => {
    const { kafka, admin, calls } = broker(() => [reply()], ['id.requests']);
    await expect(exchange(kafka, admin, REQUEST)).rejects.toMatchObject({
      code: 'TOPIC_INVALID',
      message: expect.stringContaining("'id.replies.cli'"),
    });
    expect(calls).toEqual([]);
  });

  test('fails when its reader does', async () => {
    const { kafka, admin, crash } = broker(() => {
      crash(new Error('not authorised'));
      return [];
    });
    await expect(exchange(kafka, admin, REQUEST)).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
      message: expect.stringContaining('not authorised'),
    });
  });

  test('fails on a reply that can not be read', async () => {
    const { kafka, admin } = broker(() => [{ key: REQUEST.correlationId, value: Buffer.from('nonsense') }]);
    await expect(exchange(kafka, admin, REQUEST)).rejects.toMatchObject({ code: 'MALFORMED_REPLY' });
  });
});

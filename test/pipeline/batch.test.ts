import { describe, expect, it } from 'vitest';
import { PART_MAX_IDS, PART_MAX_REQUESTS } from '../../src/pipeline/batch.ts';
import { linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { entry, record, request } from '../support/memory-records.ts';
import { DEAD_LETTERS, gist, MAX_COUNT, MemoryWorker } from '../support/memory-worker.ts';

const topicOf = () => new MemoryLedger(1, () => 1_700_000_000_000);
const world = () => {
  const topic = topicOf();
  return { topic, worker: new MemoryWorker({ topic }) };
};

/** Enough turns of the microtask queue for anything that can go on to do so. */
async function settle(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

describe('decided before told', () => {
  it('publishes nothing before its entry is settled, and resolves nothing before all is acknowledged', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a'), record(1, Buffer.from('junk')), request(2, 'b')]);
    expect(worker.events).toEqual([
      'append 2',
      'appended at 0',
      'sent id.replies.orders a',
      'sent id.replies.orders b',
      'acknowledged id.replies.orders a',
      'acknowledged id.replies.orders b',
      `sent ${DEAD_LETTERS} k`,
      `acknowledged ${DEAD_LETTERS} k`,
      'resolved 2',
    ]);
  });

  it('publishes nothing while the append is unanswered', async () => {
    const answer = Promise.withResolvers<void>();
    const link = async () => ({ fate: 'pass' as const, back: answer.promise });
    const worker = new MemoryWorker({ topic: topicOf(), link });
    const served = worker.serve([request(0, 'a')]);
    await settle();
    worker.catchUp();
    await settle();
    expect(worker.events).toEqual(['append 1']);
    answer.resolve();
    await served;
    expect(worker.events).toContain('resolved 0');
  });

  it('resolves nothing while a reply is not acknowledged', async () => {
    const { worker } = world();
    const acknowledged = Promise.withResolvers<void>();
    worker.publisher.hold = () => acknowledged.promise;
    const served = worker.serve([request(0, 'a')]);
    await settle();
    expect(worker.events.at(-1)).toBe('sent id.replies.orders a');
    acknowledged.resolve();
    await served;
    expect(worker.events.slice(-2)).toEqual(['acknowledged id.replies.orders a', 'resolved 0']);
  });

  it('resolves nothing when the replies were not acknowledged, and sends the same ones again', async () => {
    const { worker } = world();
    worker.publisher.hold = async () => {
      throw new Error('the broker went away');
    };
    await expect(worker.serve([request(0, 'a')])).rejects.toThrow('went away');
    expect(worker.events.filter((event) => event.startsWith('resolved'))).toEqual([]);
    worker.publisher.hold = async () => {};
    await worker.serve([request(0, 'a')]);
    const [first, again] = worker.publisher.records;
    expect(again?.value).toEqual(first?.value);
    expect(worker.events.at(-1)).toBe('resolved 0');
  });

  it('resolves nothing when a dead letter was not acknowledged', async () => {
    const { worker } = world();
    worker.publisher.refusing.set(DEAD_LETTERS, 'it does not exist');
    await expect(worker.serve([request(0, 'a'), record(1, null)])).rejects.toMatchObject({
      code: 'TOPIC_INVALID',
      message: expect.stringContaining(DEAD_LETTERS),
    });
    expect(worker.events.filter((event) => event.startsWith('resolved'))).toEqual([]);
  });

  it('resolves nothing when no IDs were to be had, and writes nothing', async () => {
    const { topic, worker } = world();
    worker.allocator.before = () => Promise.reject(new Error('no identity'));
    await expect(worker.serve([request(0, 'a')])).rejects.toThrow('no identity');
    expect([worker.events, topic.bounds(0).high]).toEqual([[], 0]);
  });
});

describe('malformed records', () => {
  it('are dead-lettered with code and original bytes, and the good ones around them answered', async () => {
    const { worker } = world();
    const junk = Buffer.from([0xc3, 0x01, 0xff, 0x00]);
    await worker.serve([
      request(0, 'a'),
      record(1, junk, { other: 'header' }),
      request(2, 'b'),
      record(3, null),
      request(4, 'c'),
    ]);
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'b', 'c']);
    const [first, second] = worker.publisher.on(DEAD_LETTERS);
    expect(first).toMatchObject({ key: Buffer.from('k'), value: junk });
    expect(first?.headers).toMatchObject({
      other: 'header',
      'kafka_dlt-original-topic': 'id.requests',
      'kafka_dlt-exception-fqcn': 'MALFORMED_REQUEST',
    });
    expect(second?.value).toBeNull();
    expect(worker.events.at(-1)).toBe('resolved 4');
  });

  it('carry partition, offset and timestamp as Spring Kafka writes them', async () => {
    const { worker } = world();
    await worker.serve([record(258, Buffer.from('junk'), {}, 1_700_000_000_001)]);
    const headers = worker.publisher.on(DEAD_LETTERS)[0]?.headers ?? {};
    expect((headers['kafka_dlt-original-partition'] as Buffer).readInt32BE()).toBe(0);
    expect((headers['kafka_dlt-original-offset'] as Buffer).readBigInt64BE()).toBe(258n);
    expect((headers['kafka_dlt-original-timestamp'] as Buffer).readBigInt64BE()).toBe(1_700_000_000_001n);
  });

  it.each([2 ** 63, -1, Number.NaN])('do not block their partition by a timestamp of %d', async (timestampMs) => {
    const { worker } = world();
    await worker.serve([record(0, Buffer.from('junk'), {}, timestampMs), request(1, 'a')]);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
    expect(worker.events.at(-1)).toBe('resolved 1');
  });

  it('tell their sender as IdError where the headers name an allowed address', async () => {
    const { worker } = world();
    const headers = { kafka_correlationId: Buffer.from('a'), kafka_replyTopic: 'id.replies.orders' };
    await worker.serve([record(0, Buffer.from('junk'), headers)]);
    expect(worker.replies().map(({ id, ...reply }) => [id, 'error' in reply && reply.error.code])).toEqual([
      ['a', 'MALFORMED_REQUEST'],
    ]);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
  });

  it('tell their sender as IdError where the body names an allowed address', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: 0 })]);
    expect(worker.replies().map(gist)).toEqual(['INVALID_COUNT']);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
  });

  it('tell a NestJS client in the header that it reads errors from', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: 0, replyTopic: 'id.requests.reply' }), request(1, 'b')]);
    const [told] = worker.publisher.on('id.requests.reply');
    expect(told?.headers['kafka_nest-is-disposed']).toBe('1');
    expect(told?.headers['kafka_nest-err']).toMatch(/^INVALID_COUNT: /);
    expect(worker.publisher.on('id.replies.orders')[0]?.headers['kafka_nest-is-disposed']).toBeUndefined();
  });

  it('that fill a whole batch need no append', async () => {
    const { topic, worker } = world();
    await worker.serve(Array.from({ length: 3 }, (_, i) => record(i, Buffer.from('junk'))));
    expect([topic.bounds(0).high, worker.events.at(-1)]).toEqual([0, 'resolved 2']);
  });
});

describe('a reply that its topic can not take', () => {
  it('is dead-lettered as REPLY_UNDELIVERABLE, and the rest is answered', async () => {
    const { worker } = world();
    worker.publisher.refusing.set('id.replies.gone', 'topic id.replies.gone does not exist');
    const undeliverable = request(1, 'b', { replyTopic: 'id.replies.gone' });
    await worker.serve([request(0, 'a'), undeliverable, request(2, 'c')]);
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'c']);
    const letters = worker.publisher.on(DEAD_LETTERS);
    expect(letters).toMatchObject([
      {
        value: undeliverable.value,
        headers: {
          'kafka_dlt-exception-fqcn': 'REPLY_UNDELIVERABLE',
          'kafka_dlt-exception-message': 'topic id.replies.gone does not exist',
        },
      },
    ]);
    expect(worker.events.at(-1)).toBe('resolved 2');
  });

  it('is the same batch when its topic is there the next time', async () => {
    const { worker } = world();
    worker.publisher.refusing.set('id.replies.gone', 'gone');
    await worker.serve([request(0, 'b', { replyTopic: 'id.replies.gone' })]);
    worker.publisher.refusing.clear();
    await worker.serve([request(0, 'b', { replyTopic: 'id.replies.gone' })]);
    expect(worker.replies('id.replies.gone').map(gist)).toEqual(['0+1']);
  });

  it('gives a bad record one dead letter, with its own fault and not with the delivery', async () => {
    const { worker } = world();
    worker.publisher.refusing.set('id.replies.gone', 'gone');
    await worker.serve([request(0, 'a', { count: 0, replyTopic: 'id.replies.gone' })]);
    const letters = worker.publisher.on(DEAD_LETTERS);
    expect(letters.map(({ headers }) => headers['kafka_dlt-exception-fqcn'])).toEqual(['INVALID_COUNT']);
  });
});

describe('where a reply goes', () => {
  it('is the partition that the request names', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { headers: { kafka_replyPartition: Buffer.from([0, 0, 0, 4]) } })]);
    expect(worker.publisher.records[0]?.partition).toBe(4);
  });

  it.each([
    'id.requests',
    'id.requests.dlt',
    'id.ledger',
    'id.witness',
    'id.replies.ledger',
    'id.replies.',
    '__consumer_offsets',
    'orders',
    'ID.REPLIES.orders',
  ])('is never %s, whether body or headers ask for it, well or badly', async (topic) => {
    const { worker } = world();
    const headers = { kafka_replyTopic: topic, kafka_correlationId: Buffer.from('a'), 'idalloc-count': '1' };
    await worker.serve([
      request(0, 'a', { replyTopic: topic }),
      record(1, null, headers),
      record(2, Buffer.from('junk'), headers),
      request(3, 'b', { replyTopic: topic, count: 0 }),
      request(4, 'c', { headers: { kafka_replyTopic: topic } }),
    ]);
    expect(worker.publisher.records.map((sent) => sent.topic)).toEqual(Array(5).fill(DEAD_LETTERS));
    expect(worker.publisher.records.map(({ value }) => value?.toString())).toContain('junk');
    expect(worker.allocator.asked).toEqual([]);
  });

  it('is not where a known correlation ID was answered before, if the topic is not allowed now', async () => {
    const { topic, worker } = world();
    topic.land(0, [entry('a', { replyTopic: 'orders' })]);
    worker.catchUp();
    await worker.serve([request(0, 'a', { replyTopic: 'orders' })]);
    expect(worker.publisher.records.map((sent) => sent.topic)).toEqual([DEAD_LETTERS]);
  });

  it('may be the topic that NestJS listens on', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { replyTopic: 'id.requests.reply' })]);
    expect(worker.replies('id.requests.reply').map(gist)).toEqual(['0+1']);
  });
});

describe('a batch in parts', () => {
  it('has one append for so many requests, and resolves after each part', async () => {
    const { worker } = world();
    await worker.serve(Array.from({ length: PART_MAX_REQUESTS + 1 }, (_, i) => request(i, `r${i}`)));
    const steps = worker.events.filter((event) => /^(append|resolved) /.test(event));
    expect(steps).toEqual([
      `append ${PART_MAX_REQUESTS}`,
      `resolved ${PART_MAX_REQUESTS - 1}`,
      'append 1',
      `resolved ${PART_MAX_REQUESTS}`,
    ]);
  });

  it('has no part that asks for more IDs than the bound', async () => {
    const { worker } = world();
    await worker.serve(Array.from({ length: 5 }, (_, i) => request(i, `r${i}`, { count: MAX_COUNT })));
    expect(PART_MAX_IDS).toBe(2 * MAX_COUNT);
    expect(worker.events.filter((event) => event.startsWith('append '))).toEqual(['append 2', 'append 2', 'append 1']);
  });

  it('keeps what was resolved when a later part fails', async () => {
    const worker = new MemoryWorker({ topic: topicOf(), link: linkOf('pass', 'entries lost') });
    const batch = Array.from({ length: PART_MAX_REQUESTS + 1 }, (_, i) => request(i, `r${i}`));
    await expect(worker.serve(batch)).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    expect(worker.events.filter((event) => event.startsWith('resolved'))).toEqual([
      `resolved ${PART_MAX_REQUESTS - 1}`,
    ]);
  });

  it('leaves what is not begun for later when the session ends', async () => {
    const { worker } = world();
    let current = true;
    worker.publisher.hold = async () => {
      current = false;
    };
    const batch = Array.from({ length: PART_MAX_REQUESTS + 1 }, (_, i) => request(i, `r${i}`));
    await worker.serve(batch, 0, () => current);
    expect(worker.replies()).toHaveLength(PART_MAX_REQUESTS);
  });

  it('does nothing for a session that has ended', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a')], 0, () => false);
    expect(worker.events).toEqual([]);
  });
});

describe('a ledger partition that can not be asked', () => {
  it('serves nothing while it is restored, not even what needs no entry', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic, diligent: false });
    worker.follower.distrust(0, 'for a test');
    for (const batch of [[request(0, 'a')], [record(0, null)]]) {
      await expect(worker.serve(batch)).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    }
    expect([worker.events, worker.allocator.asked]).toEqual([[], []]);
  });

  it('allocates nothing behind an entry of somebody else', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic });
    topic.land(0, [{ key: Buffer.from('x'), value: Buffer.from('hello') }]);
    worker.catchUp();
    await expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'LEDGER_UNREADABLE' });
    expect([worker.events, worker.allocator.asked]).toEqual([[], []]);
  });
});

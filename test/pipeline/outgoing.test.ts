import { describe, expect, it } from 'vitest';
import { processBatch } from '../../src/pipeline/batch.ts';
import type { PipelineDeps } from '../../src/pipeline/part.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { entry, layout, REPLIES, record, request } from '../support/memory-records.ts';
import { DEAD_LETTERS, gist, MemoryWorker } from '../support/memory-worker.ts';

function world() {
  const topic = new MemoryLedger(1, () => 1_700_000_000_000);
  return { topic, worker: new MemoryWorker({ topic }) };
}

describe('malformed records', () => {
  it('are dead-lettered with code and original bytes, and the valid ones around them are answered', async () => {
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

  it('are reported as IdError to an allowed address in the headers', async () => {
    const { worker } = world();
    const headers = { kafka_correlationId: Buffer.from('a'), kafka_replyTopic: 'id.replies.orders' };
    await worker.serve([record(0, Buffer.from('junk'), headers)]);
    expect(worker.replies().map(({ id, ...reply }) => [id, 'error' in reply && reply.error.code])).toEqual([
      ['a', 'MALFORMED_REQUEST'],
    ]);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
  });

  it('are reported as IdError to an allowed address in the body', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: 0 })]);
    expect(worker.replies().map(gist)).toEqual(['INVALID_COUNT']);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
  });

  it('are reported to a NestJS client in the header from which it reads errors', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: 0, replyTopic: 'id.requests.reply' }), request(1, 'b')]);
    const [nestReply] = worker.publisher.on('id.requests.reply');
    expect(nestReply?.headers['kafka_nest-is-disposed']).toBe('1');
    expect(nestReply?.headers['kafka_nest-err']).toMatch(/^INVALID_COUNT: /);
    expect(worker.publisher.on('id.replies.orders')[0]?.headers['kafka_nest-is-disposed']).toBeUndefined();
  });

  it('that fill a whole batch need no append', async () => {
    const { topic, worker } = world();
    await worker.serve(Array.from({ length: 3 }, (_, i) => record(i, Buffer.from('junk'))));
    expect([topic.bounds(0).high, worker.events.at(-1)]).toEqual([0, 'resolved 2']);
  });
});

describe('a reply of a custom layout', () => {
  const HEADER = 'idalloc-layout';
  const served = async (customLayout: PipelineDeps['customLayout']) => {
    const worker = new MemoryWorker({ topic: new MemoryLedger(1, () => 1_700_000_000_000) });
    const batch = [request(0, 'a'), request(1, 'b', { count: 0 })];
    const control = { isCurrent: () => true, resolved: () => {} };
    await processBatch({ ...worker.deps, customLayout }, 0, batch, control);
    await processBatch({ ...worker.deps, customLayout }, 0, batch, control);
    return worker.publisher.on(REPLIES).map(({ headers }) => headers);
  };

  it('has a header with its layout each time it is sent; an error does not', async () => {
    const [first, refused, again] = await served({ fingerprint: layout.fingerprint, text: 'fields' });
    expect([first?.[HEADER], refused?.[HEADER], again?.[HEADER]]).toEqual(['fields', undefined, 'fields']);
    expect(again).toEqual({ ...first, 'idalloc-replayed': '1' });
  });

  it('has no layout header for IDs of another layout, and none if the layout is a preset', async () => {
    for (const custom of [undefined, { fingerprint: '0123456789abcdef', text: 'fields' }]) {
      expect((await served(custom)).filter((headers) => HEADER in headers)).toEqual([]);
    }
  });
});

describe('a reply that its topic rejects', () => {
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

  it('has the same batch when its topic exists the next time', async () => {
    const { worker } = world();
    worker.publisher.refusing.set('id.replies.gone', 'gone');
    await worker.serve([request(0, 'b', { replyTopic: 'id.replies.gone' })]);
    worker.publisher.refusing.clear();
    await worker.serve([request(0, 'b', { replyTopic: 'id.replies.gone' })]);
    expect(worker.replies('id.replies.gone').map(gist)).toEqual(['0+1']);
  });

  it('to a bad record adds no second dead letter: the letter names the error of the record', async () => {
    const { worker } = world();
    worker.publisher.refusing.set('id.replies.gone', 'gone');
    await worker.serve([request(0, 'a', { count: 0, replyTopic: 'id.replies.gone' })]);
    const letters = worker.publisher.on(DEAD_LETTERS);
    expect(letters.map(({ headers }) => headers['kafka_dlt-exception-fqcn'])).toEqual(['INVALID_COUNT']);
  });
});

describe('the destination of a reply', () => {
  it('is the partition given in the request', async () => {
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
  ])('is never %s, whether body or headers name it, in a good or a bad request', async (topic) => {
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

  it('is not the topic of an earlier reply to the same correlation ID if that is no longer allowed', async () => {
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

import { describe, expect, it } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { HOPS } from '../../src/codec/request-headers.ts';
import type { Slice } from '../../src/core/slice.ts';
import { estimatedReplyBytes } from '../../src/pipeline/outgoing.ts';
import type { RequestRecord } from '../../src/pipeline/ports.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { REPLIES, record, request } from '../support/memory-records.ts';
import { accepted, DEAD_LETTERS, gist, MemoryWorker } from '../support/memory-worker.ts';

const REQUESTS = 'id.requests';
const HEADER = 'idalloc-request-id';
const NOW_MS = 1_700_000_000_000;
/** The last character of an ID is its home partition, if it is a digit. */
const homeOf = (id: Slice) => Number(id.toString().at(-1)) || 0;

function world(partitions = 1) {
  const topic = new MemoryLedger(partitions, () => NOW_MS);
  return { topic, worker: new MemoryWorker({ topic, partitions, homeOf }) };
}

/** One try of the request with this ID, as ClientKafka sends it: with a correlation ID of its own. */
function attempt(
  offset: number,
  requestId: string,
  correlationId: string,
  fields: Parameters<typeof request>[2] = {},
): RequestRecord {
  return request(offset, correlationId, { ...fields, headers: { ...fields.headers, [HEADER]: requestId } });
}

/** The end of each ledger partition. */
function ends(topic: MemoryLedger, partitions: number) {
  return Promise.all(Array.from({ length: partitions }, (_, partition) => topic.producer().endOffset(partition)));
}

function sent(worker: MemoryWorker) {
  return worker.replies().map((reply, i) => {
    const header = worker.publisher.on(REPLIES)[i]?.headers[HEADER];
    return `${reply.id} ${reply.correlationId} ${header} ${gist(reply)}`;
  });
}

describe('a request with a request ID', () => {
  it('gets one batch for all its tries, each under the correlation ID of that try', async () => {
    const { worker } = world();
    await worker.serve([attempt(0, 'order', 'try-1', { count: 5 })]);
    await worker.serve([attempt(1, 'order', 'try-2', { count: 5 }), attempt(2, 'other', 'try-2')]);
    expect(sent(worker)).toEqual(['try-1 try-1 order 0+5', 'try-2 try-2 order 0+5', 'try-2 try-2 other 5+1']);
    expect(worker.replies().map(({ replayed }) => replayed)).toEqual([false, true, false]);
  });

  it('is the same whether its ID is in the header or in the body', async () => {
    const { worker } = world();
    await worker.serve([attempt(0, 'order', 'try-1'), request(1, 'try-2', { requestId: Buffer.from('order') })]);
    expect(sent(worker)).toEqual(['try-1 try-1 order 0+1', 'try-2 try-2 order 0+1']);
  });

  it('is the request that was sent under the same correlation ID without a request ID', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'order')]);
    await worker.serve([attempt(1, 'order', 'try-1')]);
    expect(sent(worker)).toEqual(['order order undefined 0+1', 'try-1 try-1 order 0+1']);
  });

  it('has one reply for each correlation ID, also of tries that are read together', async () => {
    const { worker } = world();
    const tries = ['try-1', 'try-2', 'try-1', 'order'].map((id, offset) => attempt(offset, 'order', id));
    await worker.serve([...tries, request(4, 'order')]);
    expect(sent(worker)).toEqual([
      'try-1 try-1 order 0+1',
      'try-2 try-2 order 0+1',
      'order order order 0+1',
      'order order undefined 0+1',
    ]);
    expect(worker.allocator.asked).toEqual([1]);
  });

  it('is decided in the home of its request ID, and keeps both IDs on the way', async () => {
    const { worker, topic } = world(2);
    await worker.serve([attempt(0, 'order-1', 'try-0'), attempt(1, 'order-1', 'try-1')], 0);
    expect(worker.replies()).toEqual([]);
    const forwarded = worker.publisher.on(REQUESTS);
    expect(forwarded.map(({ partition, key }) => `${partition} ${key}`)).toEqual(['1 order-1', '1 order-1']);
    expect(forwarded.map(({ headers }) => [headers[HEADER], headers[HOPS]])).toEqual(Array(2).fill(['order-1', '1']));
    const arrived = forwarded.map(({ value, headers }, i) => record(i, value, headers, NOW_MS + 1_000));
    await worker.serve(arrived, 1);
    await worker.serve([attempt(2, 'order-0', 'try-1')], 0);
    expect(sent(worker)).toEqual(['try-0 try-0 order-1 0+1', 'try-1 try-1 order-1 0+1', 'try-1 try-1 order-0 1+1']);
    expect(await ends(topic, 2)).toEqual([1, 1]);
  });

  it('is a CONFLICT with another count, which names the request ID', async () => {
    const { worker } = world();
    await worker.serve([attempt(0, 'order', 'try-1'), attempt(1, 'order', 'try-2', { count: 2 })]);
    expect(sent(worker)).toEqual(['try-1 try-1 order 0+1', 'try-2 try-2 order CONFLICT']);
    expect(worker.replies()[1]).toMatchObject({
      error: {
        message: 'this request ID was used for another request; it differs in count (here 2): use a new request ID',
      },
    });
  });

  it('that is invalid becomes a dead letter with both IDs, and its error reply has them too', async () => {
    const { worker } = world();
    await worker.serve([attempt(0, 'order', 'try-1', { count: 0 })]);
    expect(sent(worker)).toEqual(['try-1 try-1 order INVALID_COUNT']);
    expect(worker.publisher.on(DEAD_LETTERS)).toMatchObject([{ headers: { [HEADER]: 'order' } }]);
    const body = encodeIdRequest({ count: 0, requestId: Buffer.from('in-body') });
    const headers = { kafka_correlationId: 'try-2', kafka_replyTopic: REPLIES };
    await worker.serve([record(1, body, headers)]);
    expect(sent(worker)[1]).toBe('try-2 try-2 in-body INVALID_COUNT');
  });

  it('is malformed with two different request IDs, an empty one, or one that is too long', async () => {
    const { worker } = world();
    await worker.serve([
      attempt(0, 'one', 'a', { requestId: Buffer.from('another') }),
      attempt(1, '', 'b'),
      attempt(2, 'x'.repeat(257), 'c'),
      attempt(3, 'one', 'd', { requestId: Buffer.from('one') }),
    ]);
    expect(worker.errors).toEqual(Array(3).fill('MALFORMED_REQUEST'));
    expect(worker.replies().map(({ id }) => id)).toContain('d');
  });

  it('counts with the bytes of its ID against a quota of bytes', () => {
    const plain = estimatedReplyBytes(accepted(attempt(0, 'one', 'a')), 1, {});
    expect(estimatedReplyBytes(accepted(attempt(0, 'x'.repeat(103), 'a')), 1, {})).toBe(plain + 100);
  });
});

describe('a request for numbers of a sequence', () => {
  it.each([
    ['in the body', request(0, 'a', { sequence: 'invoices' })],
    ['in a header', request(0, 'a', { headers: { 'idalloc-sequence': 'invoices' } })],
    [
      'in a header without a value',
      record(0, null, {
        'idalloc-sequence': 'invoices',
        'idalloc-count': '1',
        kafka_correlationId: 'a',
        kafka_replyTopic: REPLIES,
      }),
    ],
  ])('that it names %s gets an error, never IDs, and no dead letter', async (_, came) => {
    const { worker, topic } = world();
    await worker.serve([came]);
    expect(worker.replies()).toMatchObject([{ id: 'a', error: { code: 'UNKNOWN_SEQUENCE' } }]);
    expect(worker.errors).toEqual(['UNKNOWN_SEQUENCE']);
    expect(worker.publisher.on(DEAD_LETTERS)).toEqual([]);
    expect([worker.allocator.asked, await ends(topic, 1)]).toEqual([[], [0]]);
  });

  it('gets no error on a topic that is not allowed', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { sequence: 'invoices', replyTopic: REQUESTS })]);
    expect(worker.errors).toEqual(['INVALID_REPLY_TOPIC']);
    expect(worker.publisher.on(REQUESTS)).toEqual([]);
  });
});

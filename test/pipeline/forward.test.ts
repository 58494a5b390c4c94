import { describe, expect, it } from 'vitest';
import { RECORD_LEFT_OUT } from '../../src/codec/dead-letter.ts';
import { FIRST_SENT, HOPS, ORIGIN } from '../../src/codec/request-headers.ts';
import type { Slice } from '../../src/core/slice.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { entry, record, request } from '../support/memory-records.ts';
import { CLOCK_MARGIN_MS, DEAD_LETTERS, gist, MemoryWorker } from '../support/memory-worker.ts';

const REQUESTS = 'id.requests';
const NOW_MS = 1_700_000_000_000;
/** The last character of a correlation ID is its home partition. */
const homeOf = (correlationId: Slice) => Number(correlationId.toString().at(-1));

function world() {
  const topic = new MemoryLedger(2, () => NOW_MS);
  return { topic, worker: new MemoryWorker({ topic, partitions: 2, homeOf }) };
}

/** The forwarded requests, as records of the home partition at these offsets. */
function arrived(worker: MemoryWorker, from: number) {
  return worker.publisher
    .on(REQUESTS)
    .map(({ value, headers }, i) => record(from + i, value, headers, NOW_MS + 1_000 + i));
}

describe('a request outside its home partition', () => {
  it('is forwarded unchanged, with its correlation ID as key and its origin', async () => {
    const { worker } = world();
    const came = request(7, 'a1', { headers: { 'x-mine': 'kept' } });
    await worker.serve([came], 0);
    expect(worker.steps).toEqual(['forward']);
    expect(worker.publisher.records).toEqual([
      {
        topic: REQUESTS,
        partition: 1,
        key: Buffer.from('a1'),
        value: came.value,
        headers: Object.assign(Object.create(null), {
          'x-mine': 'kept',
          [ORIGIN]: `0/7/${came.timestampMs}`,
          [HOPS]: '1',
        }),
      },
    ]);
  });

  it('is forwarded from a partition that was added, which has no ledger, and a bad one is a dead letter', async () => {
    const { worker } = world();
    await worker.serve([request(7, 'a1'), record(8, Buffer.from('junk')), request(9, 'b0')], 5);
    expect(worker.publisher.on(REQUESTS).map(({ partition, headers }) => [partition, String(headers[ORIGIN])])).toEqual(
      [
        [1, expect.stringMatching('^5/7/')],
        [0, expect.stringMatching('^5/9/')],
      ],
    );
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
    expect(worker.events).toContain('resolved 9');
    expect(worker.steps).not.toContain('append');
  });

  it('is resolved only once its copy is acknowledged', async () => {
    const { worker } = world();
    const acknowledged = Promise.withResolvers<void>();
    worker.publisher.hold = () => acknowledged.promise;
    const served = worker.serve([request(7, 'a1')], 0);
    await new Promise((resolve) => setImmediate(resolve));
    expect(worker.events.at(-1)).toBe(`sent ${REQUESTS} a1`);
    acknowledged.resolve();
    await served;
    expect(worker.events.at(-1)).toBe('resolved 7');
  });

  it('gets one batch, whichever partitions its records are in', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a1'), request(1, 'b0')], 0);
    await worker.serve(arrived(worker, 0), 1);
    await worker.serve([request(1, 'a1')], 1);
    await worker.serve([request(2, 'a1')], 0);
    await worker.serve(arrived(worker, 2).slice(1), 1);
    const batches = worker.replies().filter(({ id }) => id === 'a1');
    expect(new Set(batches.map(gist)).size).toBe(1);
    expect(batches.map(({ replayed }) => replayed)).toEqual([false, true, true]);
  });

  it('is answered in place when that partition has decided it before', async () => {
    const { topic, worker } = world();
    topic.land(0, [entry('a1', { first: 77n })]);
    worker.catchUp();
    await worker.serve([request(3, 'a1')], 0);
    expect(worker.replies().map(gist)).toEqual(['77+1']);
    expect(worker.publisher.on(REQUESTS)).toEqual([]);
  });

  it('keeps its first origin when it is forwarded again, three times at most', async () => {
    const { worker } = world();
    const headers = (hops: number) => ({ [ORIGIN]: '9/4/1699999000000', [HOPS]: String(hops) });
    await worker.serve([request(5, 'a1', { headers: headers(2) })], 0);
    expect(worker.publisher.on(REQUESTS)[0]?.headers).toMatchObject({ [ORIGIN]: '9/4/1699999000000', [HOPS]: '3' });
    await worker.serve([request(6, 'b1', { headers: headers(3) })], 0);
    expect(worker.publisher.on(REQUESTS)).toHaveLength(1);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
    expect(worker.replies()).toMatchObject([{ id: 'b1', error: { code: 'MISROUTED' } }]);
  });

  it('is malformed, with the reason alone in its letter, if it is longer than any request', async () => {
    const { worker } = world();
    const long = (id: string) => request(5, id, { headers: { padding: Buffer.alloc(32_768) } });
    await worker.serve([long('a1'), long('b0')], 0);
    expect(worker.publisher.on(REQUESTS)).toEqual([]);
    const letters = worker.publisher.on(DEAD_LETTERS);
    expect(letters).toMatchObject(Array(2).fill({ key: null, value: null, headers: { [RECORD_LEFT_OUT]: '1' } }));
    expect([worker.errors, worker.replies()]).toEqual([Array(2).fill('MALFORMED_REQUEST'), []]);
    expect(letters.every(({ headers }) => headers.padding === undefined)).toBe(true);
    await worker.serve([request(6, 'b1', { headers: { padding: Buffer.alloc(32_000) } })], 0);
    expect(worker.publisher.on(REQUESTS)).toHaveLength(1);
  });

  it('blocks its partition while the request topic accepts nothing, and is not lost', async () => {
    const { worker } = world();
    worker.publisher.refusing.set(REQUESTS, 'TOPIC_AUTHORIZATION_FAILED');
    await expect(worker.serve([request(7, 'a1')], 0)).rejects.toMatchObject({
      code: 'TOPIC_INVALID',
      message: expect.stringContaining('write access to id.requests'),
    });
    expect(worker.events).not.toContain('resolved 7');
    expect(worker.publisher.on(DEAD_LETTERS)).toEqual([]);
  });

  it("becomes a dead letter if it alone can't be forwarded, and its sender gets the reason", async () => {
    const { worker } = world();
    const { publish } = worker.publisher;
    worker.publisher.publish = async (records) => {
      if (records.some(({ topic }) => topic !== REQUESTS)) return publish.call(worker.publisher, records);
      return records.map(() => ({ ok: false, reason: 'MESSAGE_TOO_LARGE', cause: 'record' }));
    };
    await worker.serve([request(7, 'a1'), request(8, 'b0')], 0);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
    expect(worker.replies()).toMatchObject([{ id: 'b0' }, { id: 'a1', error: { code: 'MISROUTED' } }]);
    expect(worker.events.at(-1)).toBe('resolved 8');
  });

  it.each([
    [ORIGIN, '1/2'],
    [ORIGIN, '-1/2/3'],
    [HOPS, 'one'],
    [HOPS, '-1'],
    [FIRST_SENT, ''],
    [FIRST_SENT, 'yesterday'],
    [FIRST_SENT, '-1'],
    [FIRST_SENT, '1.5'],
    [FIRST_SENT, '1000000000000000'],
  ])('is refused when its header %s is %j', async (header, value) => {
    const { worker } = world();
    await worker.serve([request(7, 'a0', { headers: { [header]: value } })], 0);
    expect(worker.replies()).toMatchObject([{ error: { code: 'MALFORMED_REQUEST' } }]);
  });
});

describe('a forwarded or resent request', () => {
  /** A ledger whose head is gone: what is left of it begins with an entry that was appended at NOW_MS. */
  function trimmed() {
    const topic = new MemoryLedger(1, () => NOW_MS);
    topic.land(0, [entry('gone'), entry('left', { end: 1, through: 20 })]);
    topic.trim(0, 1);
    return new MemoryWorker({ topic });
  }
  const bornAt = (ms: number) => ({ headers: { [ORIGIN]: `3/9/${ms}`, [HOPS]: '1' } });

  it('is forgotten when it is older than the start of the ledger, with a margin for clocks', async () => {
    const worker = trimmed();
    const late = { timestampMs: NOW_MS + CLOCK_MARGIN_MS };
    await worker.serve([
      { ...request(30, 'old', bornAt(NOW_MS + CLOCK_MARGIN_MS - 1)), ...late },
      { ...request(31, 'young', bornAt(NOW_MS + CLOCK_MARGIN_MS)), ...late },
      request(32, 'direct'),
      // A first request can't be later than its resend, so this origin is forged.
      { ...request(33, 'forged', bornAt(NOW_MS + 10 * CLOCK_MARGIN_MS)), timestampMs: NOW_MS },
    ]);
    expect(worker.replies().map((reply) => ('error' in reply ? reply.error.code : reply.id))).toEqual([
      'FORGOTTEN',
      'young',
      'direct',
      'FORGOTTEN',
    ]);
  });

  it('counts as old as the first send that its client names, or as its origin if that is older', async () => {
    const worker = trimmed();
    const [old, young] = [NOW_MS + CLOCK_MARGIN_MS - 1, NOW_MS + CLOCK_MARGIN_MS];
    const sentAt = (ms: number, headers = {}) => ({ headers: { ...headers, [FIRST_SENT]: `${ms}` } });
    const records = [
      request(30, 'old', sentAt(old)),
      request(31, 'young', sentAt(young)),
      request(32, 'older origin', sentAt(young, bornAt(old).headers)),
      request(33, 'older send', sentAt(old, bornAt(young).headers)),
      request(34, 'both young', sentAt(young, bornAt(young).headers)),
    ].map((record) => ({ ...record, timestampMs: young }));
    // A clock that is ahead must not make a request younger than its record.
    await worker.serve([...records, { ...request(35, 'ahead', sentAt(10 * young)), timestampMs: old }]);
    expect(worker.replies().map((reply) => ('error' in reply ? reply.error.code : reply.id))).toEqual([
      'FORGOTTEN',
      'young',
      'FORGOTTEN',
      'FORGOTTEN',
      'both young',
      'FORGOTTEN',
    ]);
  });

  it('is served whatever its age while the ledger has never forgotten anything', async () => {
    const worker = new MemoryWorker({ topic: new MemoryLedger(1, () => NOW_MS) });
    await worker.serve([request(0, 'old', bornAt(1))]);
    expect(worker.replies()).toMatchObject([{ id: 'old', batch: expect.anything() }]);
  });
});

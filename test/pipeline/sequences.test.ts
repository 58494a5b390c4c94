import { describe, expect, it, vi } from 'vitest';
import { asConfluent, confluentSchemaId } from '../../src/codec/framing.ts';
import { WIDE_REQUEST_HEADER } from '../../src/codec/id-request.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { UNSTATED } from '../../src/core/sequence-row.ts';
import { wallMs } from '../../src/core/units.ts';
import { IdallocError } from '../../src/errors.ts';
import type { LedgerEntries } from '../../src/ledger/ledger-ports.ts';
import { linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { entry, numbers, REPLIES, record, request, statement } from '../support/memory-records.ts';
import {
  DEAD_LETTERS,
  gist,
  MemoryWorker,
  type MemoryWorkerOptions,
  RENEW_AFTER_MS,
} from '../support/memory-worker.ts';

const NOW_MS = 1_700_000_000_000;
const STATEMENT_OF_TICKETS = Buffer.concat([Buffer.of(3), Buffer.from('tickets')]);

/** A worker over a ledger that has the sequence `invoices`, from 1. */
function world(options: Partial<MemoryWorkerOptions> = {}, fields: Parameters<typeof statement>[1] = {}) {
  const topic = new MemoryLedger(1, () => NOW_MS);
  topic.land(0, [statement(0, fields)]);
  const worker = new MemoryWorker({ topic, ...options });
  return { topic, worker };
}

function wanted(offset: number, id: string, count = 1, sequence = 'invoices') {
  return request(offset, id, { sequence, count });
}

const entriesOf = (topic: MemoryLedger) =>
  topic.read(0, topic.bounds(0).low).map(({ offset, value, headers }) => {
    return { offset, ...decodeLedgerEntry(value as Buffer, headers) };
  });
const gists = (worker: MemoryWorker) => worker.replies().map(gist);

describe('numbers of a sequence', () => {
  it('follow each other without a gap, within a part and from part to part', async () => {
    const { worker } = world();
    await worker.serve([wanted(0, 'a', 3), wanted(1, 'b'), wanted(2, 'c', 2)]);
    await worker.serve([wanted(3, 'd', 4)]);
    expect(gists(worker)).toEqual(['1+3', '4+1', '5+2', '7+4']);
    expect(worker.allocator.asked).toEqual([]);
  });

  it('come with the step and the format of the sequence', async () => {
    const { worker } = world({}, { next: 10, step: 5, format: 'INV-{number:6}' });
    await worker.serve([wanted(0, 'a', 2), wanted(1, 'b')]);
    const same = { sequence: 'invoices', step: 5, format: 'INV-{number:6}' };
    expect(worker.replies()).toMatchObject([
      { numbers: { ...same, first: 10, count: 2 } },
      { numbers: { ...same, first: 20, count: 1 } },
    ]);
  });

  it('are the same again for the same request, with the same bytes, by any worker', async () => {
    const { worker, topic } = world();
    const both = [wanted(0, 'a', 3), wanted(1, 'b', 2)];
    await worker.serve(both);
    await worker.serve(both);
    const other = new MemoryWorker({ topic, workerId: 1 });
    await other.serve(both);
    const [a, b, again, againB] = worker.replies();
    expect([again?.bytes, againB?.bytes]).toEqual([a?.bytes, b?.bytes]);
    expect(other.replies().map(({ bytes }) => bytes)).toEqual([a?.bytes, b?.bytes]);
    expect(worker.replies().map(({ replayed }) => replayed)).toEqual([false, false, true, true]);
    expect(topic.bounds(0).high).toBe(3);
  });

  it('are given once to requests of one correlation ID in a part', async () => {
    const { worker } = world();
    await worker.serve([wanted(0, 'a', 2), wanted(1, 'a', 2), wanted(2, 'b')]);
    expect(gists(worker)).toEqual(['1+2', '3+1']);
  });

  it('are CONFLICT for another count under the same correlation ID, which takes none', async () => {
    const { worker } = world();
    await worker.serve([wanted(0, 'a', 2)]);
    await worker.serve([wanted(1, 'a', 3), wanted(2, 'b')]);
    expect(gists(worker)).toEqual(['1+2', 'CONFLICT', '3+1']);
  });

  it('are CONFLICT with what the document has, and never with the advice to use another ID', async () => {
    const { worker } = world();
    await worker.serve([wanted(0, 'order-4710'), wanted(1, 'order-4711', 2)]);
    await worker.serve([wanted(2, 'order-4710', 3), wanted(3, 'order-4711')]);
    const messages = worker.replies().flatMap((reply) => ('error' in reply ? [reply.error.message] : []));
    expect(messages).toEqual([
      'order-4710 has 1 number of invoices, on id.replies.orders: ask for the same count on that topic',
      'order-4711 has 2 numbers of invoices, on id.replies.orders: ask for the same count on that topic',
    ]);
  });

  it('are decided apart from IDs, and each counts all entries before it', async () => {
    const { worker, topic } = world();
    await worker.serve([request(0, 'a'), wanted(1, 'a', 2), wanted(2, 'b'), request(3, 'b')]);
    expect(gists(worker)).toEqual(['0+1', '1+2', '3+1', '1+1']);
    expect(worker.events.filter((event) => /^append \d/.test(event))).toEqual(['append 1', 'append 2', 'append 1']);
    const ats = entriesOf(topic).flatMap((one) => (one.kind === 'numbers' ? [[one.offset, one.at]] : []));
    expect(ats).toEqual([
      [2, 2],
      [3, 3],
    ]);
  });

  it('are those of their sequence alone', async () => {
    const { worker, topic } = world();
    topic.land(0, [{ ...statement(1, { next: 500 }), key: STATEMENT_OF_TICKETS }]);
    worker.catchUp();
    await worker.serve([wanted(0, 'a', 2), wanted(1, 'a', 3, 'tickets'), wanted(2, 'b'), wanted(3, 'b', 1, 'tickets')]);
    expect(gists(worker)).toEqual(['1+2', '500+3', '3+1', '503+1']);
  });

  it('are for a request without a value as well', async () => {
    const { worker } = world();
    const headers = { 'idalloc-sequence': 'invoices', 'idalloc-count': '2' };
    await worker.serve([record(0, null, { ...headers, kafka_correlationId: 'a', kafka_replyTopic: REPLIES })]);
    expect(gists(worker)).toEqual(['1+2']);
  });

  it('belong to the request ID, where there is one', async () => {
    const { worker } = world();
    const tries = ['x', 'y'].map((id, i) => request(i, id, { sequence: 'invoices', requestId: Buffer.from('order') }));
    for (const one of tries) await worker.serve([one]);
    expect(worker.replies().map((reply) => [reply.id, gist(reply)])).toEqual([
      ['x', '1+1'],
      ['y', '1+1'],
    ]);
  });

  it('are decided where the name of the sequence has its home, whatever the correlation ID', async () => {
    const { worker } = world({ homeOf: (key) => (key.toString() === 'invoices' ? 1 : 0) });
    await worker.serve([wanted(0, 'a')]);
    expect(worker.publisher.on('id.requests')).toMatchObject([{ partition: 1, key: Buffer.from('invoices') }]);
    expect(worker.replies()).toEqual([]);
  });
});

describe('a request for numbers that gets none', () => {
  it.each([
    ['UNKNOWN_SEQUENCE', {}, wanted(0, 'a', 1, 'other')],
    ['SEQUENCE_CLOSED', { closed: true }, wanted(0, 'a')],
    ['SEQUENCE_EXHAUSTED', { next: 9, max: 10 }, wanted(0, 'a', 3)],
  ])('gets %s, takes no number, and is no dead letter', async (code, fields, refused) => {
    const { worker, topic } = world({}, fields);
    await worker.serve([refused]);
    expect(gists(worker)).toEqual([code]);
    expect([topic.bounds(0).high, worker.publisher.on(DEAD_LETTERS)]).toEqual([1, []]);
  });

  it('leaves the numbers to those after it', async () => {
    const { worker } = world({}, { max: 3 });
    await worker.serve([wanted(0, 'a', 2), wanted(1, 'b', 2), wanted(2, 'c')]);
    expect(gists(worker)).toEqual(['1+2', 'SEQUENCE_EXHAUSTED', '3+1']);
  });

  it('gets them all the same once the ledger has the statement that ends the refusal, read or not', async () => {
    const { worker, topic } = world({}, { next: 9, max: 10 });
    const statements = [statement(1, { next: 9, max: 20 }), { ...statement(2), key: STATEMENT_OF_TICKETS }];
    topic.land(0, statements);
    await worker.serve([wanted(0, 'a', 3), wanted(1, 'b', 1, 'tickets'), request(2, 'c'), wanted(3, 'd', 1, 'other')]);
    expect(gists(worker)).toEqual(['9+3', '1+1', '0+1', 'UNKNOWN_SEQUENCE']);
  });

  it('costs one look at the end of the ledger with all others of its part, and numbers cost none but the first two of a term', async () => {
    const { worker } = world();
    await worker.serve([wanted(0, 'a'), request(1, 'b')]);
    expect(worker.endsRead).toBe(2);
    await worker.serve([wanted(2, 'b'), wanted(3, 'a')]);
    expect(worker.endsRead).toBe(2);
    await worker.serve([wanted(4, 'c', 1, 'other'), wanted(5, 'd', 1, 'unknown'), wanted(6, 'e')]);
    expect(worker.endsRead).toBe(3);
    expect(gists(worker).slice(-3)).toEqual(['UNKNOWN_SEQUENCE', 'UNKNOWN_SEQUENCE', '3+1']);
  });

  it('is not refused while the end of the ledger is unknown', async () => {
    const { worker } = world();
    vi.spyOn(worker.ledger, 'catchUp').mockRejectedValueOnce(new IdallocError('KAFKA_UNAVAILABLE', 'no broker'));
    const asked = worker.serve([wanted(0, 'a', 1, 'other')]);
    await expect(asked).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE', retryable: true });
    expect(worker.replies()).toEqual([]);
  });

  it('gets its numbers again when the sequence is closed since', async () => {
    const { worker, topic } = world();
    await worker.serve([wanted(0, 'a')]);
    topic.land(0, [statement(2, { next: 2, closed: true })]);
    worker.catchUp();
    await worker.serve([wanted(0, 'a'), wanted(1, 'b')]);
    expect(gists(worker)).toEqual(['1+1', '1+1', 'SEQUENCE_CLOSED']);
  });

  describe('in Confluent framing', () => {
    /** A registry that has 7 for replies, and this for those with numbers. */
    const registryWith = (numbersReplyId: number | undefined) => ({
      learn: async () => {},
      requestHeader: () => WIDE_REQUEST_HEADER,
      replyId: () => 7,
      numbersReplyId: () => numbersReplyId,
    });
    const framed = (offset: number, id: string, sequence?: string) => {
      const { value } = wanted(offset, id, 1, sequence);
      return record(offset, asConfluent(5, value as Buffer));
    };
    const schemaIds = (worker: MemoryWorker) => worker.replies().map(({ bytes }) => confluentSchemaId(bytes));

    it('is answered in it, under the schema with numbers, and an error under that of all other replies', async () => {
      const { worker } = world({ schemas: registryWith(8) });
      await worker.serve([framed(0, 'a'), framed(1, 'b', 'unknown'), wanted(2, 'a')]);
      expect(gists(worker)).toEqual(['1+1', 'UNKNOWN_SEQUENCE', '1+1']);
      expect(schemaIds(worker)).toEqual([8, 7, undefined]);
    });

    it('gets UNKNOWN_SCHEMA, and takes no number, while the registry has no schema for the reply', async () => {
      const { worker } = world({ schemas: registryWith(undefined) });
      await worker.serve([framed(0, 'a'), wanted(1, 'b')]);
      expect(worker.errors).toEqual(['UNKNOWN_SCHEMA']);
      expect(gists(worker)).toEqual(['UNKNOWN_SCHEMA', '1+1']);
    });
  });
});

describe('numbers of an append that came behind another writer', () => {
  /** Lands entries just before the next append of the worker. */
  function beaten(...appends: (readonly { key: Buffer; value: Buffer }[])[]) {
    const topic = new MemoryLedger(1, () => NOW_MS);
    topic.land(0, [statement(0)]);
    const link = async () => {
      const landing = appends.shift();
      if (landing !== undefined) topic.land(0, landing);
      return { fate: 'pass' as const };
    };
    return { topic, worker: new MemoryWorker({ topic, link }) };
  }

  it('are void, and appended again behind it with the same numbers, without another swap', async () => {
    const { worker, topic } = beaten([entry('other')]);
    await worker.serve([wanted(0, 'a', 2), wanted(1, 'b')]);
    expect(gists(worker)).toEqual(['1+2', '3+1']);
    expect(worker.index.placesOf(0, numbers('a').key)).toEqual([4]);
    expect(topic.bounds(0).high).toBe(6);
    expect(worker.events.filter((event) => event.startsWith('swap'))).toEqual(['swap done', 'swap done']);
  });

  it('are void also if it came while an entry was read back after the look-up', async () => {
    const { topic, worker: first } = world();
    await first.serve([wanted(0, 'known', 2)]);
    let landing: readonly { key: Buffer; value: Buffer }[] = [numbers('b', { at: 2, first: 3, count: 4 })];
    const entries: LedgerEntries = {
      read: async (partition, offsets) => {
        topic.land(0, landing);
        landing = [];
        worker.catchUp();
        return await topic.entries.read(partition, offsets);
      },
    };
    const worker = new MemoryWorker({ topic, workerId: 1, entries });
    await worker.serve([wanted(0, 'known', 2), wanted(1, 'b', 4), wanted(2, 'c')]);
    expect(gists(worker)).toEqual(['1+2', '3+4', '7+1']);
    expect(worker.replies()[1]?.replayed).toBe(true);
  });

  it('are OVERTAKEN after eight times, and tried again from memory', async () => {
    const { worker } = beaten(...Array.from({ length: 8 }, (_, i) => [entry(`other-${i}`)]));
    await expect(worker.serve([wanted(0, 'a')])).rejects.toMatchObject({ code: 'OVERTAKEN', retryable: true });
    expect(worker.replies()).toEqual([]);
    await worker.serve([wanted(0, 'a')]);
    expect(gists(worker)).toEqual(['1+1']);
  });
});

describe('an append of numbers without an answer', () => {
  it('is made again with the same numbers before others are given out, and what arrives late is void', async () => {
    const { worker, topic } = world({ link: linkOf('late') });
    await expect(worker.serve([wanted(0, 'a')])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await worker.serve([wanted(1, 'b')]);
    topic.deliverLate();
    worker.catchUp();
    await worker.serve([wanted(0, 'a')]);
    expect(gists(worker)).toEqual(['2+1', '1+1']);
    expect(entriesOf(topic).map((one) => (one.kind === 'numbers' ? one.first : one.kind))).toEqual([
      'statement',
      1,
      2,
      1,
    ]);
  });

  it('has decided them if it arrived', async () => {
    const { worker } = world({ link: linkOf('answer lost') });
    await expect(worker.serve([wanted(0, 'a', 3)])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await worker.serve([wanted(0, 'a', 3), wanted(1, 'b')]);
    expect(gists(worker)).toEqual(['1+3', '4+1']);
  });
});

describe('what a sequence is', () => {
  const HOUR_MS = 3_600_000;
  let nowMs = NOW_MS;
  const ledger = { restateAfterMs: HOUR_MS, now: () => wallMs(nowMs) };

  it('is stated again with a marker when its statement is old, in the same append', async () => {
    nowMs = NOW_MS;
    const { worker, topic } = world({ ledger });
    await worker.serve([wanted(0, 'a', 2)]);
    await worker.ledger.mark(0);
    expect(entriesOf(topic)).toHaveLength(3);
    nowMs += HOUR_MS;
    await worker.ledger.mark(0);
    expect(entriesOf(topic).slice(3)).toMatchObject([
      { kind: 'marker' },
      { kind: 'statement', at: 4, offset: 4, next: 3, max: 1_000, edition: 1, first: 3, isLoss: false },
    ]);
    expect(worker.index.sequence(0, 'invoices')?.stated?.offset).toBe(4);
  });

  it('is not stated again while it has a gap', async () => {
    nowMs = NOW_MS;
    const { worker, topic } = world({ ledger });
    topic.land(0, [numbers('a', { at: 1, first: 5 })]);
    worker.catchUp();
    nowMs += HOUR_MS;
    await worker.ledger.mark(0);
    expect(entriesOf(topic).slice(2)).toMatchObject([{ kind: 'marker' }]);
  });

  it('is not stated by a copy that knows only numbers of it, which marks its partition all the same', async () => {
    nowMs = NOW_MS;
    const { worker, topic } = world({ ledger });
    await worker.serve([wanted(0, 'a', 2)]);
    topic.trim(0, 1);
    const restored = new MemoryWorker({ topic, workerId: 1, ledger });
    restored.catchUp();
    const { high } = topic.bounds(0);
    nowMs += HOUR_MS;
    await restored.ledger.mark(0);
    expect(restored.index.sequence(0, 'invoices')?.known).toMatchObject({ next: 3, edition: UNSTATED });
    expect(entriesOf(topic).filter(({ offset }) => offset >= high)).toMatchObject([{ kind: 'marker' }]);
  });

  it('outlives the end of its log in a copy that is kept, and is unknown to one that is not', async () => {
    nowMs = NOW_MS;
    const { worker, topic } = world({ ledger });
    await worker.serve([wanted(0, 'a', 2)]);
    nowMs += HOUR_MS;
    worker.catchUp();
    topic.trim(0, 2);
    const restored = new MemoryWorker({ topic, workerId: 1, ledger });
    await restored.serve([wanted(1, 'b')]);
    expect(gists(restored)).toEqual(['FORGOTTEN']);
    worker.catchUp();
    await worker.ledger.mark(0);
    restored.catchUp();
    await restored.serve([wanted(2_000_000, 'c')]);
    expect(gists(restored)).toEqual(['FORGOTTEN', '3+1']);
  });
});

describe('a decision about numbers', () => {
  it('holds also where its writer had not read up to what is left of the log, as in the middle of an append', async () => {
    const { worker, topic } = world();
    topic.land(
      0,
      [1, 2, 3].map((at) => numbers(`n${at}`, { at, first: at, end: 1 })),
    );
    worker.catchUp();
    topic.trim(0, 2);
    while (worker.index.expire(0, 2));
    expect(worker.index.origin(0)).toBe(2);
    await worker.serve([wanted(0, 'n3')]);
    expect(gists(worker)).toEqual(['3+1']);
  });

  it('is renewed when an old one answers a request, and the renewal decides when the first is trimmed', async () => {
    const { worker, topic } = world();
    await worker.serve([wanted(0, 'a', 2)]);
    const later = { ...wanted(5, 'a', 2), timestampMs: NOW_MS + RENEW_AFTER_MS };
    await worker.serve([later]);
    expect(entriesOf(topic).slice(2)).toMatchObject([{ kind: 'numbers', at: -1, first: 1, requestOffset: 5 }]);
    topic.land(0, [statement(3, { next: 3 })]);
    topic.trim(0, 2);
    const restored = new MemoryWorker({ topic, workerId: 1 });
    await restored.serve([later]);
    expect([gists(worker), gists(restored)]).toEqual([['1+2', '1+2'], ['1+2']]);
  });
});

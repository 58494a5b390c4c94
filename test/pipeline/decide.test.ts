import { describe, expect, it } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { wallMs } from '../../src/core/units.ts';
import { linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { entry, REPLIES, request } from '../support/memory-records.ts';
import { gist, MAX_COUNT, MemoryWorker } from '../support/memory-worker.ts';

const NOW = 1_700_000_000_000;

function world(nowMs = () => NOW) {
  const topic = new MemoryLedger(1, nowMs);
  return { topic, worker: new MemoryWorker({ topic }) };
}

describe('one correlation ID, one batch', () => {
  it('gives the same batch when an ID comes twice, the second time marked replayed', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: 5 })]);
    await worker.serve([request(1, 'a', { count: 5 })]);
    expect(worker.allocator.asked).toEqual([5]);
    const [first, second] = worker.replies();
    expect(second?.bytes).toEqual(first?.bytes);
    expect([first?.replayed, second?.replayed]).toEqual([false, true]);
  });

  it('publishes byte-identical replies and allocates nothing when a batch is read again', async () => {
    const { topic, worker } = world();
    const batch = [request(0, 'a', { count: 3 }), request(1, 'b', { count: 4, encoding: 'IDS' })];
    await worker.serve(batch);
    await worker.serve(batch);
    const [a, b, againA, againB] = worker.publisher.records;
    expect([againA?.key, againA?.value, againA?.timestampMs]).toEqual([a?.key, a?.value, a?.timestampMs]);
    expect([againB?.key, againB?.value, againB?.timestampMs]).toEqual([b?.key, b?.value, b?.timestampMs]);
    expect(worker.replies().map(({ replayed }) => replayed)).toEqual([false, false, true, true]);
    expect(worker.allocator.asked).toEqual([3, 4]);
    expect(topic.bounds(0).high).toBe(2);
  });

  it('gives the same bytes from another worker that never saw the request before', async () => {
    const { topic, worker } = world();
    await worker.serve([request(0, 'a', { count: 3 })]);
    const successor = new MemoryWorker({ topic, workerId: 1 });
    await successor.serve([request(0, 'a', { count: 3 })]);
    expect(successor.replies()[0]?.bytes).toEqual(worker.replies()[0]?.bytes);
    expect(successor.allocator.asked).toEqual([]);
  });

  it('puts no ID in two batches over many batches of two successive workers', async () => {
    const { topic, worker } = world();
    const successor = new MemoryWorker({ topic, workerId: 1 });
    for (let round = 0; round < 10; round += 1) {
      const batch = Array.from({ length: 20 }, (_, i) => request(round * 20 + i, `${round}-${i % 17}`, { count: 7 }));
      const served = round % 2 === 0 ? worker : successor;
      served.catchUp();
      await served.serve(batch);
    }
    const batches = new Map<string, bigint[]>();
    for (const reply of [...worker.replies(), ...successor.replies()]) {
      if ('batch' in reply) batches.set(`${reply.id} ${gist(reply)}`, expandIds(reply.batch));
    }
    expect(batches.size).toBe(10 * 17);
    const ids = [...batches.values()].flat();
    expect(ids).toHaveLength(10 * 17 * 7);
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe('another request under a known correlation ID', () => {
  it('is a CONFLICT that names the count', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: 2 })]);
    await worker.serve([request(1, 'a', { count: 3 })]);
    expect(worker.replies()[1]).toMatchObject({
      error: { code: 'CONFLICT', message: expect.stringContaining('count (here 3)') },
    });
    expect(worker.allocator.asked).toEqual([2]);
  });

  it('is a CONFLICT that also names the known count for an ID of HTTP, which has its caller in it', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'http/orders/a', { count: 2 }), request(1, 'http/orders/a', { count: 3 })]);
    expect(worker.replies()[1]).toMatchObject({
      error: { code: 'CONFLICT', message: expect.stringContaining('count (here 3, there 2)') },
    });
  });

  it('is a CONFLICT that names the reply topic, sent to the topic of the second request', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a')]);
    await worker.serve([request(1, 'a', { replyTopic: 'id.replies.other' })]);
    expect(worker.replies(REPLIES)).toHaveLength(1);
    expect(worker.replies('id.replies.other')[0]).toMatchObject({
      error: {
        code: 'CONFLICT',
        message: expect.stringContaining('reply_topic (here id.replies.other)'),
      },
    });
  });

  it('is a CONFLICT also within one batch', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: 2 }), request(1, 'a', { count: 3 }), request(2, 'b')]);
    expect(worker.replies().map(gist)).toEqual(['0+2', 'CONFLICT', '2+1']);
  });

  it('does not go to the dead letters: the record itself is fine', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: 2 }), request(1, 'a', { count: 3 })]);
    expect(worker.publisher.on('id.requests.dlt')).toEqual([]);
  });

  it('is the same request when only its encoding differs', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: 2 }), request(1, 'a', { count: 2, encoding: 'IDS' })]);
    expect(worker.replies().map(gist)).toEqual(['0+2', '0+2']);
    expect(worker.replies()).toMatchObject([{ encoding: 'RANGES' }, { encoding: 'IDS' }]);
  });
});

describe('when another worker was first', () => {
  it('an entry that landed between look-up and append wins, and ours becomes a gap', async () => {
    const topic = new MemoryLedger(1, () => NOW);
    const link = async () => {
      topic.land(0, [entry('a', { first: 900n, count: 2 })]);
      return { fate: 'pass' as const };
    };
    const worker = new MemoryWorker({ topic, link });
    await worker.serve([request(0, 'a', { count: 2 }), request(1, 'b', { count: 2 })]);
    expect(worker.replies().map(gist)).toEqual(['900+2', '2+2']);
    expect(worker.replies().map(({ replayed }) => replayed)).toEqual([true, false]);
    expect(topic.bounds(0).high).toBe(3);
  });

  it('reports a CONFLICT when the first entry is for another request', async () => {
    const topic = new MemoryLedger(1, () => NOW);
    const link = async () => {
      topic.land(0, [entry('a', { first: 900n, count: 2 })]);
      return { fate: 'pass' as const };
    };
    const worker = new MemoryWorker({ topic, link });
    await worker.serve([request(0, 'a', { count: 5 })]);
    expect(worker.replies().map(gist)).toEqual(['CONFLICT']);
  });

  it('a doubled append still decides by its first copy', async () => {
    const topic = new MemoryLedger(1, () => NOW);
    const worker = new MemoryWorker({ topic, link: linkOf('sent again') });
    await worker.serve([request(0, 'a'), request(1, 'b')]);
    expect(topic.bounds(0).high).toBe(4);
    const other = new MemoryWorker({ topic, workerId: 1 });
    await other.serve([request(0, 'a'), request(1, 'b')]);
    expect(other.replies().map(gist)).toEqual(worker.replies().map(gist));
    expect(worker.index.placesOf(0, entry('a').key)).toEqual([0, 2]);
  });

  it('a second copy that lands later changes nothing', async () => {
    const topic = new MemoryLedger(1, () => NOW);
    const worker = new MemoryWorker({ topic, link: linkOf('echoed') });
    await worker.serve([request(0, 'a')]);
    topic.deliverLate();
    worker.catchUp();
    await worker.serve([request(0, 'a'), request(1, 'b')]);
    expect(worker.replies().map(gist)).toEqual(['0+1', '0+1', '1+1']);
  });
});

describe('admission', () => {
  it('refuses a count above the limit, and the largest one is served', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a', { count: MAX_COUNT + 1 }), request(1, 'b', { count: MAX_COUNT })]);
    expect(worker.replies().map(gist)).toEqual(['INVALID_COUNT', '0+100000']);
    expect(worker.errors).toEqual(['INVALID_COUNT']);
  });

  it('refuses a count above the limit with the same message when it is read again, whatever its ID was used for since', async () => {
    const { worker } = world();
    const excessive = request(0, 'a', { count: MAX_COUNT + 1 });
    await worker.serve([excessive]);
    await worker.serve([request(1, 'a', { count: 2 })]);
    await worker.serve([excessive, request(2, 'a', { count: 3 })]);
    const [first, , again] = worker.replies();
    expect(worker.replies().map(gist)).toEqual(['INVALID_COUNT', '0+2', 'INVALID_COUNT', 'CONFLICT']);
    expect(again?.bytes).toEqual(first?.bytes);
  });

  it('refuses an unknown request at the very moment it expires, and not a millisecond before', async () => {
    const at = (now: number) => {
      const topic = new MemoryLedger(1, () => NOW);
      return new MemoryWorker({ topic, now: () => wallMs(now) });
    };
    const late = at(NOW);
    await late.serve([request(0, 'a', { expiresAtMs: NOW })]);
    expect(late.replies().map(gist)).toEqual(['EXPIRED']);
    expect(late.allocator.asked).toEqual([]);
    const intime = at(NOW - 1);
    await intime.serve([request(0, 'a', { expiresAtMs: NOW })]);
    expect(intime.replies().map(gist)).toEqual(['0+1']);
  });

  it('gives an expired request its batch when it is known', async () => {
    let now = NOW - 1;
    const topic = new MemoryLedger(1, () => NOW);
    const worker = new MemoryWorker({ topic, now: () => wallMs(now) });
    const asked = request(0, 'a', { expiresAtMs: NOW });
    await worker.serve([asked]);
    now = NOW + 1_000_000;
    await worker.serve([asked]);
    expect(worker.replies().map(gist)).toEqual(['0+1', '0+1']);
  });

  it('writes nothing to the ledger for what it refuses', async () => {
    const { topic, worker } = world();
    await worker.serve([request(0, 'a', { expiresAtMs: 1 }), request(1, 'b', { count: MAX_COUNT + 1 })]);
    expect(topic.bounds(0).high).toBe(0);
    expect(worker.events.filter((event) => event.startsWith('append'))).toEqual([]);
  });
});

describe('evidence', () => {
  it('carries the end and the highest request offset of look-up time', async () => {
    const { topic, worker } = world();
    await worker.serve([request(40, 'a'), request(41, 'b')]);
    const link = async () => {
      topic.land(0, [entry('z', { requestOffset: 60 })]);
      return { fate: 'pass' as const };
    };
    const other = new MemoryWorker({ topic, workerId: 1, link });
    await other.serve([request(50, 'c'), request(51, 'd')]);
    const entries = topic.read(0, 0).map(({ value }) => decodeLedgerEntry(value as Buffer));
    expect(entries.map(({ end }) => end)).toEqual([0, 0, 0, 2, 2]);
    expect(entries.map(({ through }) => through)).toEqual([-1, -1, -1, 41, 41]);
    expect(other.index.through(0)).toBe(60);
  });

  it('stamps a reply with the append time of its entry, also when it is sent again much later', async () => {
    let nowMs = NOW;
    const { worker } = world(() => nowMs);
    await worker.serve([request(0, 'a')]);
    nowMs += 3_600_000;
    await worker.serve([request(0, 'a')]);
    expect(worker.replies().map(({ timestampMs }) => timestampMs)).toEqual([NOW, NOW]);
  });

  it('names worker, fence and layout of the allocating worker, not of the answering one', async () => {
    const { topic, worker } = world();
    await worker.serve([request(0, 'a')]);
    const other = new MemoryWorker({ topic, workerId: 5 });
    await other.serve([request(0, 'a'), request(1, 'b')]);
    expect(other.replies()).toMatchObject([
      { batch: { workerId: 0, fence: 1n } },
      { batch: { workerId: 5, fence: 6n, datacenterId: 3 } },
    ]);
  });
});

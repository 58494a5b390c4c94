import { describe, expect, it } from 'vitest';
import { HOPS, ORIGIN } from '../../src/codec/request-headers.ts';
import type { OutgoingRecord, RequestRecord } from '../../src/pipeline/ports.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { request } from '../support/memory-records.ts';
import { DEAD_LETTERS, gist, MemoryWorker } from '../support/memory-worker.ts';

function world() {
  const worker = new MemoryWorker({ topic: new MemoryLedger(1, () => 1_700_000_000_000) });
  const served: object[] = [];
  Object.assign(worker.deps.observe, { served: (part: object) => served.push(part) });
  const gists = () => worker.replies().map((reply) => `${reply.id} ${gist(reply)}`);
  return { worker, served, gists };
}

describe('equal requests that are read together', () => {
  it('share one reply, and are counted as replayed', async () => {
    const { worker, served, gists } = world();
    await worker.serve([request(0, 'a', { count: 5 }), request(1, 'b'), request(2, 'a', { count: 5 })]);
    expect(gists()).toEqual(['a 0+5', 'b 5+1']);
    expect(served).toEqual([{ issued: 2, replayed: 1, ids: 6, numbers: 0 }]);
    await worker.serve([3, 4, 5].map((offset) => request(offset, 'a', { count: 5 })));
    expect(gists().slice(2)).toEqual(['a 0+5']);
    expect(served.slice(1)).toEqual([{ issued: 0, replayed: 3, ids: 0, numbers: 0 }]);
    expect(worker.events.filter((event) => event.startsWith('resolved'))).toEqual(['resolved 2', 'resolved 5']);
  });

  it('are counted as one reply, once its topic has taken it', async () => {
    const { worker } = world();
    let replied = 0;
    Object.assign(worker.deps.observe, {
      replied: (replies: number) => {
        replied += replies;
      },
    });
    const refused = request(3, 'b', { replyTopic: 'id.replies.full' });
    worker.publisher.refusing.set('id.replies.full', 'too large');
    await worker.serve([request(0, 'a'), request(1, 'a'), request(2, 'c'), refused]);
    expect(replied).toBe(2);
  });

  it('share one reply whatever their trace is', async () => {
    const { worker, gists } = world();
    await worker.serve([0, 1].map((offset) => request(offset, 'a', { headers: { traceparent: `t${offset}` } })));
    expect(gists()).toEqual(['a 0+1']);
  });

  it('have one reply for each partition, encoding and framing of a reply', async () => {
    const { worker } = world();
    const at = (partition: string) => ({ headers: { kafka_replyPartition: partition } });
    const records: RequestRecord[] = [
      request(0, 'a'),
      request(1, 'a', at('1')),
      request(2, 'a', at('2')),
      request(3, 'a', at('1')),
      request(4, 'a', { encoding: 'IDS' }),
    ];
    await worker.serve(records);
    const placeOf = ({ partition, value }: OutgoingRecord) => `${partition} ${value?.length}`;
    const all = worker.publisher.records.map(placeOf);
    expect(worker.publisher.records.map(({ partition }) => partition)).toEqual([undefined, 1, 2, undefined]);
    expect(new Set(all).size).toBe(4);
  });

  it('have each its own answer where the answers differ', async () => {
    const { worker, gists } = world();
    const counts = [7, 8, 7, 8, 9];
    await worker.serve(counts.map((count, offset) => request(offset, 'a', { count })));
    expect(gists()).toEqual(['a 0+7', 'a CONFLICT', 'a CONFLICT']);
    await worker.serve([request(5, 'b', { expiresAtMs: 1 }), request(6, 'b'), request(7, 'b', { expiresAtMs: 1 })]);
    expect(gists().slice(3)).toEqual(['b EXPIRED', 'b 7+1']);
  });

  it('share a dead letter, but a refused one with another end has its own', async () => {
    const worker = new MemoryWorker({ topic: new MemoryLedger(1, () => 1_700_000_000_000), homeOf: () => 1 });
    const headers = { [HOPS]: '3', [ORIGIN]: '1/5/1700000000000' };
    await worker.serve([0, 1].map((offset) => request(offset, 'a', { headers })));
    await worker.serve([3, 4].map((offset) => request(offset, 'a', { headers, expiresAtMs: offset })));
    expect(worker.replies().map(gist)).toEqual(['MISROUTED', 'MISROUTED', 'MISROUTED']);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(3);
    expect(worker.errors).toEqual(Array(4).fill('MISROUTED'));
  });

  it('are each forwarded to the partition that decides them', async () => {
    const worker = new MemoryWorker({ topic: new MemoryLedger(1, () => 1_700_000_000_000), homeOf: () => 1 });
    await worker.serve([0, 1].map((offset) => request(offset, 'a')));
    expect(worker.publisher.on('id.requests')).toHaveLength(2);
  });

  it('are sent again with their reply when that was not acknowledged', async () => {
    const { worker, gists } = world();
    const records = [request(0, 'a'), request(1, 'a')];
    worker.publisher.hold = () => Promise.reject(new Error('the broker went away'));
    await expect(worker.serve(records)).rejects.toThrow('went away');
    worker.publisher.hold = async () => {};
    await worker.serve(records);
    expect([gists(), worker.events.at(-1)]).toEqual([['a 0+1', 'a 0+1'], 'resolved 1']);
  });
});

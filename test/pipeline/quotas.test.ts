import { describe, expect, it } from 'vitest';
import { parseQuotas } from '../../src/codec/quota.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import { DeferredQueue } from '../../src/pipeline/deferred.ts';
import { Quotas } from '../../src/pipeline/quotas.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { REPLIES, request } from '../support/memory-records.ts';
import { gist, MemoryWorker } from '../support/memory-worker.ts';

function world(text: string, share = 1) {
  const its = { nowMs: 5_000, share, exceeded: [] as string[], quotas: parseQuotas(text) };
  const quotas = new Quotas({
    quotas: () => its.quotas,
    monotonicMs: () => its.nowMs,
    share: () => its.share,
    onExceeded: (prefix) => its.exceeded.push(prefix),
  });
  const passes = (topic: string, count: number) => quotas.refuse(topic, count) === undefined;
  return { its, quotas, passes };
}

describe('a quota', () => {
  it('lets one second of tokens pass immediately, and then the rate', () => {
    const { its, passes } = world('a. 100 -');
    expect([passes('a.x', 60), passes('a.x', 40), passes('a.x', 1)]).toEqual([true, true, false]);
    its.nowMs += 500;
    expect([passes('a.x', 50), passes('a.x', 1)]).toEqual([true, false]);
    its.nowMs += 60_000;
    expect([passes('a.x', 100), passes('a.x', 1)]).toEqual([true, false]);
  });

  it('limits requests as well as IDs, and a refused one takes of neither', () => {
    const { its, passes } = world('a. 100 2');
    expect([passes('a.x', 1), passes('a.x', 100), passes('a.x', 99), passes('a.x', 1)]).toEqual([
      true,
      false,
      true,
      false,
    ]);
    expect(its.exceeded).toEqual(['a.', 'a.']);
  });

  it('lets a request for more than one second of tokens pass when full, and is in debt afterwards', () => {
    const { its, passes } = world('a. 100 -');
    expect(passes('a.x', 1_000)).toBe(true);
    its.nowMs += 9_000;
    expect(passes('a.x', 1)).toBe(false);
    its.nowMs += 10;
    expect(passes('a.x', 1)).toBe(true);
  });

  it('that stays as it is when others change keeps its debt, and a changed one starts again', () => {
    const { its, passes } = world('a. 100 -; b. 100 -; c. 100 -');
    expect([passes('a.x', 500), passes('b.x', 500), passes('c.x', 500)]).toEqual([true, true, true]);
    its.quotas = parseQuotas('b. 200 -; a. 100 -; d. 1 -');
    expect([passes('a.x', 1), passes('b.x', 200), passes('b.x', 1)]).toEqual([false, true, false]);
    expect([passes('c.x', 100_000), passes('d.x', 1), passes('d.x', 1)]).toEqual([true, true, false]);
    its.nowMs += 4_010;
    expect(passes('a.x', 1)).toBe(true);
  });

  it('is that of the longest prefix, and a topic without one is unlimited', () => {
    const { passes } = world('a. 1 -; a.b. 10 -');
    expect([passes('a.b.c', 10), passes('a.b.c', 10), passes('a.c', 1), passes('a.c', 1)]).toEqual([
      true,
      false,
      true,
      false,
    ]);
    expect(passes('z', 100_000)).toBe(true);
  });

  it('is divided among workers by their share of the partitions', () => {
    const { its, passes } = world('a. 100 -', 0.25);
    expect([passes('a.x', 25), passes('a.x', 1)]).toEqual([true, false]);
    its.share = 1;
    its.nowMs += 500;
    expect([passes('a.x', 50), passes('a.x', 1)]).toEqual([true, false]);
  });

  it('reports how long to wait, and takes no tokens for a query', () => {
    const { quotas } = world('a. 100 2');
    expect(quotas.wouldRefuse('a.x', 100)).toBe(false);
    expect(quotas.refuse('a.x', 100)).toBe(undefined);
    expect(quotas.wouldRefuse('a.x', 50)).toBe(true);
    expect(quotas.refuse('a.x', 50)).toBe(
      'the quota of reply topics under a. is used up (100 IDs a second, 2 requests a second): send the request again after 500 ms',
    );
  });
});

describe('requests over a quota', () => {
  const shared = () => {
    const { its, quotas } = world(`${REPLIES} 100 -`);
    const worker = new MemoryWorker({ topic: new MemoryLedger(1, () => 1_700_000_000_000) });
    const deferrals = new DeferredQueue(() => {});
    const serve = (...records: Parameters<typeof processBatch>[2]) =>
      processBatch({ ...worker.deps, quotas }, 0, records, { isCurrent: () => true, resolved: () => {}, deferrals });
    return { its, worker, quotas, deferrals, serve };
  };

  it('are refused without an entry or an ID, and get a batch when they are sent again later', async () => {
    const { its, worker, serve } = shared();
    await serve(request(0, 'a', { count: 100 }), request(1, 'b', { count: 1 }));
    expect(worker.replies().map(gist)).toEqual(['0+100', 'QUOTA_EXCEEDED']);
    expect(worker.events.filter((event) => event.startsWith('append'))).toEqual(['append 1', 'appended at 0']);
    its.nowMs += 1_000;
    await serve(request(2, 'b', { count: 1 }));
    expect(worker.replies().map(gist).at(-1)).toBe('100+1');
  });

  it('get their batch when they are known', async () => {
    const { worker, serve } = shared();
    await serve(request(0, 'a', { count: 100 }));
    await serve(request(1, 'a', { count: 100 }), request(2, 'a', { count: 100 }));
    expect(worker.replies().map(gist)).toEqual(['0+100', '0+100', '0+100']);
  });

  it('are refused in the lane of large requests, without IDs, when they are large', async () => {
    const { worker, quotas, deferrals, serve } = shared();
    await serve(request(0, 'a', { count: 100 }));
    await serve(request(1, 'b', { count: 50_000 }));
    expect(deferrals.first).toBe(1);
    const control = { isCurrent: () => true, resolved: () => {}, prepared: new Map() };
    await processBatch({ ...worker.deps, quotas }, 0, deferrals.held, control);
    expect([worker.allocator.asked, worker.replies().map(gist)]).toEqual([[100], ['0+100', 'QUOTA_EXCEEDED']]);
  });
});

import { describe, expect, it } from 'vitest';
import { wallMs } from '../../src/core/units.ts';
import { MAX_DRAFT } from '../../src/ledger/sequence-rule.ts';
import { Quotas } from '../../src/pipeline/quotas.ts';
import { FakeEtcd } from '../identity/fake-etcd.ts';
import { linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { numbers, REPLIES, request, statement } from '../support/memory-records.ts';

import { gist, MemoryWorker, type MemoryWorkerOptions, POLICY } from '../support/memory-worker.ts';
import { appends, gists, NOW_MS, numbersWorld, shown, swaps, swapsOf, wanted } from '../support/numbers-world.ts';

describe('new numbers', () => {
  it('cost one swap and one append for each part, and nothing is read back', async () => {
    const { worker } = numbersWorld();
    const one = worker();
    const part = (from: number) => Array.from({ length: 100 }, (_, i) => wanted(from + i, `r${from + i}`));
    await one.serve(part(0));
    const began = ['get', 'range', 'get']; // the look for losses
    expect([one.etcdCalls, appends(one)]).toEqual([[...began, 'get', 'transact'], ['append 100']]);
    expect(one.endsRead).toBe(2);
    await one.serve(part(100));
    expect([one.etcdCalls, appends(one)]).toEqual([
      [...began, 'get', 'transact', 'transact'],
      ['append 100', 'append 100'],
    ]);
    expect(gists(one).at(-1)).toBe('200+1');
    expect(one.endsRead).toBe(2);
  });

  it('are decided five hundred requests at a time', async () => {
    const { worker } = numbersWorld();
    const one = worker();
    await one.serve(Array.from({ length: 550 }, (_, i) => wanted(i, `r${i}`)));
    expect(appends(one)).toEqual(['append 500', 'append 50']);
  });

  it('of more sequences than one swap takes are decided in several parts', async () => {
    const { topic, worker } = numbersWorld();
    const names = Array.from({ length: MAX_DRAFT + 1 }, (_, i) => `s${i}`);
    topic.land(
      0,
      names.map((name, i) => statement(1 + i, {}, name)),
    );
    const one = worker();
    await one.serve([...names, ...names].map((name, i) => wanted(i, `r${i}`, 1, name)));
    expect(appends(one)).toEqual([`append ${MAX_DRAFT}`, `append ${MAX_DRAFT}`, 'append 2']);
  });

  it('are in etcd before they are appended, and are told from the ledger alone', async () => {
    const { worker, topic, headNow } = numbersWorld();
    const one = worker({ link: linkOf('entries lost') });
    await expect(one.serve([wanted(0, 'a', 3)])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    expect([shown(topic), one.replies()]).toEqual([['edition 1 at 1'], []]);
    const { pending, sequences, through } = await headNow();
    expect(pending).toMatchObject([{ kind: 'numbers', sequence: 'invoices', entry: { first: 1, count: 3 } }]);
    expect([sequences.get('invoices')?.next, through]).toEqual([4, 0]);
  });

  it('are charged once, however often they are drafted', async () => {
    const { worker } = numbersWorld();
    const one = worker({ etcdLink: swapsOf('request lost', 'request lost') });
    const quotas = new Quotas({
      quotas: () => [
        { prefix: REPLIES, idsPerSecond: 5, requestsPerSecond: undefined, replyBytesPerSecond: undefined },
      ],
      policy: POLICY,
      monotonicMs: () => 0,
      share: () => 1,
      onExceeded: () => {},
    });
    Object.assign(one.deps, { quotas });
    await one.serve([wanted(0, 'a', 3), wanted(1, 'b', 2), wanted(2, 'c')]);
    expect(swaps(one)).toEqual(['swap unanswered', 'swap unanswered', 'swap done']);
    expect(gists(one)).toEqual(['1+3', '4+2', 'QUOTA_EXCEEDED']);
  });

  it('wait while etcd refuses to write, and nothing is appended', async () => {
    const { worker, etcd, topic } = numbersWorld();
    const one = worker();
    etcd.fill();
    await expect(one.serve([wanted(0, 'a')])).rejects.toMatchObject({ code: 'ETCD_REFUSED' });
    expect([swaps(one), shown(topic)]).toEqual([['swap failed'], ['edition 1 at 1']]);
    etcd.free();
    await one.serve([wanted(0, 'a')]);
    expect(gists(one)).toEqual(['1+1']);
  });

  it('are tried once a second while etcd refuses, whatever the number of partitions', async () => {
    const topic = new MemoryLedger(3, () => NOW_MS);
    const etcd = new FakeEtcd(() => 0);
    const partitions = [0, 1, 2];
    for (const partition of partitions) topic.land(partition, [statement(0)]);
    const one = new MemoryWorker({ topic, etcd, partitions: 3 });
    etcd.fill();
    const serve = () => Promise.allSettled(partitions.map((partition) => one.serve([wanted(0, 'a')], partition)));
    await serve();
    // biome-ignore format: pairs
    expect([one.etcdCalls.filter((name) => name === 'transact').length, one.rests]).toEqual([3, []]);
    await serve();
    expect(one.rests).toEqual([1_000, 1_000, 1_000]);
    etcd.free();
    await serve();
    expect([one.rests.length, gists(one)]).toEqual([4, ['1+1', '1+1', '1+1']]); // biome-ignore format: pairs
  });

  it('can be those that etcd refused, if it wrote them all the same', async () => {
    const { worker, etcd } = numbersWorld();
    const one = worker();
    etcd.fill(true);
    await expect(one.serve([wanted(0, 'a')])).rejects.toMatchObject({ code: 'ETCD_REFUSED' });
    etcd.free();
    await one.serve([wanted(1, 'b')]);
    await one.serve([wanted(0, 'a')]);
    expect(gists(one)).toEqual(['2+1', '1+1']);
  });
});

describe('a known request for numbers', () => {
  it('is answered without a look at etcd, also while other numbers wait for it', async () => {
    const { worker } = numbersWorld();
    const one = worker();
    await one.serve([wanted(0, 'a', 2)]);
    const { promise, resolve } = Promise.withResolvers<void>();
    const other = worker({ etcdLink: async () => ({ fault: 'pass', back: promise }) });
    const waiting = other.serve([wanted(1, 'b')]);
    await other.serve([wanted(0, 'a', 2)]);
    expect([gists(other), other.etcdCalls]).toEqual([['1+2'], ['get']]);
    resolve();
    await waiting;
    expect(gists(other)).toEqual(['1+2', '3+1']);
  });

  it('is answered although its sequence is closed or stopped', async () => {
    const { worker, topic } = numbersWorld();
    const one = worker();
    await one.serve([wanted(0, 'a')]);
    topic.land(0, [numbers('foreign', { at: 2, first: 2, count: 7 })]);
    one.catchUp();
    const late = worker({ link: linkOf('entries lost') });
    await expect(late.serve([wanted(1, 'b')])).rejects.toThrow();
    topic.land(0, [numbers('other', { at: 3, first: 9, count: 1 })]);
    one.catchUp();
    await one.serve([wanted(0, 'a'), wanted(2, 'c')]);
    expect(gists(one)).toEqual(['1+1', '1+1', 'SEQUENCE_STOPPED']);
  });
});

describe('what another worker has swapped in', () => {
  it('is appended with the same numbers before anything else is given out', async () => {
    const { worker, topic } = numbersWorld();
    const dead = worker({ link: linkOf('entries lost') });
    await expect(dead.serve([wanted(0, 'a', 3), wanted(1, 'b')])).rejects.toThrow();
    const next = worker();
    await next.serve([wanted(2, 'c')]);
    await next.serve([wanted(1, 'b'), wanted(0, 'a', 3)]);
    expect(gists(next)).toEqual(['5+1', '4+1', '1+3']);
    expect(shown(topic)).toEqual(['edition 1 at 1', '1', '4', '5']);
    expect(next.replies().map(({ replayed }) => replayed)).toEqual([false, true, true]);
  });

  it('is the answer to the same request', async () => {
    const { worker } = numbersWorld();
    const dead = worker({ link: linkOf('entries lost') });
    await expect(dead.serve([wanted(0, 'a', 3), wanted(1, 'b')])).rejects.toThrow();
    const next = worker();
    await next.serve([wanted(1, 'b'), wanted(0, 'a', 3)]);
    expect([gists(next), swaps(next)]).toEqual([['4+1', '1+3'], []]); // biome-ignore format: pairs
    expect(next.replies().map(({ replayed }) => replayed)).toEqual([false, false]);
  });

  it('makes a swap of a worker fail that has not read it, which then reads on', async () => {
    const { worker, topic } = numbersWorld();
    const [one, other] = [worker(), worker()];
    await one.serve([wanted(0, 'a')]);
    await other.serve([wanted(1, 'b')]);
    await one.serve([wanted(2, 'c')]);
    expect([gists(one), gists(other), swaps(one)]).toEqual([
      ['1+1', '3+1'],
      ['2+1'],
      ['swap done', 'swap refused', 'swap done'],
    ]);
    expect(shown(topic)).toEqual(['edition 1 at 1', '1', '2', '3']);
  });

  it('is completed by whoever comes first, if two workers do, and by each with the same numbers', async () => {
    const { worker, topic } = numbersWorld();
    const dead = worker({ link: linkOf('entries lost') });
    await expect(dead.serve([wanted(0, 'a')])).rejects.toThrow();
    const [one, other] = [worker(), worker()];
    await Promise.all([one.serve([wanted(0, 'a'), wanted(1, 'b')]), other.serve([wanted(1, 'b'), wanted(2, 'c')])]);
    const told = new Map([...one.replies(), ...other.replies()].map((reply) => [reply.id, gist(reply)]));
    const again = worker();
    await again.serve([wanted(0, 'a'), wanted(1, 'b'), wanted(2, 'c')]);
    expect(again.replies().map((reply) => [reply.id, gist(reply)])).toEqual([...told].toSorted());
    expect(told.get('a')).toBe('1+1');
    expect(shown(topic).filter((one) => !one.endsWith('void'))).toEqual(['edition 1 at 1', '1', '2', '3']);
  });
});

describe('a swap without an answer', () => {
  it('that was done is not made again', async () => {
    const { worker, topic } = numbersWorld();
    const one = worker({ etcdLink: swapsOf('answer lost') });
    await one.serve([wanted(0, 'a', 2)]);
    expect([gists(one), swaps(one), shown(topic)]).toEqual([['1+2'], ['swap unanswered'], ['edition 1 at 1', '1']]);
  });

  it('that was lost is made again', async () => {
    const { worker, nextInEtcd } = numbersWorld();
    const one = worker({ etcdLink: swapsOf('request lost') });
    await one.serve([wanted(0, 'a', 2)]);
    expect([gists(one), swaps(one), await nextInEtcd()]).toEqual([['1+2'], ['swap unanswered', 'swap done'], 3]);
  });

  it('does nothing if it comes after another', async () => {
    const { worker, etcd, topic, nextInEtcd } = numbersWorld();
    const one = worker({ etcdLink: swapsOf('late') });
    await one.serve([wanted(0, 'a', 2)]);
    etcd.deliverLate();
    await one.serve([wanted(1, 'b')]);
    expect([gists(one), await nextInEtcd()]).toEqual([['1+2', '3+1'], 4]); // biome-ignore format: pairs
    expect(shown(topic)).toEqual(['edition 1 at 1', '1', '3']);
  });

  it('of a worker that is gone counts if it comes before a swap of the next one', async () => {
    const { worker, etcd, topic } = numbersWorld();
    const gone = worker({ etcdLink: async (name) => ({ fault: name === 'transact' ? 'late' : 'pass' }) });
    await expect(gone.serve([wanted(0, 'a', 2)])).rejects.toMatchObject({ code: 'OVERTAKEN' });
    const next = worker({
      etcdLink: async (name) => {
        if (name === 'transact' && etcd.lateCount > 0) etcd.deliverLate();
        return { fault: 'pass' };
      },
    });
    await next.serve([wanted(1, 'b')]);
    expect([gists(next), swaps(next)]).toEqual([['3+1'], ['swap refused', 'swap done']]);
    expect(shown(topic)).toEqual(['edition 1 at 1', '1', '3']);
  });
});

describe('a refusal that lasts', () => {
  const expiring = (offset: number, id: string) =>
    request(offset, id, { sequence: 'invoices', expiresAtMs: NOW_MS + 1_000 });

  /** A worker whose clock stands at `its.nowMs`, and which has tried in vain to swap in numbers for `a`. */
  async function unsure(options: Partial<MemoryWorkerOptions> = {}) {
    const its = { nowMs: NOW_MS };
    const parts = numbersWorld();
    const hang = { isSilent: false };
    const one = parts.worker({
      now: () => wallMs(its.nowMs),
      etcdLink: async (name) => ({ fault: hang.isSilent && name === 'transact' ? 'late' : 'pass' }),
      ...options,
    });
    await one.serve([wanted(0, 'before')]);
    hang.isSilent = true;
    await expect(one.serve([expiring(1, 'a')])).rejects.toMatchObject({ code: 'OVERTAKEN' });
    hang.isSilent = false;
    its.nowMs += 1_000;
    one.events.length = 0;
    return { ...parts, one };
  }

  it('comes after another swap, behind which one without an answer does nothing', async () => {
    const { one, etcd, topic, worker } = await unsure();
    await one.serve([expiring(1, 'a')]);
    expect([gists(one).at(-1), swaps(one)]).toEqual(['EXPIRED', ['swap done']]);
    while (etcd.lateCount > 0) etcd.deliverLate();
    await worker().serve([wanted(2, 'b')]);
    expect(shown(topic)).toEqual(['edition 1 at 1', '1', '2']);
    expect(topic.read(0, 2).map(({ key }) => key?.subarray(-1).toString())).toEqual(['b']);
  });

  it('is none if the numbers were swapped in after all', async () => {
    const { one, etcd } = await unsure();
    etcd.deliverLate();
    await one.serve([expiring(1, 'a')]);
    expect([gists(one).at(-1), swaps(one)]).toEqual(['2+1', []]); // biome-ignore format: pairs
  });

  it('needs no swap of its own where numbers of others are swapped in, nor after those', async () => {
    const { one } = await unsure();
    await one.serve([expiring(1, 'a'), wanted(2, 'b')]);
    await one.serve([expiring(3, 'c')]);
    expect([gists(one).slice(1), swaps(one)]).toEqual([['EXPIRED', '2+1', 'EXPIRED'], ['swap done']]);
  });
});

describe('requests for sequences that do not exist', () => {
  it('cost one read of etcd and one of the end of the ledger for each part, and nothing is written', async () => {
    const { worker, topic } = numbersWorld();
    const one = worker();
    const part = (from: number) =>
      Array.from({ length: 100 }, (_, i) => wanted(from + i, `r${from + i}`, 1, `made.up.${from + i}`));
    await one.serve([wanted(0, 'a')]);
    const [calls, ends, before] = [one.etcdCalls.length, one.endsRead, shown(topic)];
    for (let from = 1; from < 1_500; from += 100) await one.serve(part(from));
    expect(one.etcdCalls.slice(calls)).toEqual(Array.from({ length: 15 }, () => 'get'));
    expect([one.endsRead - ends, shown(topic)]).toEqual([15, before]);
    expect(new Set(gists(one).slice(1))).toEqual(new Set(['UNKNOWN_SEQUENCE']));
  });
});

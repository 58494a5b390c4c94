import { describe, expect, it } from 'vitest';
import { topicHash } from '../../src/codec/request-position.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import type { RequestRecord } from '../../src/pipeline/ports.ts';
import { RequestSession } from '../../src/pipeline/request-session.ts';
import type { Fault } from '../identity/fake-etcd.ts';
import { REPLIES, request } from '../support/memory-records.ts';
import { accountsWith, type MemoryWorker } from '../support/memory-worker.ts';
import { gists, numbersWorld, shown, swaps, wanted } from '../support/numbers-world.ts';

/** An etcd whose swaps wait until the test lets them go on. */
function heldEtcd() {
  const held: (() => void)[] = [];
  const asked: (() => void)[] = [];
  let fault: Fault = 'pass';
  return {
    link: async (name: string) => {
      if (name !== 'transact') return { fault: 'pass' as const };
      const { promise, resolve } = Promise.withResolvers<void>();
      held.push(resolve);
      asked.shift()?.();
      await promise;
      return { fault };
    },
    /** Resolves when a swap waits. */
    waits: () => (held.length > 0 ? Promise.resolve() : new Promise<void>((resolve) => asked.push(resolve))),
    release: (as: Fault = 'pass') => {
      fault = as;
      held.shift()?.();
    },
  };
}

/** The real session of a partition, over the real pipeline. */
function sessionOf(worker: MemoryWorker) {
  const errors: unknown[] = [];
  const answered: { readonly offset: number; readonly all: boolean; readonly resolve: () => void }[] = [];
  const session: RequestSession = new RequestSession({
    partition: 0,
    isOpen: true,
    handler: (partition, records, control) => processBatch(worker.deps, partition, records, control),
    runtime: { schedule: () => ({ cancel: () => {} }) },
    readAgain: () => ({ stop: () => {} }),
    onProgress: ({ next, small }) => {
      for (const one of answered) if (one.offset < (one.all ? next : small)) one.resolve();
    },
    onError: (error) => errors.push(error),
  });
  const deliver = (...records: RequestRecord[]) =>
    session.deliver({ records, next: (records.at(-1)?.offset ?? -1) + 1 });
  /** Resolves when everything up to this offset is answered, but for what waits in other lanes. */
  const passed = (offset: number) =>
    (session.position?.small ?? 0) > offset
      ? Promise.resolve()
      : new Promise<void>((resolve) => answered.push({ offset, all: false, resolve }));
  /** Resolves when everything up to this offset is answered. */
  const allAnswered = (offset: number) => new Promise<void>((resolve) => answered.push({ offset, all: true, resolve }));
  return { session, deliver, passed, allAnswered, errors };
}

describe('while etcd is silent', () => {
  it('IDs are answered, chunk after chunk, and numbers when it answers', async () => {
    const { worker } = numbersWorld();
    const etcd = heldEtcd();
    const one = worker({ etcdLink: etcd.link });
    const { session, deliver, passed } = sessionOf(one);
    void deliver(wanted(0, 'n', 2), request(1, 'a'));
    await etcd.waits();
    void deliver(request(2, 'b'), wanted(3, 'm'), request(4, 'c'));
    await passed(4);
    expect(one.replies().map(({ id }) => id)).toEqual(['a', 'b', 'c']);
    expect([session.position, session.oldestNumbers()?.waiting]).toEqual([{ next: 0, small: 5 }, 2]);
    etcd.release();
    await etcd.waits();
    etcd.release();
    await session.settled;
    await session.settled;
    expect(gists(one).slice(3)).toEqual(['1+2', '3+1']);
    expect([session.position, session.oldestNumbers()]).toEqual([{ next: 5, small: 5 }, undefined]);
  });

  it('what arrives for numbers is drafted together afterwards', async () => {
    const { worker } = numbersWorld();
    const etcd = heldEtcd();
    const one = worker({ etcdLink: etcd.link });
    const { session, deliver, passed } = sessionOf(one);
    void deliver(wanted(0, 'first'));
    await etcd.waits();
    for (let offset = 1; offset <= 20; offset += 1) void deliver(wanted(offset, `later ${offset}`));
    await passed(20);
    etcd.release();
    await etcd.waits();
    etcd.release();
    await session.settled;
    await session.settled;
    expect([swaps(one), gists(one).length]).toEqual([['swap done', 'swap done'], 21]);
  });

  it('a part goes on when the gate closes, and no other begins', async () => {
    const { worker, topic } = numbersWorld();
    const etcd = heldEtcd();
    const one = worker({ etcdLink: etcd.link });
    const { session, deliver } = sessionOf(one);
    void deliver(wanted(0, 'a'));
    await etcd.waits();
    void deliver(wanted(1, 'b'));
    session.pause();
    etcd.release();
    await session.settled;
    expect([gists(one), session.position?.next, shown(topic)]).toEqual([['1+1'], 1, ['edition 1 at 1', '1']]);
  });

  it('the next owner answers with the same numbers, whenever the swap of the one before takes effect', async () => {
    for (const fault of ['pass', 'answer lost', 'late', 'request lost'] as const) {
      const { worker, topic, etcd: server } = numbersWorld();
      const etcd = heldEtcd();
      const before = worker({ etcdLink: etcd.link });
      const old = sessionOf(before);
      void old.deliver(wanted(0, 'a', 2));
      await etcd.waits();
      old.session.end();
      const after = worker();
      await after.serve([wanted(1, 'b')]);
      etcd.release(fault);
      await etcd.waits().then(() => etcd.release());
      while (server.lateCount > 0) server.deliverLate();
      await old.session.settled;
      after.catchUp();
      await after.serve([wanted(0, 'a', 2), wanted(1, 'b')]);
      expect([fault, gists(before), gists(after)]).toEqual([fault, ['2+2'], ['1+1', '2+2', '1+1']]);
      expect(shown(topic)).toEqual(['edition 1 at 1', '1', '2']);
      expect(old.session.position).toEqual({ next: 0, small: 1 });
    }
  });
});

describe('when the gate closes before a part begins', () => {
  it('its requests are left for later, and none is lost although their account is in debt from then on', async () => {
    const { worker } = numbersWorld();
    const accounts = accountsWith({ usPerMs: 1, burstUs: 1 });
    const one = worker({ accounts });
    const { session, deliver, allAnswered } = sessionOf(one);
    void deliver(request(0, 'a'), wanted(1, 'n'), request(2, 'large', { count: 5_001 }), request(3, 'b'));
    session.pause(); // the part is being read
    await session.settled;
    expect(one.replies()).toEqual([]);
    for (const topic of [REPLIES, 'id.replies.others']) accounts.charge(accounts.payerOf(topic), 1);
    accounts.charge(accounts.payerOf(REPLIES), 1);
    const answered = allAnswered(3);
    session.resume();
    await answered;
    const ids = one.replies().map(({ id }) => id);
    expect(ids.toSorted()).toEqual(['a', 'b', 'large', 'n']);
  });
});

describe('numbers for an account in debt', () => {
  it('are given out where its other requests wait, once, and nobody else waits for them', async () => {
    const { worker } = numbersWorld();
    const accounts = accountsWith({ usPerMs: 1, burstUs: 1 });
    const etcd = heldEtcd();
    const one = worker({ accounts, etcdLink: etcd.link });
    const { session, deliver, passed, allAnswered } = sessionOf(one);
    const answered = () => one.publisher.records.map(({ key }) => String(key));
    accounts.charge(accounts.payerOf('id.replies.others'), 1);
    accounts.charge(accounts.payerOf(REPLIES), 2);
    void deliver(wanted(0, 'n', 2), request(1, 'a'), request(2, 'b', { replyTopic: 'id.replies.others' }));
    await etcd.waits();
    await passed(2);
    expect([answered(), session.oldestNumbers()]).toEqual([['b'], undefined]);
    expect(session.position?.debtors).toEqual([{ topic: topicHash(REPLIES), prefix: 0, from: 0, until: 2 }]);
    const all = allAnswered(2);
    etcd.release();
    await all;
    expect(answered()).toEqual(['b', 'n', 'a']);
    expect(session.position).toEqual({ next: 3, small: 3 });
  });
});

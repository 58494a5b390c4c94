import { describe, expect, it, test } from 'vitest';
import { parseQuotas } from '../../src/codec/quota.ts';
import { IdallocError } from '../../src/errors.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import { DeferredQueue } from '../../src/pipeline/deferred.ts';
import { type Charge, Quotas } from '../../src/pipeline/quotas.ts';
import { type Link, linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { REPLIES, request } from '../support/memory-records.ts';
import { DEAD_LETTERS, gist, MemoryWorker, POLICY, RENEW_AFTER_MS, readerFor } from '../support/memory-worker.ts';

function world(text: string, share = 1) {
  const its = {
    nowMs: 5_000,
    share,
    exceeded: [] as string[],
    quotas: parseQuotas(text),
    missing: [] as string[],
    lookedUp: [] as string[],
  };
  const quotas = new Quotas({
    quotas: () => its.quotas,
    policy: POLICY,
    monotonicMs: () => its.nowMs,
    share: () => its.share,
    onExceeded: (prefix) => its.exceeded.push(prefix),
  });
  const replyTopics = {
    exists: async (topic: string) => {
      its.lookedUp.push(topic);
      return !its.missing.includes(topic);
    },
  };
  let offset = 0;
  const charge = (replyTopic: string, ids: number, replyBytes = 0): Charge => {
    offset += 1;
    return { partition: 0, offset, replyTopic, ids, replyBytes };
  };
  const passes = (topic: string, ids: number, replyBytes?: number) =>
    quotas.refuse(charge(topic, ids, replyBytes)) === undefined;
  return { its, quotas, replyTopics, charge, passes };
}

test('a quota shows how much of it was used lately, by the bound that is closest to its limit', () => {
  const { its, quotas, passes } = world('a. 100 50');
  const used = () => quotas.uses().map(({ prefix, limits, used: share }) => [prefix, limits.split(',')[0], share]);
  expect(used()).toEqual([['a.', '100 IDs/s', 0]]);
  expect(passes('a.x', 75)).toBe(true);
  expect(used()[0]).toEqual(['a.', '100 IDs/s', 0.75]);
  its.nowMs += 500;
  expect(used()[0]).toEqual(['a.', '100 IDs/s', 0.25]);
});

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

  it('lets a request for more than one second of tokens pass when full, and smaller ones soon after it', () => {
    const { its, passes } = world('a. 100 -');
    expect([passes('a.x', 1_000), passes('a.x', 1)]).toEqual([true, false]);
    its.nowMs += 10;
    expect([passes('a.x', 1), passes('a.x', 101)]).toEqual([true, false]);
    its.nowMs += 10_000;
    expect(passes('a.x', 101)).toBe(true);
  });

  it('limits the bytes of replies, and a request over any limit takes of none', () => {
    const { its, passes } = world('a. 100 3 1000');
    expect([passes('a.x', 0, 900), passes('a.x', 100, 101), passes('a.x', 100, 100), passes('a.x', 0, 1)]).toEqual([
      true,
      false,
      true,
      false,
    ]);
    expect(its.exceeded).toEqual(['a.', 'a.']);
  });

  it('takes nothing again for a request that is retried, until that is answered', () => {
    const { quotas, charge } = world('a. 100 -');
    const [first, second] = [charge('a.x', 100), charge('a.x', 100)];
    expect([quotas.refuse(first), quotas.refuse(first), quotas.wouldRefuse(first)]).toEqual([
      undefined,
      undefined,
      false,
    ]);
    expect(quotas.wouldRefuse(second)).toBe(true);
    expect(quotas.wouldRefuse({ ...first, partition: 1 })).toBe(true);
    quotas.answered(0, [{ record: { offset: first.offset } }]);
    expect(quotas.wouldRefuse(first)).toBe(true);
  });

  it('remembers the last 2,000 charged requests of a partition that are not answered', () => {
    const { its, quotas, charge } = world('a. 100 -');
    const charges = Array.from({ length: 2_001 }, () => {
      its.nowMs += 1_000;
      const one = charge('a.x', 100);
      expect(quotas.refuse(one)).toBe(undefined);
      return one;
    });
    expect(charges.slice(0, 2).map((one) => quotas.wouldRefuse(one))).toEqual([true, false]);
  });

  it('for all reply topics covers that of NestJS too, unless that has one of its own', () => {
    const { its, passes } = world('id.replies.acme. 10 -; id.replies. 5 -');
    const nest = 'id.requests.reply';
    expect([passes(nest, 5), passes(nest, 5), passes('id.replies.x', 5)]).toEqual([true, false, false]);
    its.quotas = parseQuotas('id.replies. 5 -; id.req 7 -');
    expect([passes(nest, 7), passes(nest, 1), passes('id.replies.x', 5)]).toEqual([true, false, false]);
    its.quotas = parseQuotas('id.replies.acme. 5 -');
    expect([passes(nest, 100), passes(nest, 100)]).toEqual([true, true]);
  });

  it('that stays as it is when others change keeps its content, and a changed one starts again', () => {
    const { its, passes } = world('a. 100 -; b. 100 -; c. 100 -');
    expect([passes('a.x', 500), passes('b.x', 500), passes('c.x', 500)]).toEqual([true, true, true]);
    its.quotas = parseQuotas('b. 200 -; a. 100 -; d. 1 -');
    expect([passes('a.x', 1), passes('b.x', 200), passes('b.x', 1)]).toEqual([false, true, false]);
    expect([passes('c.x', 100_000), passes('d.x', 1), passes('d.x', 1)]).toEqual([true, true, false]);
    its.nowMs += 10;
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

  it('names the used-up limits and how long to wait, and takes no tokens for a query', () => {
    const { quotas, charge } = world('a. 100 2');
    expect(quotas.wouldRefuse(charge('a.x', 100))).toBe(false);
    expect(quotas.refuse(charge('a.x', 100))).toBe(undefined);
    expect(quotas.wouldRefuse(charge('a.x', 50))).toBe(true);
    const again = 'send the request again after 500 ms';
    expect(quotas.refuse(charge('a.x', 50))).toEqual({
      message: `the quota of reply topics under a. is used up (100 IDs a second): ${again}`,
      retryAfterMs: 500,
    });
    expect(quotas.refuse(charge('a.x', 0))).toBe(undefined);
    expect(quotas.refuse(charge('a.x', 50))?.message).toBe(
      `the quota of reply topics under a. is used up (100 IDs a second, 2 requests a second): ${again}`,
    );
  });
});

function served(text: string, link?: Link) {
  const { its, quotas, replyTopics } = world(text);
  const options = { topic: new MemoryLedger(1, () => 1_700_000_000_000), homeOf: () => 0 };
  const worker = new MemoryWorker(link === undefined ? options : { ...options, link });
  const deferrals = new DeferredQueue(() => {});
  const deps = { ...worker.deps, quotas, replyTopics };
  const serve = (...records: Parameters<typeof processBatch>[2]) =>
    processBatch(deps, 0, records, {
      isCurrent: () => true,
      resolved: () => {},
      deferrals: { large: deferrals, debts: deferrals },
    });
  const appends = () => worker.events.filter((event) => /^append \d/.test(event));
  return { its, quotas, deps, worker, deferrals, serve, appends };
}

describe('requests over a quota', () => {
  it('are refused without an entry or an ID, and get a batch when they are sent again later', async () => {
    const { its, worker, serve, appends } = served(`${REPLIES} 100 -`);
    await serve(request(0, 'a', { count: 100 }), request(1, 'b', { count: 1 }));
    expect(worker.replies().map(gist)).toEqual(['0+100', 'QUOTA_EXCEEDED']);
    expect(appends()).toEqual(['append 1']);
    its.nowMs += 1_000;
    await serve(request(2, 'b', { count: 1 }));
    expect(worker.replies().map(gist).at(-1)).toBe('100+1');
  });

  it('are told when to send again in a header of the refusal, and in no other reply', async () => {
    const { its, worker, serve } = served(`${REPLIES} 100 -`);
    await serve(request(0, 'a', { count: 100 }), request(1, 'b', { count: 0 }), request(2, 'c', { count: 50 }));
    const times = () => worker.publisher.on(REPLIES).map(({ headers }) => headers['idalloc-retry-after-ms']);
    expect(times()).toEqual([undefined, undefined, '500']);
    its.nowMs += 500;
    await serve(request(3, 'c', { count: 50 }));
    expect([worker.replies().map(gist).at(-1), times().at(-1)]).toEqual(['100+50', undefined]);
  });

  it('get their batch when they are known, since that takes no IDs', async () => {
    const { worker, serve } = served(`${REPLIES} 100 -`);
    await serve(request(0, 'a', { count: 100 }));
    await serve(request(1, 'a', { count: 100 }));
    expect(worker.replies().map(gist)).toEqual(['0+100', '0+100']);
  });

  it('are refused in the lane of large requests, without IDs, when they are large', async () => {
    const { worker, quotas, deferrals, serve } = served(`${REPLIES} 100 -`);
    await serve(request(0, 'a', { count: 100 }));
    await serve(request(1, 'b', { count: 50_000 }));
    expect(deferrals.first).toBe(1);
    const control = { isCurrent: () => true, resolved: () => {}, prepared: new Map() };
    await processBatch({ ...worker.deps, quotas }, 0, deferrals.held, control);
    expect([worker.allocator.asked, worker.replies().map(gist)]).toEqual([[100], ['0+100', 'QUOTA_EXCEEDED']]);
  });

  it.each([
    ['before it was decided', 'entries lost'],
    ['after it was decided', 'answer lost'],
  ] as const)('are not those whose part failed %s: a retry is not charged', async (_, fate) => {
    const { its, worker, serve } = served(`${REPLIES} 100 1`, linkOf(fate));
    const asked = request(0, 'a', { count: 100 });
    await serve(asked).catch(() => undefined);
    its.nowMs += 200;
    await serve(asked);
    expect(worker.replies().map(gist).at(-1)).toMatch(/^\d+\+100$/);
    await serve(request(1, 'b'));
    expect(worker.replies().map(gist).at(-1)).toBe('QUOTA_EXCEEDED');
  });

  it('include a retry that was answered: it is a replay when it is read again', async () => {
    const { worker, serve } = served(`${REPLIES} 100 1`);
    await serve(request(0, 'a'));
    await serve(request(0, 'a'));
    expect(worker.replies().map(gist)).toEqual(['0+1', 'QUOTA_EXCEEDED']);
  });
});

describe('a replay', () => {
  it('takes a request and the bytes of its reply, and above them gets an error, later the same batch', async () => {
    const { its, worker, serve, appends } = served(`${REPLIES} 100000 - 50000`);
    await serve(request(0, 'a', { count: 4_000, encoding: 'IDS' }), request(1, 'b', { count: 2 }));
    its.nowMs += 1_000;
    for (const offset of [2, 3]) await serve(request(offset, 'a', { count: 4_000, encoding: 'IDS' }));
    await serve(request(4, 'b', { count: 2 }));
    its.nowMs += 1_000;
    await serve(request(5, 'a', { count: 4_000, encoding: 'IDS' }));
    expect(worker.replies().map(gist)).toEqual(['0+4000', '4000+2', '0+4000', 'QUOTA_EXCEEDED', '4000+2', '0+4000']);
    expect(worker.replies()[5]?.bytes).toEqual(worker.replies()[0]?.bytes);
    const copies = ['append 1', 'append 1', 'append 1', 'append 1'];
    expect([its.exceeded, appends()]).toEqual([[REPLIES], ['append 2', ...copies]]);
  });

  it('over its quota is counted as refused, and renews its decision all the same', async () => {
    const { its, worker, serve, appends } = served(`${REPLIES} 100 1`);
    const parts: object[] = [];
    Object.assign(worker.deps.observe, { served: (part: object) => parts.push(part) });
    await serve(request(0, 'a'));
    const late = { ...request(1, 'a'), timestampMs: 1_700_000_000_000 + RENEW_AFTER_MS };
    await serve(late);
    expect(worker.replies().map(gist)).toEqual(['0+1', 'QUOTA_EXCEEDED']);
    expect(parts.at(-1)).toEqual({ issued: 0, replayed: 0, ids: 0, numbers: 0 });
    expect([its.exceeded, appends()]).toEqual([[REPLIES], ['append 1', 'append 1']]);
  });

  it('that is equal to others read with it is charged once, as is its refusal sent once', async () => {
    const { worker, serve } = served(`${REPLIES} - 2`);
    const equal = (from: number) => [0, 1, 2].map((i) => request(from + i, 'a'));
    await serve(...equal(0));
    await serve(...equal(3));
    await serve(...equal(6));
    expect(worker.replies().map(gist)).toEqual(['0+1', '0+1', 'QUOTA_EXCEEDED']);
    expect(worker.errors).toEqual(Array(3).fill('QUOTA_EXCEEDED'));
  });
});

describe('a request whose reply topic does not exist', () => {
  const NONE = 'id.replies.orders-none';

  it('takes nothing from the quota of its prefix and no ID, and is a dead letter', async () => {
    const { its, worker, serve, appends } = served(`${REPLIES} 100 1`);
    its.missing = [NONE];
    await serve(request(0, 'a', { count: 5_000, replyTopic: NONE }), request(1, 'b', { replyTopic: NONE }));
    await serve(request(2, 'c'));
    expect(worker.replies().map(gist)).toEqual(['0+1']);
    expect([worker.replies(NONE), appends()]).toEqual([[], ['append 1']]);
    const codes = worker.publisher.on(DEAD_LETTERS).map(({ headers }) => headers['kafka_dlt-exception-fqcn']);
    expect(codes).toEqual(['REPLY_UNDELIVERABLE', 'REPLY_UNDELIVERABLE']);
  });

  it('takes nothing when it is known either, and gets its batch once the topic exists', async () => {
    const { its, worker, serve } = served(`${REPLIES} 100 2`);
    await serve(request(0, 'a', { replyTopic: NONE }));
    its.missing = [NONE];
    await serve(request(1, 'a', { replyTopic: NONE }));
    its.missing = [];
    await serve(request(2, 'a', { replyTopic: NONE }));
    expect(worker.replies(NONE).map(gist)).toEqual(['0+1', '0+1']);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
  });

  it('is not decided without a quota either, and is looked up once for a part', async () => {
    const { its, deps, worker, appends } = served(`${REPLIES} 100 2`);
    its.missing = [NONE];
    const records = [0, 1, 2].map((offset) => request(offset, `a${offset}`, { replyTopic: NONE }));
    await processBatch({ ...deps, quotas: undefined }, 0, records, { isCurrent: () => true, resolved: () => {} });
    expect([its.lookedUp, appends(), worker.publisher.on(DEAD_LETTERS).length]).toEqual([[NONE], [], 3]);
  });

  it('is a dead letter where it arrived, while others are forwarded to the partition that decides them', async () => {
    const { its, deps, worker } = served(`${REPLIES} 100 1`);
    its.missing = [NONE];
    const records = [request(0, 'a', { replyTopic: NONE }), request(1, 'b')];
    await processBatch({ ...deps, reader: readerFor({ homeOf: () => 1 }) }, 0, records, {
      isCurrent: () => true,
      resolved: () => {},
    });
    const [letter, ...others] = worker.publisher.on(DEAD_LETTERS);
    expect(letter?.headers['kafka_dlt-exception-fqcn']).toBe('REPLY_UNDELIVERABLE');
    expect([others, worker.publisher.on('id.requests').length]).toEqual([[], 1]);
  });

  it('is left for later, undecided, when topics can not be looked up', async () => {
    const { deps, appends } = served(`${REPLIES} 100 1`);
    const exists = () => Promise.reject(new IdallocError('KAFKA_UNAVAILABLE', 'no broker answers'));
    const attempt = processBatch({ ...deps, replyTopics: { exists } }, 0, [request(0, 'a')], {
      isCurrent: () => true,
      resolved: () => {},
    });
    await expect(attempt).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    expect(appends()).toEqual([]);
  });
});

describe('forged requests in the name of another', () => {
  it.each([
    ['that name a topic that does not exist', REPLIES, 5_000, 'none', 0],
    ['for more IDs than a second allows', REPLIES, 5_000, '', 1],
  ])('%s delay it by a second at most', async (_, prefix, count, suffix, refused) => {
    const { its, worker, serve } = served(`${prefix} 1000 50`);
    its.missing = [`${REPLIES}none`];
    let offset = 0;
    for (let second = 0; second < 60; second += 1) {
      const forged = request(offset, `forged-${second}`, { count, replyTopic: `${REPLIES}${suffix}` });
      if (second % 50 === 0) await serve(forged);
      its.nowMs += second === 0 ? 5 : 20;
      await serve(request(offset + 1, `mine-${second}`, { count: 10 }));
      its.nowMs += 980;
      offset += 2;
    }
    const mine = worker.replies().filter(({ id }) => id.startsWith('mine'));
    expect(mine.filter((reply) => 'error' in reply)).toHaveLength(refused);
    expect(mine).toHaveLength(60);
  });
});

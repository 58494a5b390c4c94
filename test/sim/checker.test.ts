import { describe, expect, it } from 'vitest';
import { BAD } from './bad-histories.ts';
import { CHECKS, type CheckName, checkHistory } from './checker.ts';
import {
  batchOf,
  copyOfUnanswered,
  DECIDED_MS,
  entryOf,
  good,
  issuedOf,
  numbersOf,
  numbersRequest,
  opened,
  replyOf,
  request,
  statementOf,
  takeOver,
  unansweredTopics,
} from './good-history.ts';
import { COARSE, FINE, RENEW_AFTER_MS } from './setting.ts';

describe('the checker', () => {
  it('finds nothing wrong with a good history', () => {
    expect(checkHistory(good())).toEqual([]);
  });

  it('allows IDs of one worker between those of another, in a layout with the workers below', () => {
    const other = issuedOf({ order: 6, workerId: 2, first: 101n, last: 101n + COARSE.step });
    const history = { ...good(), layout: COARSE, issued: [issuedOf({ first: 100n, last: 100n + COARSE.step }), other] };
    expect(CHECKS.unique(history)).toBeUndefined();
    expect(CHECKS.unique({ ...history, layout: FINE })).toEqual(expect.any(String));
  });

  it('allows appends of one process to two partitions, and of two processes to one, at the same time', () => {
    const append = {
      process: 'm0.1',
      started: 4,
      partition: 0,
      sent: 6,
      ended: 11,
      answered: true,
      marks: true,
      decides: false,
    };
    const appends = [append, { ...append, partition: 1 }, { ...append, process: 'm1.1' }];
    expect(checkHistory({ ...good(), appends })).toEqual([]);
  });

  it('allows a renewal for a request that came late enough, and two batches once all that kept the first is lost', () => {
    const late = { ...request, tag: 'r2', timestampMs: DECIDED_MS + RENEW_AFTER_MS, offset: 1 };
    const renewal = entryOf({ order: 12, offset: 6, end: 6, requestOffset: 1 });
    const replies = [replyOf(batchOf(100n)), replyOf(batchOf(100n), { offset: 1 })];
    expect(checkHistory({ ...good(), requests: [request, late], entries: [entryOf(), renewal], replies })).toEqual([]);
    const soon = { ...request, tag: 'r2', offset: 1 };
    const anew = entryOf({ order: 23, sent: 23, offset: 7, end: 7, requestOffset: 1, batch: batchOf(200n) });
    const twice = [...replies, replyOf(batchOf(200n), { sent: 24, landed: 25, offset: 1 })];
    const trims = [{ order: 22, partition: 0, low: 6 }];
    const lost = { ...good(), requests: [request, soon], entries: [entryOf(), anew], replies: twice, trims };
    expect(CHECKS['one answer'](lost)).toBeUndefined();
  });

  it('allows a partition without requests, and one that was taken over', () => {
    expect(CHECKS['taken over']({ ...good(), takeOvers: [{ ...takeOver, requests: 0 }] })).toBeUndefined();
    const heir = entryOf({ order: 46, process: 'm1.1', correlationId: 'd', offset: 6 });
    const before = [{ ...opened, process: 'm1.1' }];
    const inTime = (['opened', 'restored'] as const).map((what, i) => ({
      ...opened,
      process: 'm1.1',
      what,
      order: 42 + i,
    }));
    for (const copies of [before, inTime]) {
      const history = { ...good(), takeOvers: [takeOver], entries: [entryOf(), heir], copies };
      expect(CHECKS['taken over'](history)).toBeUndefined();
    }
  });

  it('allows FORGOTTEN, and a new batch for a new request, once the ledger has lost the old one', () => {
    const trims = [{ order: 11, partition: 0, low: 6 }];
    const again = entryOf({ order: 13, offset: 7, end: 6, through: 0, requestOffset: 1, batch: batchOf(200n) });
    const replies = [
      replyOf(batchOf(100n)),
      replyOf('FORGOTTEN', { sent: 22 }),
      replyOf(batchOf(200n), { sent: 24, landed: 25, offset: 1 }),
    ];
    const requests = [request, { ...request, offset: 1 }];
    expect(checkHistory({ ...good(), requests, trims, entries: [entryOf(), again], replies })).toEqual([]);
  });

  it('allows a dated request to get the batch of a later one under its correlation ID, though that is renewed for it', () => {
    const reused = entryOf({ order: 13, offset: 7, end: 6, requestOffset: 1, batch: batchOf(200n) });
    const renewal = entryOf({ order: 17, sent: 14, offset: 9, end: 8, requestOffset: 2, batch: batchOf(200n) });
    const dated = { ...request, tag: 'r3', order: 14, offset: 2, firstSentMs: DECIDED_MS };
    const answered = (offset: number) => replyOf(batchOf(200n), { sent: 24, landed: 25, offset });
    const history = {
      ...good(),
      requests: [request, { ...request, tag: 'r2', order: 12, offset: 1 }, dated],
      entries: [entryOf(), reused, renewal],
      trims: [
        { order: 11, partition: 0, low: 6 },
        { order: 16, partition: 0, low: 8 },
      ],
      replies: [replyOf(batchOf(100n)), answered(1), answered(2)],
    };
    expect(CHECKS.replay(history)).toBeUndefined();
  });

  it('allows the numbers that were decided last to count again, once the ledger has lost them', () => {
    const { partition } = numbersOf();
    const anew = { first: 3, offset: 22 };
    const history = {
      ...good(),
      numbers: [numbersOf(), numbersOf({ ...anew, order: 33 }), numbersOf({ ...anew, order: 35 })],
      trims: [{ order: 32, partition, low: 22 }],
      losses: [{ order: 34, partition, from: 0, end: 23 }],
    };
    expect(CHECKS['numbers decided once'](history)).toBeUndefined();
  });

  it('takes no statement for one of a loss that is void', () => {
    const stated = statementOf({ order: 34, offset: 23, at: 22, next: 3, through: 5, isLoss: true });
    const check = CHECKS['loss stated'];
    expect(check({ ...good(), statements: [statementOf(), stated] })).toBeUndefined();
    expect(check({ ...good(), statements: [statementOf(), { ...stated, at: 23 }] })).toEqual(expect.any(String));
  });

  it('allows other numbers for a request that waited, if the ledger lost their record and what it says of that loss', () => {
    const { partition } = numbersOf();
    const waiting = { ...numbersRequest, tag: 'r10', order: 32, offset: 5 };
    const history = {
      ...good(),
      requests: [numbersRequest, waiting],
      losses: [{ order: 33, partition, from: 21, end: 22 }],
      numbers: [numbersOf(), numbersOf({ order: 35, requestOffset: 5, offset: 22, first: 3 })],
    };
    const check = CHECKS['numbers decided once'];
    expect(check(history)).toBeUndefined();
    const stated = statementOf({ order: 34, offset: 21, next: 3, through: 5, isLoss: true });
    expect(check({ ...history, statements: [statementOf(), stated] }), 'it says so').toEqual(expect.any(String));
    const head = { order: 29, partition, what: 'end', end: 21, through: 5 } as const;
    expect(check({ ...history, heads: [head] }), 'etcd knows the request').toEqual(expect.any(String));
  });

  it('allows a request to stay without an answer if its partition lost the copy that was forwarded', () => {
    const requestLosses = [{ order: 2, partition: 0, from: 0, end: 1, seen: undefined }];
    const history = { ...good(), topics: unansweredTopics(), requests: [copyOfUnanswered], requestLosses };
    expect(CHECKS.audited(history)).toBeUndefined();
  });

  it.each(Object.keys(CHECKS) as CheckName[])('%s: finds each of its histories', (check) => {
    for (const [name, wrong] of Object.entries(BAD[check])) {
      expect(CHECKS[check]({ ...good(), ...wrong }), name).toEqual(expect.any(String));
    }
  });
});

import { describe, expect, it } from 'vitest';
import { EVERY_TOPIC, topicHash } from '../../src/codec/request-position.ts';
import { Accounts, PartPrices, PRICES_US } from '../../src/pipeline/accounts.ts';
import { BAD_RECORDS } from '../../src/pipeline/intake.ts';
import { record, request } from '../support/memory-records.ts';
import { readerFor } from '../support/memory-worker.ts';

/** A tenth of the worker, and 1,000 microseconds at once. */
const RATE = { usPerMs: 100, burstUs: 1_000 };

function world(accountOf: (topic: string) => string | undefined = (topic) => topic) {
  const clock = { nowMs: 0 };
  const waiting: string[] = [];
  const accounts = new Accounts({
    rate: RATE,
    monotonicMs: () => clock.nowMs,
    accountOf,
    onWaits: (account) => waiting.push(account),
  });
  const charge = (topic: string, us: number) => accounts.charge(accounts.payerOf(topic), us);
  const mustWait = (topic: string) => accounts.mustWait(accounts.payerOf(topic));
  return { accounts, clock, waiting, charge, mustWait };
}

describe('an account', () => {
  it('waits for others once it has used more than a burst, and no longer below half of one', () => {
    const { clock, charge, mustWait } = world();
    charge('small', 1);
    charge('flood', 1_000);
    expect(mustWait('flood')).toBe(false);
    charge('flood', 1);
    expect([mustWait('flood'), mustWait('small')]).toEqual([true, false]);
    clock.nowMs = 5;
    expect(mustWait('flood')).toBe(true);
    clock.nowMs = 5.01;
    expect(mustWait('flood')).toBe(false);
  });

  it('is forgiven soon after a flood, however long that was', () => {
    const { clock, charge, mustWait } = world();
    charge('flood', 1_000_000);
    charge('small', 1);
    clock.nowMs = 74.9;
    expect(mustWait('flood')).toBe(true);
    clock.nowMs = 75;
    expect(mustWait('flood')).toBe(false);
  });

  it('alone on a worker, or among others in debt, does not wait', () => {
    const { clock, charge, mustWait } = world();
    charge('flood', 5_000);
    charge('other flood', 5_000);
    expect([mustWait('flood'), mustWait('other flood')]).toEqual([false, false]);
    charge('small', 1);
    expect([mustWait('flood'), mustWait('other flood')]).toEqual([true, true]);
    for (let ms = 1; ms <= 10_000; ms += 1) {
      clock.nowMs = ms;
      charge('flood', 200);
    }
    expect(mustWait('flood')).toBe(false);
  });

  it('that has just got into debt is not another one for itself', () => {
    const { charge, mustWait } = world();
    charge('flood', 1);
    charge('flood', 5_000);
    expect(mustWait('flood')).toBe(false);
  });

  it('is shared by the topics that pay together, also when that changes', () => {
    const quota = { prefix: 'a.' };
    const { accounts, clock, charge, mustWait } = world((topic) =>
      topic.startsWith(quota.prefix) ? quota.prefix : topic,
    );
    charge('small', 1);
    charge('a.x', 600);
    charge('a.y', 600);
    expect([mustWait('a.x'), mustWait('a.z')]).toEqual([true, true]);
    quota.prefix = 'b.';
    clock.nowMs = 1_000;
    for (let i = 0; i < 500; i += 1) accounts.payerOf('a.z');
    charge('a.x', 5_000);
    expect([mustWait('a.x'), mustWait('a.z')]).toEqual([true, false]);
  });

  it('of bad records waits for requests, and no request for it', () => {
    const { charge, mustWait } = world();
    charge('flood', 5_000);
    charge(BAD_RECORDS, 1);
    expect(mustWait('flood')).toBe(false);
    charge('small', 1);
    charge(BAD_RECORDS, 5_000);
    expect([mustWait(BAD_RECORDS), mustWait('flood'), mustWait('small')]).toEqual([true, true, false]);
  });

  it('of topics that are not known to exist is one for all names, and nobody waits for it', () => {
    const { charge, mustWait } = world((topic) => (topic.startsWith('made-up') ? undefined : topic));
    charge('flood', 5_000);
    for (let i = 0; i < 10; i += 1) charge(`made-up-${i}`, 90);
    expect(mustWait('flood')).toBe(false);
    charge('small', 1);
    charge('made-up-10', 101);
    expect([mustWait('made-up-11'), mustWait('flood'), mustWait('small')]).toEqual([true, true, false]);
  });

  it('is named when a request waits for its debt', () => {
    const { accounts, waiting } = world(() => 'a.');
    accounts.waits(accounts.payerOf('a.x'));
    expect(waiting).toEqual(['a.']);
  });
});

describe('accounts', () => {
  it('are bounded: beyond 10,000 with a debt, all further ones share one, until some have paid', () => {
    const { clock, charge, mustWait } = world();
    for (let i = 0; i < 10_000; i += 1) charge(`topic-${i}`, 1_000);
    charge('new', 600);
    charge('newer', 600);
    charge('topic-1', 0);
    expect([mustWait('new'), mustWait('newest'), mustWait('topic-5')]).toEqual([true, true, false]);
    clock.nowMs = 1_000;
    charge('new', 600);
    charge('newer', 600);
    expect([mustWait('new'), mustWait('newer')]).toEqual([false, false]);
  });
});

describe('a position names who pays', () => {
  it('by the beginning that the names of its topics have in common, or by the only one', () => {
    const { accounts } = world((topic) => (topic.startsWith('id.of.one') ? 'id.of.one' : topic));
    const named = ['id.of.one', 'id.of.one-1', 'id.of.other'].map((topic) => accounts.payerOf(topic).named);
    const [one, other] = ['id.of.one', 'id.of.other'].map(topicHash);
    expect(named).toEqual([
      { topic: one, prefix: 0 },
      { topic: one, prefix: 9 },
      { topic: other, prefix: 0 },
    ]);
  });

  it('as every topic where nobody knows them, since they may be as many as there are requests', () => {
    const { accounts } = world(() => undefined);
    expect(accounts.payerOf('made-up').named).toEqual({ topic: EVERY_TOPIC, prefix: 0 });
  });
});

describe('the price of a request in a part', () => {
  const reader = readerFor({ homeOf: (id) => Number(id.toString() === 'elsewhere') });
  const priceOf = (prices: PartPrices, id: string, fields: Parameters<typeof request>[2] = {}) =>
    prices.add(reader.read(request(0, id, fields))) - PRICES_US.request;
  const { append, forward, kibibyte, letter, listed } = PRICES_US;

  it('is higher with each KiB, each place of its reply, and a copy for its home', () => {
    const prices = new PartPrices(0);
    expect(priceOf(prices, 'a')).toBe(0);
    expect(priceOf(prices, 'b', { headers: { pad: Buffer.alloc(3_000) } })).toBe(2 * kibibyte);
    const replyTopic = 'id.replies.other';
    expect(['c', 'd'].map((id) => priceOf(prices, id, { replyTopic }))).toEqual([append, 0]);
    expect(priceOf(prices, 'elsewhere')).toBe(forward);
    expect(priceOf(new PartPrices(1), 'c')).toBe(forward);
  });

  it('is higher for a list of IDs, once for equal requests of a part', () => {
    const prices = new PartPrices(0);
    const many = { count: 100_000, encoding: 'IDS' } as const;
    expect(['a', 'a', 'b'].map((id) => priceOf(prices, id, many))).toEqual([100 * listed, 0, 100 * listed]);
    expect(priceOf(prices, 'c', { ...many, count: 999 })).toBe(0);
    expect(priceOf(prices, 'd', { ...many, encoding: 'RANGES' })).toBe(0);
  });

  it('is that of a dead letter as well for a record that is none', () => {
    const prices = new PartPrices(0);
    expect(prices.add(reader.read(record(0, null)))).toBe(PRICES_US.request + letter);
    expect(prices.totalUs).toBe(PRICES_US.request + letter);
  });
});

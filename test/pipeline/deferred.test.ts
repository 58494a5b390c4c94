import { describe, expect, it } from 'vitest';
import { Slots } from '../../src/async/slots.ts';
import { EVERY_TOPIC, MAX_DEBTOR_SPANS, topicHash } from '../../src/codec/request-position.ts';
import { encodeBatch } from '../../src/kafka/records/encode.ts';
import { RecordReader } from '../../src/kafka/records/fetched-record.ts';
import { AT, readHead } from '../../src/kafka/records/format.ts';
import { DeferredQueue, type OffsetRange } from '../../src/pipeline/deferred.ts';
import { isTooLong, MAX_RECORD_BYTES } from '../../src/pipeline/intake.ts';

const record = (offset: number) => ({ offset, key: null, value: null, headers: {}, timestampMs: 0 });
const queueOf = (unread?: OffsetRange) => {
  const taken: number[] = [];
  const onTaken = () => taken.push(queue.first ?? -1);
  const queue: DeferredQueue = new DeferredQueue(onTaken, unread);
  return { queue, taken, held: () => queue.held.map(({ offset }) => offset) };
};

describe('deferred requests', () => {
  it('wait in order until they are answered', () => {
    const { queue, held, taken } = queueOf();
    for (const offset of [3, 5, 9]) queue.take(record(offset));
    expect([held(), taken]).toEqual([[3, 5, 9], [3, 3, 3]]); // biome-ignore format: pairs
    queue.answered(6);
    expect([queue.first, held()]).toEqual([9, [9]]);
    queue.answered(10);
    expect([queue.first, held()]).toEqual([undefined, []]);
  });

  it('are added once, even if they are offered again after they were answered', () => {
    const { queue, held } = queueOf();
    for (const offset of [1, 4, 1, 4]) queue.take(record(offset));
    expect(held()).toEqual([1, 4]);
    queue.answered(2);
    for (const offset of [1, 4]) queue.take(record(offset));
    expect(held()).toEqual([4]);
  });

  it('are copies, which do not keep the fetched buffer in memory', () => {
    const { queue } = queueOf();
    const headers = { one: Buffer.from('x'), two: [Buffer.from('y'), null], three: null };
    const batch = encodeBatch(
      [
        { key: Buffer.from('before'), value: null },
        { key: Buffer.from('kk'), value: null, headers },
      ],
      7,
    );
    const reader = new RecordReader(readHead(batch), batch.subarray(AT.records));
    for (const fetched of [reader.next(), reader.next()]) queue.take(fetched);
    const [before, copy] = queue.held;
    const isLike = copy?.fields?.isLike(copy.fields, 'none');
    batch.fill(0xff);
    expect([before?.key, before?.headers]).toEqual([Buffer.from('before'), Object.create(null)]);
    expect({ ...copy?.headers }).toEqual(headers);
    expect([copy?.key, copy?.value, copy?.offset, copy?.timestampMs, isLike]).toEqual([
      Buffer.from('kk'),
      null,
      1,
      7,
      true,
    ]);
  });

  it('are as long as they were, so that one that is too long for a request is none', () => {
    const { queue } = queueOf();
    const batch = encodeBatch([{ key: null, value: Buffer.alloc(MAX_RECORD_BYTES) }], 0);
    queue.take(new RecordReader(readHead(batch), batch.subarray(AT.records)).next());
    expect(queue.held.map(isTooLong)).toEqual([true]);
  });

  it('beyond a number are not held, and those after them are not either, until all are read again', () => {
    const { queue, held } = queueOf();
    for (let offset = 0; offset < 1_003; offset += 1) queue.take(record(offset));
    expect([held().length, queue.unread]).toEqual([1_000, { from: 1_000, until: 1_003 }]);
    queue.answered(1_000);
    queue.take(record(2_000));
    expect([held(), queue.first, queue.unread]).toEqual([[], 1_000, { from: 1_000, until: 2_001 }]);
    queue.answered(1_002);
    expect(queue.unread).toEqual({ from: 1_002, until: 2_001 });
    queue.answered(2_001);
    expect([queue.first, queue.unread]).toEqual([undefined, undefined]);
    queue.take(record(2_001));
    expect(held()).toEqual([2_001]);
  });

  it('beyond a number of bytes are not held', () => {
    const { queue, held } = queueOf();
    const fields = { bytes: 500_000, isLike: () => false, isOfBatch: () => false, headerAt: () => undefined };
    for (let offset = 0; offset < 4; offset += 1) queue.take({ ...record(offset), fields });
    expect([held(), queue.unread]).toEqual([[0, 1, 2], { from: 3, until: 4 }]);
  });

  it('of an earlier session are read again first', () => {
    const { queue, held } = queueOf({ from: 5, until: 8 });
    queue.take(record(9));
    expect([queue.first, held(), queue.unread]).toEqual([5, [], { from: 5, until: 10 }]);
  });
});

describe('a dense batch', () => {
  const dense = (offset: number, since: number) => ({ ...record(offset), isDense: true, since });

  it('that was not read waits as a range, and what follows it too', () => {
    const { queue, held } = queueOf();
    queue.take(record(3));
    queue.take(dense(1_010, 5));
    queue.take(record(1_020));
    expect([held(), queue.unread]).toEqual([[3], { from: 5, until: 1_021 }]);
    expect([queue.taken, queue.oldest?.waiting]).toEqual([1_008, 1_008]);
    queue.take(dense(1_010, 5)); // delivered again
    queue.take(dense(1_030, 1_011)); // in part
    expect([queue.unread, queue.taken]).toEqual([{ from: 5, until: 1_031 }, 1_018]);
  });
});

describe('requests of an account in debt', () => {
  const [topic, other] = ['id.replies.orders', 'id.replies.other'];
  const payer = (replyTopic: string) => ({ replyTopic, named: { topic: topicHash(replyTopic), prefix: 0 } });
  const named = payer(topic).named;

  it('wait from the first that finds it so, and none of another topic', () => {
    const { queue } = queueOf();
    const looks = [false, true, true, false].map((isInDebt, i) => {
      const isWaiting = queue.defersDebtor(payer(topic), 10 * i, isInDebt);
      if (isWaiting) queue.take(record(10 * i));
      return isWaiting;
    });
    expect(looks).toEqual([false, true, true, true]);
    expect(queue.debtorsFrom(10)).toEqual([{ ...named, from: 10, until: 31 }]);
    expect([5, 10, 15, 30, 31].filter((offset) => queue.isDebtor(topic, offset))).toEqual([10, 15, 30]);
    expect([queue.isDebtor(other, 10), queue.defersDebtor(payer(other), 40, false)]).toEqual([false, false]);
    queue.answered(31); // other lanes still ask
    expect(queue.isDebtor(topic, 10)).toBe(true);
    expect([queue.debtorsFrom(31), queue.isDebtor(topic, 30)]).toEqual([[], false]);
  });

  it('wait behind those that wait, also when the debt has ended, and no longer once these are answered', () => {
    const { queue } = queueOf();
    const defers = (offset: number, isInDebt: boolean) => queue.defersDebtor(payer(topic), offset, isInDebt);
    expect([defers(1, true), defers(2, false)]).toEqual([true, true]);
    queue.debtorsFrom(2); // the first is answered
    expect(defers(3, false)).toBe(true);
    queue.debtorsFrom(4);
    expect(defers(5, false)).toBe(false);
  });

  it('that were looked at before stay where they were, whatever it owes now', () => {
    const { queue, held } = queueOf();
    const defers = (offset: number, isInDebt: boolean) => queue.defersDebtor(payer(topic), offset, isInDebt);
    expect(defers(1, false)).toBe(false);
    if (defers(2, true)) queue.take(record(2));
    expect([defers(1, true), defers(2, false)]).toEqual([false, true]);
    expect([held(), defers(3, true)]).toEqual([[2], true]);
  });

  it('are answered in their place where a position has no room for one more span', () => {
    const { queue } = queueOf();
    const topics = Array.from({ length: MAX_DEBTOR_SPANS + 1 }, (_, i) => payer(`${topic}.${i}`));
    const waiting = topics.filter((one, i) => queue.defersDebtor(one, i, true));
    expect(waiting.length).toBe(MAX_DEBTOR_SPANS);
    expect(queue.defersDebtor(payer(`${topic}.0`), 100, true)).toBe(true);
  });

  it('that pay together need one span, however many topics they name', () => {
    const { queue } = queueOf();
    const together = { topic: topicHash(topic), prefix: topic.length };
    const of = (i: number) => ({ replyTopic: `${topic}.${i}`, named: together });
    const looks = Array.from({ length: MAX_DEBTOR_SPANS + 1 }, (_, i) => queue.defersDebtor(of(i), i, true));
    const until = looks.length;
    expect([new Set(looks), queue.debtorsFrom(0)]).toEqual([new Set([true]), [{ ...together, from: 0, until }]]);
    expect([topic, `${topic}.9`, `${topic}-9`].map((one) => queue.isDebtor(one, 1))).toEqual([true, true, true]);
    expect([other, topic.slice(0, -1)].map((one) => queue.isDebtor(one, 1))).toEqual([false, false]);
  });

  it('wait in no span that would reach over one to a topic of its own that was answered in its place', () => {
    const { queue } = queueOf();
    const all = { replyTopic: topic, named: { topic: topicHash('id.'), prefix: 3 } };
    const looks = [all, payer(other), all, payer(other)].map((one, i) => queue.defersDebtor(one, i, one === all));
    expect([looks, [0, 1, 2, 3].map((offset) => queue.isDebtor(other, offset))]).toEqual([
      [true, false, true, false],
      [true, false, true, false],
    ]);
  });

  it('of every topic are those of a span without a name', () => {
    const queue = new DeferredQueue(() => {}, { from: 5, until: 8 }, [
      { topic: EVERY_TOPIC, prefix: 0, from: 5, until: 8 },
    ]);
    expect([4, 5, 7, 8].map((offset) => queue.isDebtor(topic, offset))).toEqual([false, true, true, false]);
  });

  it('and records that nobody looked at wait whatever they are, as long as others have room', () => {
    const { queue } = queueOf();
    expect([queue.takeUnseen(record(5), record(8)), queue.unread]).toEqual([true, { from: 5, until: 9 }]);
    const waits = (name?: string) => [4, 5, 8, 9].map((offset) => queue.isDebtor(name, offset));
    expect([waits(), waits(topic)]).toEqual([
      [false, true, true, false],
      [false, true, true, false],
    ]);
    expect([queue.takeUnseen(record(5), record(8)), queue.taken]).toEqual([true, 4]); // delivered again
    expect([queue.takeUnseen(record(7), record(10)), queue.taken]).toEqual([true, 6]); // in part
    expect(queue.debtorsFrom(5).map(({ from, until }) => [from, until])).toEqual([
      [5, 9],
      [9, 11],
    ]);
    expect(queue.defersDebtor(payer(topic), 12, true)).toBe(true);
    expect([12, 13].map((offset) => queue.isDebtor(undefined, offset))).toEqual([false, false]);
    const more = Array.from({ length: MAX_DEBTOR_SPANS }, (_, i) => queue.takeUnseen(record(20 + i), record(20 + i)));
    expect(more.filter(Boolean).length).toBe(MAX_DEBTOR_SPANS / 2 - 3);
    expect([queue.defersDebtor(payer(other), 99, true), queue.taken]).toEqual([true, 6 + MAX_DEBTOR_SPANS / 2 - 3]);
  });

  it('that an earlier session left are those that it named', () => {
    const span = { ...named, from: 5, until: 8 };
    const queue = (unread?: OffsetRange) => new DeferredQueue(() => {}, unread, [span]);
    expect([queue({ from: 5, until: 8 }).isDebtor(topic, 6), queue().isDebtor(topic, 6)]).toEqual([true, false]);
  });
});

describe('slots', () => {
  it('go to waiting callers in order, once each', async () => {
    const slots = new Slots(1);
    const first = await slots.take();
    const order: string[] = [];
    const second = slots.take().then((release) => {
      order.push('second');
      return release;
    });
    const third = slots.take().then(() => order.push('third'));
    first();
    first();
    (await second)();
    await third;
    expect(order).toEqual(['second', 'third']);
  });
});

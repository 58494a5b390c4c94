import { describe, expect, it } from 'vitest';
import { EVERY_TOPIC, MAX_DEBTOR_SPANS } from '../../src/codec/request-position.ts';
import { DeferredQueue, type OffsetRange } from '../../src/pipeline/deferred.ts';
import { Slots } from '../../src/pipeline/part.ts';

const record = (offset: number, value: Buffer | null = null) => ({
  offset,
  key: null,
  value,
  headers: {},
  timestampMs: 0,
});
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
    const fetched = Buffer.alloc(1_000_000, 'x');
    const headers = { one: fetched.subarray(5, 6), two: [fetched.subarray(6, 7), null], three: null };
    queue.take({ ...record(1, fetched.subarray(0, 4)), key: fetched.subarray(0, 2), headers });
    const [copy] = queue.held;
    expect(copy).toEqual({ ...record(1, Buffer.from('xxxx')), key: Buffer.from('xx'), headers: copy?.headers });
    expect({ ...copy?.headers }).toEqual({ one: Buffer.from('x'), two: [Buffer.from('x'), null], three: null });
    expect([copy?.key, copy?.value].map((bytes) => bytes?.buffer === fetched.buffer)).toEqual([false, false]);
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
    for (let offset = 0; offset < 4; offset += 1) queue.take(record(offset, Buffer.alloc(500_000)));
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
  const [topic, other] = [11, 22];

  it('wait from the first that finds it so up to the last, and none of another topic', () => {
    const { queue } = queueOf();
    const looks = [false, true, true, false, true].map((isInDebt, i) => {
      const isWaiting = queue.defersDebtor(topic, 10 * i, isInDebt);
      if (isWaiting) queue.take(record(10 * i));
      return isWaiting;
    });
    expect(looks).toEqual([false, true, true, false, true]);
    expect(queue.debtorsFrom(10)).toEqual([
      { topic, from: 10, until: 21 },
      { topic, from: 40, until: 41 },
    ]);
    expect([5, 10, 15, 20, 30, 40].filter((offset) => queue.isDebtor(topic, offset))).toEqual([10, 15, 20, 40]);
    expect(queue.isDebtor(other, 10)).toBe(false);
    queue.answered(41); // other lanes still ask
    expect(queue.isDebtor(topic, 10)).toBe(true);
    expect(queue.debtorsFrom(21)).toEqual([{ topic, from: 40, until: 41 }]);
    expect([queue.debtorsFrom(41), queue.isDebtor(topic, 40)]).toEqual([[], false]);
  });

  it('that were looked at before stay where they were, whatever it owes now', () => {
    const { queue, held } = queueOf();
    expect(queue.defersDebtor(topic, 1, false)).toBe(false);
    if (queue.defersDebtor(topic, 2, true)) queue.take(record(2));
    expect([queue.defersDebtor(topic, 1, true), queue.defersDebtor(topic, 2, false)]).toEqual([false, true]);
    expect([held(), queue.defersDebtor(topic, 3, true)]).toEqual([[2], true]);
  });

  it('are answered in their place where a position has no room for one more span', () => {
    const { queue } = queueOf();
    const topics = Array.from({ length: MAX_DEBTOR_SPANS + 1 }, (_, i) => i);
    const waiting = topics.filter((one) => queue.defersDebtor(one, one, true));
    expect(waiting.length).toBe(MAX_DEBTOR_SPANS);
    expect(queue.defersDebtor(0, 100, true)).toBe(true);
  });

  it('of every topic are those of a span without a name', () => {
    const queue = new DeferredQueue(() => {}, { from: 5, until: 8 }, [{ topic: EVERY_TOPIC, from: 5, until: 8 }]);
    expect([4, 5, 7, 8].map((offset) => queue.isDebtor(topic, offset))).toEqual([false, true, true, false]);
  });

  it('that an earlier session left are those that it named', () => {
    const span = { topic, from: 5, until: 8 };
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

import { describe, expect, it } from 'vitest';
import { DeferredQueue } from '../../src/pipeline/deferred.ts';
import { Slots } from '../../src/pipeline/slots.ts';

const record = (offset: number, value: Buffer | null = null) => ({
  offset,
  key: null,
  value,
  headers: {},
  timestampMs: 0,
});
const queueOf = (...unread: ConstructorParameters<typeof DeferredQueue>[1][]) => {
  const taken: number[] = [];
  const queue: DeferredQueue = new DeferredQueue(() => taken.push(queue.first ?? -1), ...unread);
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

import { describe, expect, it } from 'vitest';
import { DeferredQueue } from '../../src/pipeline/deferred.ts';
import { Slots } from '../../src/pipeline/slots.ts';

const deferred = (offset: number, name = `n${offset}`, share = 1) => ({
  record: { offset, key: null, value: null, headers: {}, timestampMs: 0 },
  name,
  share,
});
const offsets = (queue: DeferredQueue) => queue.part().map(({ offset }) => offset);

describe('deferred requests', () => {
  it('come in parts, in order; one that fills more than a part comes alone', () => {
    const queue = new DeferredQueue();
    for (const one of [deferred(3, 'a', 0.5), deferred(5, 'b', 0.5), deferred(6, 'c', 4), deferred(9, 'd', 0.1)])
      queue.take(one);
    expect(offsets(queue)).toEqual([3, 5]);
    queue.answered(5);
    expect([queue.first, offsets(queue)]).toEqual([6, [6]]);
    queue.answered(6);
    expect(offsets(queue)).toEqual([9]);
    queue.answered(9);
    expect([queue.first, offsets(queue)]).toEqual([undefined, []]);
  });

  it('are known by name until the last one with that name is answered', () => {
    const queue = new DeferredQueue();
    queue.take(deferred(1, 'a'));
    queue.take(deferred(2, 'a'));
    queue.answered(1);
    expect([queue.has('a'), queue.has('b')]).toEqual([true, false]);
    queue.answered(2);
    expect(queue.has('a')).toBe(false);
  });

  it('are added once, even if they are offered again after they were answered', () => {
    const queue = new DeferredQueue();
    expect([queue.take(deferred(1)), queue.take(deferred(1))]).toEqual([true, true]);
    expect(offsets(queue)).toEqual([1]);
    queue.answered(1);
    expect([queue.take(deferred(1)), queue.first]).toEqual([true, undefined]);
  });

  it('stay in order: one that was skipped is served in its place', () => {
    const queue = new DeferredQueue();
    queue.take(deferred(5));
    expect([queue.take(deferred(4)), queue.first]).toEqual([false, 5]);
  });

  it('are limited in number', () => {
    const queue = new DeferredQueue();
    const taken = Array.from({ length: 1_001 }, (_, i) => queue.take(deferred(i)));
    expect(taken.filter(Boolean)).toHaveLength(1_000);
    queue.answered(0);
    expect(queue.take(deferred(2_000))).toBe(true);
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

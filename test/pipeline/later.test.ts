import { describe, expect, it } from 'vitest';
import { PutOffQueue } from '../../src/pipeline/later.ts';
import { Slots } from '../../src/pipeline/slots.ts';

const putOff = (offset: number, name = `n${offset}`, share = 1) => ({
  record: { offset, key: null, value: null, headers: {}, timestampMs: 0 },
  name,
  share,
});
const offsets = (queue: PutOffQueue) => queue.part().map(({ offset }) => offset);

describe('requests that are put off', () => {
  it('come in parts of their order, one that fills more than a part alone', () => {
    const queue = new PutOffQueue();
    for (const one of [putOff(3, 'a', 0.5), putOff(5, 'b', 0.5), putOff(6, 'c', 4), putOff(9, 'd', 0.1)])
      queue.take(one);
    expect(offsets(queue)).toEqual([3, 5]);
    queue.answered(5);
    expect([queue.first, offsets(queue)]).toEqual([6, [6]]);
    queue.answered(6);
    expect(offsets(queue)).toEqual([9]);
    queue.answered(9);
    expect([queue.first, offsets(queue)]).toEqual([undefined, []]);
  });

  it('are known by their names until the last of a name was answered', () => {
    const queue = new PutOffQueue();
    queue.take(putOff(1, 'a'));
    queue.take(putOff(2, 'a'));
    queue.answered(1);
    expect([queue.has('a'), queue.has('b')]).toEqual([true, false]);
    queue.answered(2);
    expect(queue.has('a')).toBe(false);
  });

  it('are taken once, also when they come again after they were answered', () => {
    const queue = new PutOffQueue();
    expect([queue.take(putOff(1)), queue.take(putOff(1))]).toEqual([true, true]);
    expect(offsets(queue)).toEqual([1]);
    queue.answered(1);
    expect([queue.take(putOff(1)), queue.first]).toEqual([true, undefined]);
  });

  it('are never out of order: one that was passed by is served where it is', () => {
    const queue = new PutOffQueue();
    queue.take(putOff(5));
    expect([queue.take(putOff(4)), queue.first]).toEqual([false, 5]);
  });

  it('are a bounded number', () => {
    const queue = new PutOffQueue();
    const taken = Array.from({ length: 1_001 }, (_, i) => queue.take(putOff(i)));
    expect(taken.filter(Boolean)).toHaveLength(1_000);
    queue.answered(0);
    expect(queue.take(putOff(2_000))).toBe(true);
  });
});

describe('slots', () => {
  it('go to those who wait in the order in which they came, each once', async () => {
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

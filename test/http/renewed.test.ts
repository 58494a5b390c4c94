import { expect, test } from 'vitest';
import { renewed } from '../../src/http/renewed.ts';

function stage() {
  const faults: unknown[] = [];
  const world = { texts: ['1', 'a'], nowMs: 0, reads: 0 };
  const value = renewed({
    read: () => {
      world.reads += 1;
      if (world.texts.length === 0) throw new Error('no such file');
      return world.texts;
    },
    make: ([number, ...others]) => {
      if (Number.isNaN(Number(number))) throw new RangeError(`${number} is no number`);
      return [Number(number), ...others];
    },
    monotonicMs: () => world.nowMs,
    onFault: (error) => faults.push(error),
  });
  return { world, faults, value };
}

test('what has changed is seen a second later, by one look a second', () => {
  const { world, value } = stage();
  world.texts = ['2', 'b'];
  world.nowMs = 999;
  expect(value()).toEqual([1, 'a']);
  world.nowMs = 1_000;
  expect([value(), value()]).toEqual([
    [2, 'b'],
    [2, 'b'],
  ]);
  expect(world.reads).toBe(2);
});

test('what is not usable, or not there, leaves the one before, and is told once', () => {
  const { world, faults, value } = stage();
  for (const texts of [['x'], ['x'], [], []]) {
    world.texts = texts;
    world.nowMs += 1_000;
    expect(value()).toEqual([1, 'a']);
  }
  expect(faults.map(String)).toEqual(['RangeError: x is no number', 'Error: no such file']);
  world.texts = ['3'];
  world.nowMs += 1_000;
  expect(value()).toEqual([3]);
});

test('the first must be usable', () => {
  const make = () => {
    throw new RangeError('none');
  };
  expect(() => renewed({ read: () => [''], make, monotonicMs: () => 0, onFault: () => undefined })).toThrow('none');
});

import { expect, test } from 'vitest';
import { renewed } from '../../src/core/secret.ts';

function stage() {
  const world = { texts: ['1', 'a'], nowMs: 0, reads: 0, parsed: 0 };
  const value = renewed(
    () => {
      world.reads += 1;
      return world.texts;
    },
    ([number, ...others]) => {
      world.parsed += 1;
      if (Number.isNaN(Number(number))) throw new RangeError(`${number} is no number`);
      return [Number(number), ...others];
    },
    () => world.nowMs,
  );
  return { world, value };
}

test('a changed text takes effect after a second, since it is read once a second', () => {
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

test('an unchanged text is not parsed again', () => {
  const { world, value } = stage();
  const first = value();
  world.nowMs = 5_000;
  world.texts = ['1', 'a'];
  expect(value()).toBe(first);
  expect(world.parsed).toBe(1);
});

test('an invalid text throws once, and the last valid value stays', () => {
  const { world, value } = stage();
  world.texts = ['x'];
  world.nowMs = 1_000;
  expect(value).toThrow('x is no number');
  for (world.nowMs of [1_001, 2_001]) expect(value()).toEqual([1, 'a']);
  world.texts = ['3'];
  world.nowMs = 4_000;
  expect(value()).toEqual([3]);
});

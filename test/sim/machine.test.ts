import { describe, expect, it } from 'vitest';
import { Machine } from './machine.ts';
import { World } from './world.ts';

describe('the clocks of a simulated machine', () => {
  const readAfter = async (world: World, machine: Machine, ms: number) => {
    const { atMs } = world.after(ms, () => {});
    await world.run(atMs, () => false);
    return machine.read();
  };

  it.each([
    [false, 0],
    [true, -20],
  ])('drift, both of them: %s, until the wall clock is set right', async (isOfBoth, monoMs) => {
    const world = new World(1, false);
    using machine = new Machine(world, 'm0');
    const start = machine.read();
    machine.drift(-0.02, isOfBoth);
    const slow = await readAfter(world, machine, 1_000);
    expect([slow.wall - start.wall, slow.mono - start.mono]).toEqual([980, 1_000 + monoMs]);
    machine.correct();
    const right = await readAfter(world, machine, 500);
    expect([right.wall - start.wall, right.mono - start.mono]).toEqual([1_500, 1_500 + monoMs]);
  });
});

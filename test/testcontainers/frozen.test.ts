import { beforeEach, expect, test, vi } from 'vitest';
import { StartedIdAllocContainer } from '../../src/testcontainers/index.ts';

/** The engine's view of a container: what was called, and why the next attempts to freeze it fail. */
const engine = vi.hoisted(() => {
  const state = { Paused: false };
  const [calls, faults]: [string[], string[]] = [[], []];
  return {
    state,
    calls,
    faults,
    inspect: async () => ({ State: { ...state } }),
    pause: async () => {
      calls.push('pause');
      const fault = faults.shift();
      if (fault !== undefined) throw new Error(fault);
      state.Paused = true;
    },
    unpause: async () => {
      calls.push('unpause');
      state.Paused = false;
    },
  };
});

vi.mock('testcontainers', async (original) => ({
  ...(await original<object>()),
  getContainerRuntimeClient: async () => ({ container: { getById: () => engine } }),
}));

const worker = new StartedIdAllocContainer({ getId: () => 'a-worker' } as never);
const GIVEN_UP = 'runc did not terminate successfully: unable to freeze';

beforeEach(() => {
  engine.state.Paused = false;
  engine.calls.length = 0;
  engine.faults.length = 0;
});

test('a freeze that the kernel gives up is tried again, ten times in all', async () => {
  engine.faults.push(...new Array<string>(9).fill(GIVEN_UP));
  await worker.pause();
  expect([engine.state.Paused, engine.calls.length]).toEqual([true, 10]);
  await worker.resume();
  engine.calls.length = 0;
  engine.faults.push(...new Array<string>(10).fill(GIVEN_UP));
  await expect(worker.pause()).rejects.toThrow('unable to freeze');
  expect([engine.state.Paused, engine.calls.length]).toEqual([false, 10]);
});

test('a freeze that fails for another reason is not tried again', async () => {
  engine.faults.push('no such container');
  await expect(worker.pause()).rejects.toThrow('no such container');
  expect(engine.calls).toEqual(['pause']);
});

test('a worker is frozen once and resumed once, however often that is asked for', async () => {
  await worker.resume();
  await worker.pause();
  await worker.pause();
  await worker.resume();
  await worker.resume();
  expect(engine.calls).toEqual(['pause', 'unpause']);
});

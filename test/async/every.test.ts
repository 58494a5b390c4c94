import { expect, it } from 'vitest';
import { every } from '../../src/async/every.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

it('work is repeated, each time a pause after it has ended, until it is disposed', async () => {
  const runtime = new VirtualRuntime();
  const pass = (ms: number) => runtime.until(runtime.sleep(ms));
  const begun: number[] = [];
  const repeated = every(runtime, 100, async () => {
    begun.push(runtime.monotonicMs());
    await runtime.sleep(50);
  });
  await pass(410);
  expect(begun).toEqual([100, 250, 400]);
  repeated[Symbol.dispose](); // while the work is in progress
  await pass(1_000);
  expect([begun.length, runtime.pending]).toEqual([3, 0]);
});

it('work that is disposed before its first time never runs', async () => {
  const runtime = new VirtualRuntime();
  every(runtime, 100, () => expect.unreachable())[Symbol.dispose]();
  expect(runtime.pending).toBe(0);
});

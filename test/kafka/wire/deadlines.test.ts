import { expect, test } from 'vitest';
import { Deadlines } from '../../../src/kafka/wire/deadlines.ts';
import { kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

const never = new Promise<never>(() => {});
const late = () => new Error('late');

test('work that ends in time settles as usual, and leaves no timer', async () => {
  const runtime = new VirtualRuntime();
  const deadlines = new Deadlines(runtime);
  expect(await runtime.until(deadlines.within(10, Promise.resolve('done'), late))).toBe('done');
  await expect(runtime.until(deadlines.within(10, Promise.reject(new Error('failed')), late))).rejects.toThrow(
    'failed',
  );
  expect(runtime.pending).toBe(0);
});

test('late work is rejected at the deadline, which may have passed already', async () => {
  const runtime = new VirtualRuntime();
  const deadlines = new Deadlines(runtime);
  await expect(runtime.until(deadlines.within(10, never, late))).rejects.toThrow('late');
  expect(runtime.monotonicMs()).toBe(10);
  await expect(runtime.until(deadlines.within(3, never, late))).rejects.toThrow('late');
  expect(runtime.monotonicMs()).toBe(10);
});

test('work is not late for a standstill of the process, during which its end may have come', async () => {
  const runtime = new VirtualRuntime();
  const { promise, resolve } = Promise.withResolvers<string>();
  const within = new Deadlines(runtime).within(10, promise, late);
  runtime.nowMs += 8_000;
  await runtime.pass(5);
  resolve('read');
  expect(await within).toBe('read');
  expect(runtime.pending).toBe(0);
});

test('closing ends every wait, and later ones immediately', async () => {
  const runtime = new VirtualRuntime();
  const deadlines = new Deadlines(runtime);
  const waits = [deadlines.within(1e9, never, late), deadlines.until(1e9)];
  deadlines.close();
  const failing = Promise.reject(new Error('not awaited'));
  waits.push(deadlines.within(1e9, never, late), deadlines.within(1e9, failing, late), deadlines.until(1e9));
  const faults = await runtime.until(Promise.all(waits.map((wait) => wait.catch(kafkaErrorCode))));
  expect(faults).toEqual(['CLOSED', 'CLOSED', 'CLOSED', 'CLOSED', 'CLOSED']);
  expect(runtime.pending).toBe(0);
});

test('a wait that has ended is held no longer: closing finds nothing of it', async () => {
  const runtime = new VirtualRuntime();
  let cancelled = 0;
  const schedule = runtime.schedule.bind(runtime);
  runtime.schedule = (delayMs, run) => {
    const timer = schedule(delayMs, run);
    return {
      cancel: () => {
        cancelled += 1;
        timer.cancel();
      },
    };
  };
  const deadlines = new Deadlines(runtime);
  await runtime.until(deadlines.until(10));
  await runtime.until(deadlines.within(20, Promise.resolve(), late));
  await expect(runtime.until(deadlines.within(30, never, late))).rejects.toThrow('late');
  const before = cancelled;
  deadlines.close();
  expect(cancelled).toBe(before);
});
